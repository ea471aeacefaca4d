"""Finds the rows of a pipeline's tables that belong to erased keys.

Every run asks this: it leaves out the records of such keys, and publishes a step that erases them. The erasure itself is
`ebbtide.operations._erase`.

| table | a row belongs to a key by |
|---|---|
| state | the operator's key: entries of all versions, tombstones, emissions, acknowledged keys |
| sink, changelog | the columns that the operator's key is called there |
| quarantine | the rows that the record's bytes name, as far as they can be parsed |
| staged rows | the source's columns of the key |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import pyarrow as pa

from ebbtide.columns import Mask
from ebbtide.delta import Doomed
from ebbtide.errors import ConfigError
from ebbtide.model import ErasedKeys
from ebbtide.operators import FormerKeys
from ebbtide.runtime._named_keys import keys_named

if TYPE_CHECKING:
    from ebbtide.runtime._plan import Plan
    from ebbtide.spec import UpsertPipeline


@dataclass(frozen=True)
class RowsOfKeys(Doomed):
    """The rows of erased keys, by columns.

    Args:
        erased: The keys.
        key: The columns of the key, in its order.
    """

    erased: ErasedKeys
    key: pa.Schema

    @property
    def columns(self) -> pa.Schema:
        """The key."""
        return self.key

    def marks(self, rows: pa.Table) -> Mask:
        """See `Doomed`."""
        return self.erased.marks(rows, self.key.names)


@dataclass(frozen=True)
class EntriesOfKeys(Doomed):
    """The entries of erased keys by sequence, and those of rows that had an erased key before.

    Args:
        erased: The keys.
        key: The columns of the key.
        links: The column of former keys.
    """

    erased: ErasedKeys
    key: pa.Schema
    links: pa.Field

    @property
    def columns(self) -> pa.Schema:
        """The key and the former keys."""
        return self.key.append(self.links)

    def marks(self, rows: pa.Table) -> Mask:
        """See `Doomed`."""
        return self.erased.marks(rows, self.key.names)

    def names(self, rows: pa.Table) -> Mask:
        """See `Doomed`."""
        return FormerKeys(self.key.names, self.marks).named(rows)

    def cleaned(self, rows: pa.Table) -> pa.Table:
        """See `Doomed`."""
        return FormerKeys(self.key.names, self.marks).cut_entries(rows)


@dataclass(frozen=True)
class RecordsOfKeys(Doomed):
    """The bad records that name erased keys.

    Args:
        erased: The keys.
        key: The source's columns of the key.
        name: Name of the column of the records' bytes.
    """

    erased: ErasedKeys
    key: pa.Schema
    name: str = "raw"

    @property
    def columns(self) -> pa.Schema:
        """The bytes of a record."""
        return pa.schema([(self.name, pa.binary())])

    def marks(self, rows: pa.Table) -> Mask:
        """See `Doomed`."""
        records = rows[self.name].to_pylist()
        marks = [self._names_one(raw) for raw in records]
        return np.array(marks, dtype=bool)

    def _names_one(self, raw: bytes | None) -> bool:
        keys = keys_named(raw or b"", self.key)
        is_erased = self.erased.marks(keys, self.key.names)
        return bool(is_erased.any())


@dataclass(frozen=True)
class RefusedRows:
    """Leaves out the staged rows of erased keys: changes by their key, bad records by their bytes. No change left names such a key.

    Args:
        changes: Selects the changes.
        records: Selects the bad records.
    """

    changes: RowsOfKeys
    records: RecordsOfKeys

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return staged rows without those of erased keys; see `Stager`."""
        marks = self.changes.marks(rows)
        is_bad = rows["_reason"].is_valid().to_numpy()
        if is_bad.any():
            bad = rows.select([self.records.name]).filter(pa.array(is_bad))
            marks[is_bad] |= self.records.marks(bad)
        left = rows.filter(pa.array(~marks)) if marks.any() else rows
        if FormerKeys.COLUMN in left.column_names:
            left = FormerKeys(self.changes.columns.names, self.changes.marks).cut_changes(left)
        return left


@dataclass(frozen=True)
class ErasureKey:
    """The key that the erasures of a pipeline go by: its names, in one order, and the rows that belong to it.

    Args:
        plan: The pipeline.
        state: In the state: the operator's key.
        sink: In the sink, and in keys that users give.
        source: In records.
    """

    plan: Plan
    state: tuple[str, ...]
    sink: tuple[str, ...]
    source: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Find them.

        Raises:
            ConfigError: a column of the key is computed, or the pipeline has no records.
        """
        spec = plan.spec
        if spec.is_view:
            raise ConfigError.of(
                f"'{spec.name}' is a materialized view: its rows come back from its inputs.",
                next_step="Erase the keys in the pipelines that it reads; then 'ebbtide refresh' computes the view again.",
            )
        state = tuple(plan.operator.key)
        sink_name = {of_state: of_sink for of_sink, of_state in spec.state_key_of.items()}
        source_name: Mapping[str, str] = {name: name for name in state}
        if spec.selects_changes:
            transform = cast("UpsertPipeline", spec).transform
            source_name = {} if transform is None else transform.source_keys(spec.table)
        selected = sink_name.keys() & source_name.keys()
        computed = [name for name in state if name not in selected]
        if computed:
            listed = ", ".join(computed)
            raise ConfigError.of(
                f"Keys of '{spec.name}' cannot be erased: a record does not name its key.",
                got=f"computed columns of the key: {listed}",
                allowed="a key of columns that the transform selects unchanged",
                next_step="Select them unchanged, or delete the records at the source and run 'ebbtide refresh'.",
            )
        return cls(
            plan,
            state,
            sink=tuple(sink_name[name] for name in state),
            source=tuple(source_name[name] for name in state),
        )

    @classmethod
    def refused(cls, plan: Plan, name: str | None) -> RefusedRows | None:
        """Return what leaves out the staged rows of erased keys; None if no key was ever erased.

        Args:
            name: Name of the ledger's file, from the last step's facts.
        """
        if name is None:
            return None
        erased = plan.erasures.keys(name)
        key = _fields(plan.spec.table.columns, cls.of(plan).source)
        return RefusedRows(RowsOfKeys(erased, key), RecordsOfKeys(erased, key, "_raw"))

    @property
    def columns(self) -> pa.Schema:
        """The key's columns as the sink has them; they may be null."""
        return _fields(self.plan.spec.sink_table.columns, self.sink)

    def doomed_in(self, table: str, erased: ErasedKeys) -> Doomed:
        """Return what selects the rows of erased keys in a table.

        Args:
            table: `state`, `sink`, `changelog` or `quarantine`.
            erased: The keys.
        """
        if table == "quarantine":
            key = _fields(self.plan.spec.table.columns, self.source)
            return RecordsOfKeys(erased, key)
        if table != "state":
            return RowsOfKeys(erased, self.columns)
        schema = self.plan.operator.schema
        key = _fields(schema, self.state)
        if FormerKeys.COLUMN not in schema.names:
            return RowsOfKeys(erased, key)
        links = schema.field(FormerKeys.COLUMN).with_nullable(True)
        return EntriesOfKeys(erased, key, links)


def _fields(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return some columns, in the order of their names; they may be null."""
    chosen = [columns.field(name) for name in names]
    return pa.schema([column.with_nullable(True) for column in chosen])
