"""Where a pipeline's tables are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebbtide.ledger.checkpoint import Checkpoint
from ebbtide.paths import join, resolve
from ebbtide.spec.pipeline import Pipeline

if TYPE_CHECKING:
    from ebbtide.sinks.changelog import ChangelogTable
    from ebbtide.sinks.delta import SinkTable
    from ebbtide.state_table.table import StateTable


@dataclass(frozen=True)
class Tables:
    """Where a pipeline lives: `ROOT/NAME/{sink,changelog,state,quarantine,ledger,checkpoint,staged}`.

    Tables that need Spark load it when they are asked for: who only reads logs does without.
    """

    root: str
    spec: Pipeline

    @property
    def state(self) -> StateTable:
        """The state table."""
        from ebbtide.state_table.table import StateTable

        return StateTable(join(self.root, "state"), self.spec.operator)

    @property
    def sink(self) -> SinkTable:
        """The sink."""
        from ebbtide.sinks.delta import SinkTable

        spec = self.spec
        columns, key = spec.sink_table.columns, tuple(spec.sink_key)
        return SinkTable(join(self.root, "sink"), columns, key, spec.sequence, spec.sink.table_properties)

    @property
    def changelog(self) -> ChangelogTable:
        """The changelog table; only where the pipeline emits every record."""
        from ebbtide.sinks.changelog import ChangelogTable

        return ChangelogTable(join(self.root, "changelog"), self.spec.table.columns)

    @property
    def checkpoint(self) -> Checkpoint:
        """Spark's checkpoint."""
        return Checkpoint(join(self.root, "checkpoint"))

    def at(self, name: str) -> str:
        """Return the location of one of the others."""
        return join(self.root, name)

    @classmethod
    def under(cls, root: str, spec: Pipeline) -> Tables:
        """Return where a pipeline lives under the root of all pipelines."""
        return cls(join(resolve(root), spec.name), spec)
