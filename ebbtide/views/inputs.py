"""The tables that a view reads, as a source: its offset is the version of each of them. Needs no Spark to look for changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebbtide.delta import log
from ebbtide.delta.feed import commit_hash, gap, has_changes
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import SourceReadError
from ebbtide.model.step import TableVersion, ViewPosition
from ebbtide.paths import join
from ebbtide.sources.source import Backlog, Discovery, Part, Position, Records
from ebbtide.spec.view import MaterializedView
from ebbtide.state_table.layout import newest_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ViewTables:
    """The tables that a view reads; see `ebbtide.sources.source.Source`.

    Args:
        view: The view.
        root: Folder of all pipelines' tables.
    """

    view: MaterializedView
    root: str

    def location(self, name: str) -> str:
        """Return where an input's table is."""
        return join(self.root, name, "sink")

    def refuse_absent(self) -> None:
        """See `Source`."""
        for name in self.view.inputs:
            if not log.versions(self.location(name)):
                raise SourceReadError.of(
                    f"The view '{self.view.name}' reads '{name}', which has no table yet.",
                    got=self.location(name),
                    next_step=f"Run the pipeline '{name}' first, below the same root.",
                )

    def pinned(self) -> ViewPosition:
        """Return the versions that the tables have now."""
        inputs = {}
        for name in self.view.inputs:
            location = self.location(name)
            snapshot = Snapshot.read(location, any_features=True)
            if snapshot is None:
                continue
            inputs[name] = TableVersion(
                id=snapshot.id,
                version=snapshot.version,
                commit=commit_hash(location, snapshot.version),
            )
        return ViewPosition(query=self.view.query_hash, inputs=inputs)

    def discover(
        self,
        read: Mapping[str, int | None],
        now_ms: int,
        since: Position | None = None,
    ) -> Discovery:
        """See `Source`: the parts are the tables whose rows are others than at the last step; all of them after another query."""
        self.refuse_absent()
        changed = self._changed(self._last())
        parts: list[Part] = [(name, None) for name in changed]
        return Discovery(tuple(parts), streams=bool(parts))

    def _last(self) -> ViewPosition | None:
        """Return where the last step stood; None before the first."""
        state = join(self.root, self.view.name, "state")
        newest = newest_step(state)
        if newest is None:
            return None
        _, facts = newest
        return facts.frontier.view

    def _changed(self, last: ViewPosition | None) -> list[str]:
        """Return the inputs whose rows are others than at the last step; all of them if it had another query or others."""
        now = self.pinned()
        if last is None or now.query != last.query:
            return list(now.inputs)
        if now.inputs.keys() != last.inputs.keys():
            return list(now.inputs)
        changed = []
        for name, table in now.inputs.items():
            before = last.inputs[name]
            if self._has_changed(name, before, table):
                changed.append(name)
        return changed

    def _has_changed(
        self,
        name: str,
        before: TableVersion,
        now: TableVersion,
    ) -> bool:
        location = self.location(name)
        if before.id != now.id or not _is_there(location, before):
            return True
        return has_changes(location, before.version, now.version)

    def discover_left(self, since: Position) -> Discovery:
        """See `Source`: nothing is lost, where a table's changes are gone the view is computed anew."""
        return Discovery()

    def gone(self, read: Mapping[str, int | None], span: Position | None) -> str | None:
        """See `Source`: a view is computed from what its tables have."""
        return None

    def backlog(self, found: Discovery) -> Backlog:
        """See `Source`: the tables that have changed, whose bytes are not known."""
        return Backlog(files=len(found.parts))

    def note(self, found: Discovery, location: str) -> None:
        """See `Source`: there is no stream that it could be noted for."""

    def measured(self, position: Position | None, n_bytes: int, location: str) -> None:
        """See `Source`: a step is what has changed, whatever its size."""

    def position_of(self, offset: Any, since: Position | None) -> Position | None:
        """See `Source`: what was read stands in the step's facts as `view`."""
        return None

    def stream(
        self,
        spark: SparkSession,
        found: Discovery,
        location: str,
    ) -> DataFrame:
        """See `Source`: a view has none, its steps are begun by the run itself."""
        raise NotImplementedError("a view is no stream")

    def records(
        self,
        frame: DataFrame,
        offset: Any,
        max_record_bytes: int,
    ) -> Records:
        """See `Source`: a view has none."""
        raise NotImplementedError("a view reads no records")

    def parts_of(self, offset: Any) -> Sequence[Part]:
        """See `Source`: a position follows from the step's facts, nothing else is remembered."""
        return []


def why_whole(
    last: ViewPosition | None,
    to: ViewPosition,
    tables: ViewTables,
) -> str:
    """Say why a view has to be computed whole, whatever its query is; empty if it need not be.

    Args:
        last: Where the last step stood; None before the first.
        to: Where the step will stand.
        tables: The view's.
    """
    if last is None:
        return "it is the first step"
    if last.query != to.query:
        return "the query has changed"
    for name, now in to.inputs.items():
        before = last.inputs.get(name)
        if before is None or before.id != now.id:
            return f"'{name}' is another table than before"
        location = tables.location(name)
        if not _is_there(location, before):
            return (
                f"'{name}' has no version {before.version} as it was read: it was put back, or its log was cleaned up"
            )
        problem = gap(location, before.version, now.version)
        if problem:
            return f"of '{name}' {problem}"
    return ""


def _is_there(location: str, before: TableVersion) -> bool:
    """Return whether a table's log still has the commit that was read: versions after another one in its place say nothing."""
    commit = commit_hash(location, before.version)
    return commit != "" and commit == before.commit
