"""Stored state as rows that people read: from Python a table of Arrow, from SQL a view, from the command line a table.

| column | meaning |
|---|---|
| the key's columns | |
| `state` | name of the state; not in upsert pipelines, which have one |
| `map_key`, `position` | a map's key as text, a list's position |
| the value's | of a stateful pipeline `value` (of one state typed, of several JSON); of an upsert pipeline the entry's columns, in sequence mode `tombstone`: it is deleted; in arrival mode `_role` and `_shown`, see `ebbtide.operators._arrival.rules` |
| `accessed` | its last access; null: of a state without a time to live |
| `expires` | when it expires; null: never, or not before the year 2200 |
| `live` | true if it has not expired |
| `step` | the step that wrote it |

Source: FLIP-25, "Future work": queryable state with TTL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask, equals, flags, ints, json_text
from ebbtide.entries import Step
from ebbtide.errors import ConfigError
from ebbtide.executors import Executor
from ebbtide.ledger import StepFacts
from ebbtide.operators import Operator
from ebbtide.runtime import Plan
from ebbtide.sessions import executor_of
from ebbtide.spec import Pipeline
from ebbtide.sqltext import UnfitExpressionError
from ebbtide.tables import HashRange, RowSelection, StoredEntries
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME = pa.timestamp("us", tz="UTC")
LAST_MS = 7_258_118_400_000
"""The year 2200: an entry that expires later is shown as one that never does."""


def state(  # noqa: PLR0913 - options of a command
    executor: Executor | SparkSession,
    spec: Pipeline,
    root: str,
    *,
    state: str | None = None,
    where: str | None = None,
    limit: int | None = None,
    as_of_step: int | None = None,
    now_ms: int | None = None,
) -> pa.Table:
    """Read a pipeline's state.

    Args:
        root: Folder of all pipelines' tables.
        state: One of its states, by name. Default: all.
        where: A condition on the columns, Spark's SQL; Spark starts only for one that Ebbtide cannot judge. Default: all rows.
        limit: Maximum number of rows. Default: all, which have to fit into memory.
        as_of_step: A step whose state is still stored. Default: the last.
        now_ms: The time that `live` goes by, epoch ms. Default: the clock of the step; event time goes by its watermark anyway.

    Raises:
        ConfigError: no such state, no such step, or not a condition on the columns.
    """
    rows = shown_state(spec, root, state, as_of_step, now_ms)
    try:
        return RowSelection(tuple(rows.schema.names), limit).of(executor_of(executor), rows, where)
    except UnfitExpressionError as error:
        raise ConfigError.of(
            "The value of --where is not a condition on the state's columns.",
            got=where,
            allowed=f"SQL on {', '.join(rows.schema.names)}",
        ) from error


def state_frame(spark: SparkSession, spec: Pipeline, root: str, *, as_of_step: int | None = None) -> DataFrame:
    """Return a pipeline's state as a frame of Spark, which is read in tasks; arguments and errors as `state`."""
    from ebbtide.sessions import Frames  # loads PySpark

    rows = shown_state(spec, root, as_of_step=as_of_step)
    return Frames(spark).of_items(rows, HashRange.covering(rows.n_rows), rows.schema)


def shown_state(
    spec: Pipeline, root: str, state: str | None = None, as_of_step: int | None = None, now_ms: int | None = None
) -> ShownState:
    """Return the entries that `state` shows; arguments and errors as there."""
    tables = Plan.under(root, spec)
    version, facts = _commit(tables, as_of_step)
    names = list(spec.identity.get("states", {}))
    if state is not None and state not in names:
        raise ConfigError.of(
            f"'{spec.name}' has no such state.",
            got=state,
            allowed=", ".join(names) or "none: it has but one",
        )
    entries = StoredEntries(tables.state.stored(tables.state.snapshot(version)), packed(tables.operator))
    return ShownState(
        entries,
        at=Step(facts.step, facts.now_ms if now_ms is None else now_ms, facts.frontier.watermark_ms),
        states=(state,) if state else tuple(names),
        keeps_live=bool(spec.sequence) and not spec.expires_live,
    )


@dataclass(frozen=True)
class ShownState:
    """The entries of a state as people read them; picklable.

    Args:
        entries: The stored entries.
        at: The step whose clocks `live` goes by.
        states: Names of the states to show; empty: the pipeline has one, without a name.
        keeps_live: A live row does not expire: only the entry of a deleted one does, or a row's wait for a value.
    """

    entries: StoredEntries
    at: Step
    states: tuple[str, ...]
    keeps_live: bool

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        operator = self.entries.operator()
        return self._shown(operator.schema.empty_table(), operator).schema

    @property
    def n_rows(self) -> int:
        """Stored rows to read."""
        return self.entries.state.n_rows

    def __call__(self, part: HashRange) -> Iterator[pa.Table]:
        """Yield the rows of a range of keys, in pieces."""
        operator = self.entries.operator()
        for entries in self.entries.live(part):
            yield self._shown(entries, operator)

    def _shown(self, entries: pa.Table, operator: Operator) -> pa.Table:
        if self.states:
            of_states = pc.is_in(entries["_state"], pa.array(self.states))
            entries = entries.filter(of_states)
        columns: dict[str, Any] = {name: entries[name] for name in operator.key}
        columns |= self._of_states(entries) if self.states else _of_upsert(entries, operator)
        return pa.table({**columns, **self._life(entries, operator)})

    def _of_states(self, entries: pa.Table) -> dict[str, Any]:
        """Return the columns of a function's states."""
        # The value of one state keeps its type; those of several have JSON as their common type.
        values = (
            entries[f"_value_{self.states[0]}"] if len(self.states) == 1 else self._texts(entries, "value", json_text)
        )
        return {
            "state": entries["_state"],
            "map_key": self._texts(entries, "key", _key_text),
            "position": entries["_position"],
            "value": values,
        }

    def _texts(self, entries: pa.Table, kind: str, write: Callable[[Any, pa.DataType], str]) -> pa.Array:
        """Write the column of each entry's own state."""
        texts: list[str | None] = [None] * len(entries)
        for state in self.states:
            name = f"_{kind}_{state}"
            if name not in entries.column_names:  # a state that is not a map
                continue
            own = np.flatnonzero(equals(entries, "_state", state))
            values = entries[name].take(pa.array(own))
            for at, value in zip(own.tolist(), values.to_pylist(), strict=True):
                texts[at] = write(value, values.type)
        return pa.array(texts, pa.string())

    def _life(self, entries: pa.Table, operator: Operator) -> dict[str, Any]:
        """Return `accessed`, `expires`, `live` and `step` of each entry."""
        may_expire = flags(entries, "_tombstone") if self.keeps_live else np.ones(len(entries), dtype=bool)
        is_stamped = entries["_stamp_ms"].is_valid().to_numpy()
        expires_ms = operator.expiry.expires_ms(entries, self.at)
        expired = operator.expiry.expired(entries, self.at)
        return {
            "accessed": _times(ints(entries, "_stamp_ms"), is_stamped),
            "expires": _times(expires_ms, may_expire & (expires_ms < LAST_MS)),
            "live": pa.array(~(may_expire & expired)),
            "step": entries["_step"],
        }


def _times(at_ms: Any, is_known: Mask) -> pa.Array:
    """Return times, epoch ms, as a column; null where they are not known."""
    in_range = np.where(is_known, at_ms, 0)
    times = pa.array(in_range, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIME)
    return pc.if_else(pa.array(is_known), times, pa.scalar(None, TIME))


def _key_text(value: Any, type_: pa.DataType) -> str:
    """Write the key of a map as text; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str) else json_text(value, type_).strip('"')


def _of_upsert(entries: pa.Table, operator: Operator) -> dict[str, Any]:
    """Return an upsert pipeline's columns other than the key's, and the internal ones that mark the kind of entry."""
    columns = {name: entries[name] for name in operator.columns.names if name not in operator.key}
    marks = {"_tombstone": "tombstone", "_role": "_role", "_shown": "_shown"}
    return columns | {shown: entries[name] for name, shown in marks.items() if name in entries.column_names}


def _commit(tables: Plan, step: int | None) -> tuple[int, StepFacts]:
    """Return the version and the facts of a step; None: the last."""
    tables.state.last()  # refuses another format
    steps = []
    newest_first = tables.state.steps()
    for version, facts in newest_first:
        if step is None or facts.step == step:
            return version, facts
        steps.append(facts.step)
    name = tables.spec.name
    if not steps:
        raise ConfigError.of(
            f"'{name}' has made no step yet.",
            got=step,
            next_step="Run 'ebbtide run' first.",
        )
    newest = steps[0]
    oldest = steps[-1]
    raise ConfigError.of(
        f"'{name}' has no such step.",
        got=step,
        allowed=f"{oldest} to {newest}",
    )
