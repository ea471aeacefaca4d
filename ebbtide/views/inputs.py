"""The tables of a view as a source: the offset is the version of each table. Changes are found without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ebbtide import MaterializedView
from ebbtide.delta import Feed, Log, Snapshot
from ebbtide.errors import SourceReadError
from ebbtide.executors import Executor
from ebbtide.model import TableVersion, ViewPosition
from ebbtide.sources import Discovery, Part, Source, SourceBatch
from ebbtide.storage import Location
from ebbtide.tables import StateTable


@dataclass(frozen=True)
class ViewTables(Source):
    """The tables that a view reads. The facts of a step have the versions that were read as `frontier.view`.

    Args:
        view: The view.
        root: Folder of all pipelines' tables.
    """

    view: MaterializedView
    root: str

    def location(self, name: str) -> str:
        """Return the location of an input's table."""
        return Location(self.root) / name / "sink"

    def pinned(self) -> ViewPosition:
        """Return the newest versions of the tables."""
        inputs = {}
        for name in self.view.inputs:
            location = self.location(name)
            snapshot = Snapshot.read(location, any_features=True)
            if snapshot is not None:
                commit = Log(location).hash_of(snapshot.version)
                inputs[name] = TableVersion(id=snapshot.id, version=snapshot.version, commit=commit)
        return ViewPosition(query=self.view.query_hash, inputs=inputs)

    def refuse_absent(self) -> None:
        """See `Source`."""
        for name in self.view.inputs:
            if not Log(self.location(name)).is_there():
                raise SourceReadError.of(
                    f"The view '{self.view.name}' reads '{name}', which has no table yet.",
                    got=self.location(name),
                    next_step=f"Run the pipeline '{name}' first, below the same root.",
                )

    def discover(
        self,
        read: Mapping[str, int | None],
        now_ms: int,
        since: object = None,
    ) -> Discovery:
        """See `Source`: the parts are the tables whose rows have changed since the last step; all of them after a new query."""
        self.refuse_absent()
        parts: list[Part] = [(name, None) for name in self.changed_between(self._last(), self.pinned())]
        return Discovery(tuple(parts), streams=bool(parts))

    def changed_between(self, last: ViewPosition | None, now: ViewPosition) -> list[str]:
        """Return the inputs whose rows have changed since an earlier position; all of them if the view is computed whole.

        Args:
            last: The earlier position; None before the first step.
            now: The position.
        """
        if last is None or why_whole(last, now, self):
            return list(now.inputs)
        changed = []
        for name, table in now.inputs.items():
            before = last.inputs[name].version
            if Feed(self.location(name), before, table.version).has_changes():
                changed.append(name)
        return changed

    def _last(self) -> ViewPosition | None:
        """Return the position of the last step; None before the first."""
        state = Location(self.root) / self.view.name / "state"
        newest = StateTable.newest_step(state)
        return None if newest is None else newest[1].frontier.view

    def planner(self, found: Discovery, location: str) -> OneMoment:
        """See `Source`."""
        return OneMoment(self, self.pinned())

    def batch(self, executor: Executor, offset: Any, max_record_bytes: int) -> SourceBatch:
        """See `Source`: a view has no records."""
        return SourceBatch(_NoRecords())


class _NoRecords:
    """The records of a view: it has none."""

    def run(self, work: object) -> list[str]:
        """See `Records`: a view computes its rows from its tables."""
        raise NotImplementedError("a view reads no records")


@dataclass(frozen=True)
class OneMoment:
    """Plans the batch of a run: up to the versions that the tables have as the run begins. See `BatchPlanner`.

    Args:
        tables: The tables.
        to: Their versions.
    """

    tables: ViewTables
    to: ViewPosition

    def note(self, found: Discovery) -> None:
        """See `BatchPlanner`: the versions stay those of the run's beginning."""

    def after(self, last: dict[str, Any] | None) -> dict[str, Any]:
        """Return the versions; `last` if no row has changed since."""
        read = ViewPosition.model_validate(last) if last else None
        if self.tables.changed_between(read, self.to):
            return self.to.model_dump()
        return last or {}


def why_whole(last: ViewPosition | None, to: ViewPosition, tables: ViewTables) -> str:
    """Return the reason to compute a view whole that does not depend on its query; empty if there is none.

    Args:
        last: Position of the last step; None before the first.
        to: Position of the next step.
        tables: Tables of the view.
    """
    # Each input must be the same table, with the same commit at the version that was read, and an unbroken log since then: only then
    # the commits in between are all the changes since the last step.
    if last is None:
        return "it is the first step"
    if last.query != to.query:
        return "the query has changed"
    for name, now in to.inputs.items():
        before = last.inputs.get(name)
        if before is None or before.id != now.id:
            return f"'{name}' is another table than before"
        location = tables.location(name)
        is_there = before.commit and before.commit == Log(location).hash_of(before.version)
        if (
            not is_there
        ):  # with another commit of this number, the later versions are not changes of the rows that were read
            return (
                f"'{name}' has no version {before.version} as it was read: it was restored, or its log was cleaned up"
            )
        problem = Feed(location, before.version, now.version).gap()
        if problem:
            return f"of '{name}' {problem}"
    return ""
