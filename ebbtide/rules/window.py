"""Which versions of a pipeline's tables are judged together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ebbtide.store.delta import log
from ebbtide.streaming.tables import Tables


@dataclass(frozen=True)
class Window:
    """Versions of the sink and the state: those after `since`, up to `until`.

    Args:
        sink_since: Version of the sink.
        sink_until: The same.
        state_since: Version of the state.
        state_until: The same.
    """

    sink_since: int
    sink_until: int
    state_since: int
    state_until: int

    @classmethod
    def after(cls, tables: Tables, judged: Mapping[str, int] | None = None) -> Self:
        """Return what came after the versions judged good, and after the last reset.

        Args:
            tables: The pipeline's.
            judged: The `until` of the window judged good last; None judges all.
        """
        sink, state = tables.sink.path, tables.state.path
        since = judged or {}
        return cls(
            max(since.get("sink", 0), _last_reset(sink)),
            log.versions(sink)[-1],
            max(since.get("state", 0), _last_reset(state)),
            log.versions(state)[-1],
        )

    @property
    def until(self) -> dict[str, int]:
        """What to hand to `after` once this window was judged good."""
        return {"sink": self.sink_until, "state": self.state_until}


def _last_reset(table: str) -> int:
    return next((version for version, facts in log.own_commits(table) if facts["kind"] == "reset"), 0)
