"""Which versions of a pipeline's tables are judged together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ebbtide.delta import log
from ebbtide.model.step import StepKind
from ebbtide.runtime.plan import Plan


@dataclass(frozen=True)
class VersionRange:
    """Versions of the sink and the state: those after `since`, up to `until`.

    Args:
        sink_since: Version of the sink.
        sink_until: The same.
        state_since: Version of the state.
        state_until: The same.
        incarnation: That of the tables; versions mean nothing in another.
    """

    sink_since: int
    sink_until: int
    state_since: int
    state_until: int
    incarnation: str

    @classmethod
    def after(cls, tables: Plan, judged: Mapping[str, Any] | None = None) -> Self:
        """Return what came after the versions judged good, and after the last reset.

        Args:
            tables: The pipeline's; it has made a step.
            judged: The `until` of the window judged good last; None judges all, as do tables made from scratch since.
        """
        incarnation = ""
        commit = tables.state.last()
        if commit is not None:
            _, facts = commit
            incarnation = facts.incarnation
        sink_versions = log.versions(tables.sink.path)
        state_versions = log.versions(tables.state.path)
        sink_since = _last_reset(tables.sink.path)
        state_since = _last_reset(tables.state.path)
        if judged is not None and judged["incarnation"] == incarnation:
            sink_since = max(sink_since, judged.get("sink", 0))
            state_since = max(state_since, judged.get("state", 0))
        return cls(
            sink_since=sink_since,
            sink_until=sink_versions[-1],
            state_since=state_since,
            state_until=state_versions[-1],
            incarnation=incarnation,
        )

    @property
    def until(self) -> dict[str, Any]:
        """What to hand to `after` once this window was judged good; plain JSON values."""
        return {
            "sink": self.sink_until,
            "state": self.state_until,
            "incarnation": self.incarnation,
        }

    def step_since(self, tables: Plan) -> int:
        """Return the last step before the window; 0 if there is none."""
        newest_first = log.own_commits(tables.state.path)
        for version, facts in newest_first:
            if version <= self.state_since:
                return int(facts["step"])
        return 0


def _last_reset(table: str) -> int:
    newest_first = log.own_commits(table)
    for version, facts in newest_first:
        if facts["kind"] == StepKind.RESET:
            return version
    return 0
