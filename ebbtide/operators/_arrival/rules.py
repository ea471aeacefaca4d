"""Settings of arrival mode, and the columns and expiry rules that follow from them.

The state has the columns of `ebbtide.entries._entry` and these (for each key and `_position` the newest `_step` counts):

| column | meaning |
|---|---|
| the user's columns | the row |
| `_position` | its place in the key's history; greater is newer |
| `_role` | `live`: a row of the history; `waiting`: a retraction whose row has not arrived yet; `gone`: no longer in the history, but still shown by the sink |
| `_shown` | the sink shows this row |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import pyarrow as pa

from ebbtide.changelog import ORDER, changelog_schema
from ebbtide.durations import from_ms
from ebbtide.entries import ENTRY_COLUMNS
from ebbtide.keyed_state import StateTtlConfig
from ebbtide.operators._expiry import ExpiryRules

LIVE = "live"
WAITING = "waiting"
GONE = "gone"
ARRIVAL_COLUMNS: dict[str, pa.DataType] = {
    "_position": pa.int64(),
    "_role": pa.string(),
    "_shown": pa.bool_(),
}
EMITTED_COLUMNS: dict[str, pa.DataType] = {
    "_kind": pa.string(),
    "_order": ORDER,
    "_number": pa.int64(),
}


class OnExpire(StrEnum):
    """Treatment of a row in the sink whose entry has expired."""

    KEEP = "keep"
    DELETE = "delete"


class Emission(StrEnum):
    """Emission of a step: the net effect per key, or additionally one emission for every record."""

    NET = "net"
    EVERY = "every"


class Keep(StrEnum):
    """The row that the sink shows for a key: the last or the first one inserted."""

    LAST = "last"
    FIRST = "first"


@dataclass(frozen=True)
class Materialization:
    """Settings of the histories.

    Args:
        upsert_key: Within a key, rows replace and retract each other by these columns. Empty: by the whole row.
        on_expire: Treatment of expired rows in the sink.
        retraction_grace_ms: Time that a retraction waits for its row, ms; 0: it does not wait.
        max_history: Maximum rows of a key; older ones are dropped at the end of a step. None: no limit.
        emission: Net effect, or every record.
        keep: The row of a key that the sink shows: its newest or its oldest.
    """

    upsert_key: tuple[str, ...] = ()
    on_expire: OnExpire = OnExpire.KEEP
    retraction_grace_ms: int = 0
    max_history: int | None = None
    emission: Emission = Emission.NET
    keep: Keep = Keep.LAST


@dataclass(frozen=True)
class ArrivalRules:
    """Settings of a pipeline that reconciles in order of arrival.

    Args:
        columns: The user's columns, in order; two rows are equal if all of them are.
        key: Names of the key's columns, none of them nullable.
        ttl: Time to live of each row of a history, from when it was written; None keeps them until retracted.
        materialization: How histories are kept.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    ttl: StateTtlConfig | None = None
    materialization: Materialization = field(default_factory=Materialization)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        return self._with_columns(ENTRY_COLUMNS | ARRIVAL_COLUMNS)

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns)

    @cached_property
    def emitted_schema(self) -> pa.Schema:
        """Columns of an emitted record."""
        return self._with_columns(EMITTED_COLUMNS)

    def _with_columns(self, types: dict[str, pa.DataType]) -> pa.Schema:
        user_fields = [field.with_nullable(True) for field in self.columns]
        own_fields = pa.schema(types)
        fields = [*user_fields, *own_fields]
        return pa.schema(fields)

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that identify an entry."""
        return (*self.key, "_position")

    @cached_property
    def expiry(self) -> ExpiryRules:
        """Expiry rules: rows expire by the pipeline's TTL, waiting retractions by their grace period.

        A tick counts the expired retractions, and with `on_expire: delete` deletes expired rows from the sink.
        """
        ttls: dict[str | None, StateTtlConfig] = {}
        if self.ttl is not None:
            ttls[None] = self.ttl
        grace_ms = self.materialization.retraction_grace_ms
        if grace_ms:
            ttls[WAITING] = StateTtlConfig(ttl=from_ms(grace_ms))
        needs_tick: list[tuple[str, str | bool]] = [("_role", WAITING)]
        if self.materialization.on_expire is OnExpire.DELETE:
            needs_tick.append(("_shown", True))
        return ExpiryRules(ttls, ttl_selector="_role", needs_tick=tuple(needs_tick), grace_ms=grace_ms)

    @property
    def has_named_states(self) -> bool:
        """Return False: there is one state, without a name."""
        return False

    @property
    def leaves_orphans(self) -> bool:
        """Return whether the sink may keep rows that the state has forgotten."""
        return self.ttl is not None and self.materialization.on_expire is OnExpire.KEEP
