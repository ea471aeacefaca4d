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
        commit = tables.state.last()
        incarnation = commit[1].incarnation if commit else ""
        is_comparable = judged is not None and judged["incarnation"] == incarnation
        since = judged if judged is not None and is_comparable else {}
        sink, state = tables.sink.path, tables.state.path
        return cls(
            sink_since=max(since.get("sink", 0), _last_reset(sink)),
            sink_until=log.versions(sink)[-1],
            state_since=max(since.get("state", 0), _last_reset(state)),
            state_until=log.versions(state)[-1],
            incarnation=incarnation,
        )

    @property
    def until(self) -> dict[str, Any]:
        """What to hand to `after` once this window was judged good; plain JSON values."""
        return {"sink": self.sink_until, "state": self.state_until, "incarnation": self.incarnation}

    def step_since(self, tables: Plan) -> int:
        """Return the last step before the window; 0 if there is none."""
        for version, facts in log.own_commits(tables.state.path):  # the newest first
            if version <= self.state_since:
                return int(facts["step"])
        return 0


def _last_reset(table: str) -> int:
    for version, facts in log.own_commits(table):
        if facts["kind"] == StepKind.RESET:
            return version
    return 0
