"""Compares a sink with the rows that it must have, key by key, at given versions of both. Ranges of keys are compared in tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import columns_named
from ebbtide.delta import Snapshot
from ebbtide.faults import Fault
from ebbtide.ledger import StepFacts
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._way_back import SinkHistory
from ebbtide.runtime._workers.comparing import (
    ALIKE,
    DECIDED,
    ROWS,
    SHOWN,
    STEP,
    CompareRange,
    ShownEntries,
    Side,
    TableRows,
    TakeColumns,
    TakeRange,
    least_keys,
)
from ebbtide.tables import HashRange, Stored, StoredEntries, Take
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.executors import Executor


@dataclass(frozen=True)
class SinkDifference:
    """The keys whose row in a sink is not the one that it must have.

    Args:
        differing: A row for each: key columns, `_decided`, `_shown`, `_alike`, `_rows`; see `ebbtide.runtime._workers.comparing`.
        key: Names of the key's columns.
        taken: What `Take` returned for the rows that must come, by task.
        samples: The rows of the least of these keys, if asked for; see `ebbtide.runtime._workers.comparing`.
    """

    differing: pa.Table
    key: tuple[str, ...]
    taken: tuple[Any, ...]
    samples: pa.Table

    @classmethod
    def found(  # noqa: PLR0913 - what is compared, as of which versions, and what is returned
        cls,
        executor: Executor,
        plan: Plan,
        facts: StepFacts,
        *,
        state_version: int,
        sink_version: int,
        sink_since: int | None = None,
        take: Take | None = None,
        n_samples: int = 0,
    ) -> Self:
        """Compare the sink with the state.

        Keys are left out that were acknowledged and have not changed since. Where the state forgets rows that stay in the sink, keys
        that it does not show are compared with the sink's way back (`SinkHistory`), if other clients have changed rows and there is one.

        Args:
            plan: The pipeline, whose state is kept; see `SinkHistory.is_kept`.
            facts: Of its last step.
            state_version: Version of the state to read.
            sink_version: Version of the sink.
            sink_since: See `SinkHistory.own_versions`.
            take: Takes the rows that must come, where they are.
            n_samples: Maximum number of keys whose rows are returned.
        """
        sides = _Sides(plan, facts, state_version)
        history = SinkHistory(plan, facts)
        work = CompareRange(
            decided=sides.shown,
            sink=sides.sink(sink_version),
            names=tuple(plan.sink.columns.names),
            accepted=sides.accepted,
            only_decided=history.may_forget,
            forgotten=sides.forgotten(history, sink_version, sink_since) if history.may_forget else None,
            take=take,
            n_samples=n_samples,
        )
        return cls._by(executor, work, alike=sides.hash_alike)

    @classmethod
    def to_backfill(cls, executor: Executor, plan: Plan, sink_version: int, take: Take | None = None) -> Self:
        """Compare a sink with that of its backfill.

        Rows are compared by the user's columns and `_sequence`: by what change of the source a row came about may differ.

        Args:
            sink_version: Version of the backfill's sink.
            take: Takes the rows that must come, where they are.
        """
        compared = [name for name in plan.sink.schema.names if name != "_changed_by"]
        key = tuple(plan.sink.key)
        work = CompareRange(
            decided=_rows_of(plan.backfill, key, sink_version),
            sink=_rows_of(plan, key, plan.delta_sink.version()),
            names=tuple(compared),
            accepted=_accepted_columns(plan, key).empty_table(),
            take=take,
        )
        return cls._by(executor, work, alike=True)

    @classmethod
    def _by(cls, executor: Executor, work: CompareRange, *, alike: bool) -> Self:
        results = executor.map(work, HashRange.covering(work.n_rows if alike else 0), at=HashRange.middle)
        differing = pa.concat_tables([result.differing for result in results])
        taken = tuple(result.taken for result in results if result.taken is not None)
        samples = pa.concat_tables([result.samples for result in results])
        return cls(differing, work.sink.key, taken, least_keys(samples, work.sink.key, work.n_samples))

    def damages(self) -> dict[str, int]:
        """Count the rows that the sink lacks (`missing`), has differently (`other`), has in excess (`extra`) or several times (`repeated`)."""
        return {
            "missing": self._count(pc.and_not(self._is_decided, self._is_shown)),
            "other": self._count(self._is_other),
            "extra": self._count(pc.invert(self._is_decided)),
            "repeated": self._count(pc.greater(self.differing[ROWS], 1)),
        }

    def counts(self) -> dict[str, int]:
        """Count the rows that come (`added`), change (`changed`) and go (`deleted`)."""
        return {
            "added": self._count(pc.and_not(self._is_decided, self._is_shown)),
            "changed": self._count(pc.and_(self._is_decided, self._is_shown)),
            "deleted": self._count(pc.invert(self._is_decided)),
        }

    def keys(self, most: int) -> list[dict[str, Any]]:
        """Return some of the keys that differ, the least first."""
        least: list[dict[str, Any]] = least_keys(self.differing.select(self.key), self.key, most).to_pylist()
        return least

    @property
    def present(self) -> pa.Table:
        """The keys among them that the sink has."""
        return self.differing.filter(self._is_shown).select(self.key)

    @property
    def _is_decided(self) -> pa.ChunkedArray:
        return self.differing[DECIDED]

    @property
    def _is_shown(self) -> pa.ChunkedArray:
        return self.differing[SHOWN]

    @property
    def _is_other(self) -> pa.ChunkedArray:
        both = pc.and_(self._is_decided, self._is_shown)
        return pc.and_not(both, self.differing[ALIKE])

    @staticmethod
    def _count(is_counted: pa.ChunkedArray) -> int:
        return pc.sum(is_counted).as_py() or 0


def take_shown(executor: Executor, plan: Plan, facts: StepFacts, take: Take, *, leaves_accepted: bool) -> list[Any]:
    """Take all rows that the sink must have by the newest version of the state; return what `take` returned, by task.

    Args:
        facts: Of its last step.
        take: Takes the rows, where they are.
        leaves_accepted: Leave out rows whose key was acknowledged and has not changed since.
    """
    sides = _Sides(plan, facts, plan.state.snapshot().version)
    accepted = sides.accepted if leaves_accepted else sides.accepted.slice(0, 0)
    work = TakeRange(sides.shown, sides.key, accepted, take)
    results = executor.map(work, HashRange.covering(work.decided.n_rows), at=HashRange.middle)
    return [result for result in results if result is not None]


def take_sink(executor: Executor, plan: Plan, take: Take) -> list[Any]:
    """Take all rows of the sink's newest version, without its reserved columns; return what `take` returned, by task.

    Args:
        take: Takes the rows, where they are.
    """
    key = tuple(plan.sink.key)
    rows = _rows_of(plan, key, plan.delta_sink.version())
    work = TakeRange(
        rows, key, _accepted_columns(plan, key).empty_table(), TakeColumns(tuple(plan.sink.columns.names), take)
    )
    results = executor.map(work, HashRange.covering(rows.n_rows), at=HashRange.middle)
    return [result for result in results if result is not None]


@dataclass(frozen=True)
class _Sides:
    """The rows to compare: those that the state keeps, and those of the sink.

    Args:
        plan: The pipeline; see `SinkHistory.is_kept`.
        facts: Of its last step.
        state_version: Version of the state to read.
    """

    plan: Plan
    facts: StepFacts
    state_version: int

    @cached_property
    def key_of(self) -> dict[str, str]:
        """Column of the sink's key to that of the state's, in the order of the state's: so both hash alike."""
        of_sink = {of_state: name for name, of_state in self.plan.spec.state_key_of.items()}
        return {of_sink[name]: name for name in self.plan.operator.key}

    @property
    def key(self) -> tuple[str, ...]:
        """The sink's key, in that order."""
        return tuple(self.key_of)

    @property
    def hash_alike(self) -> bool:
        """Return whether keys have the same types in both."""
        sink, state = self.plan.sink.schema, self.plan.operator.schema
        return all(sink.field(name).type == state.field(of_state).type for name, of_state in self.key_of.items())

    @cached_property
    def _state(self) -> Snapshot:
        return _as_of(self.plan.state.path, self.state_version, "state")

    @property
    def shown(self) -> Side:
        """The rows that the state keeps."""
        plan = self.plan
        stored = plan.state.stored(self._state)
        entries = StoredEntries(stored, packed(plan.operator))
        return ShownEntries(entries, plan.sink.schema, self.key_of, self._is_below)

    def sink(self, version: int) -> TableRows:
        """Return the rows of a version of the sink."""
        return _rows_of(self.plan, self.key, version)

    @cached_property
    def accepted(self) -> pa.Table:
        """The acknowledged keys, under the sink's names, and `_step`."""
        plan = self.plan
        rows = plan.state.acknowledged_in(self._state.files.values())
        columns = _accepted_columns(plan, self.key)
        selected = rows.select([*self.key_of.values(), STEP])
        return selected.rename_columns(columns.names).cast(columns)

    def forgotten(self, history: SinkHistory, sink_version: int, sink_since: int | None) -> TableRows | None:
        """Return the sink's rows after its way back; None if there is none, or no other client has changed the sink."""
        own = history.own_versions(self.state_version, sink_version, sink_since)
        way = history.way_back(own) if own.foreign else None
        if way is None:
            return None
        plan = self.plan
        net = history.net_changes(way)
        stored = _stored(plan, way.version) if way.version is not None else Stored(plan.sink.path, (), plan.sink.schema)
        return TableRows(stored, self.key, net, self._is_below)

    @property
    def _is_below(self) -> Any:
        return self.plan.delta_sink.below(self.facts.frontier.floor)


def _accepted_columns(plan: Plan, key: Sequence[str]) -> pa.Schema:
    """Return the columns of acknowledged keys: the sink's key, and `_step`."""
    return columns_named(plan.sink.schema, key).append(pa.field(STEP, pa.int64()))


def _rows_of(plan: Plan, key: Sequence[str], version: int) -> TableRows:
    """Return the rows of a version of a pipeline's sink."""
    return TableRows(_stored(plan, version), tuple(key))


def _stored(plan: Plan, version: int) -> Stored:
    found = _as_of(plan.sink.path, version, "sink")
    return Stored(plan.sink.path, tuple(found.files.values()), plan.sink.schema, table_id=found.id)


def _as_of(table: str, version: int, part: str) -> Snapshot:
    """Return a version of the state or the sink."""
    found = Snapshot.read(table, version)
    if found is None:
        raise Fault.of(part, "gone", location=table).error
    return found
