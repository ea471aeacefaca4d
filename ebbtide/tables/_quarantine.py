"""The quarantine: bad records, with the reason, their origin and their bytes.

| column | meaning |
|---|---|
| `step` | the step that met the record |
| `reason`, `detail` | see docs/how-to/bad-records.md |
| `origin`, `order` | its position in the source; its place in the order of reading |
| `raw` | its bytes; only the first ones if the record is too long |
| `at` | the step's clock |

A record that was replayed and is still bad keeps all but `reason` and `detail`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORDER, ORIGIN, OffsetRanges, order_struct
from ebbtide.columns import columns_named, entry_table, row_codes
from ebbtide.delta import Action, DataFile, Log, Snapshot, write_files
from ebbtide.errors import ConfigError, TableMismatchError
from ebbtide.formats import BadRecordError
from ebbtide.ledger import StepFacts, writer_of
from ebbtide.model import Append
from ebbtide.storage import Location
from ebbtide.tables._append_table import AppendTable
from ebbtide.tables._quarantine_removal import ORDERS, losses, rebased, removal
from ebbtide.tables._table import Work

COLUMNS = pa.schema(
    [
        ("step", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("origin", ORIGIN),
        ("order", ORDER),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True)
class Selection:
    """A selection of records: those that fulfil every condition that is set.

    Args:
        reasons: Allowed reasons; empty: any.
        steps: Steps that met them; empty: any.
        limit: The most records, the oldest first; None: all.
    """

    reasons: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    limit: int | None = None

    def fitting(self, rows: pa.Table) -> pa.Table:
        """Pick the rows that fit, in any number.

        Args:
            rows: With `step` and `reason`.
        """
        conditions = {"reason": self.reasons, "step": self.steps}
        for name, allowed in conditions.items():
            if allowed:
                type_ = COLUMNS.field(name).type
                is_wanted = pc.is_in(rows[name], pa.array(allowed, type_))
                rows = rows.filter(is_wanted)
        return rows


@dataclass(frozen=True)
class QuarantineTable(AppendTable):
    """One pipeline's quarantine; made with its first bad record.

    Args:
        path: Its location.
        knows_offsets: Records are known by their offsets: a redelivered one is stored once.
    """

    STAGE: ClassVar[str] = "quarantine"
    BOUNDED: ClassVar[tuple[str, ...]] = ("step",)
    knows_offsets: bool

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return COLUMNS

    def new(self, bad: pa.Table, read_before: OffsetRanges | None = None) -> pa.Table:
        """Return the bad records that are not in the table yet, and were not replayed or dropped.

        Args:
            bad: With `_origin` and `_raw`.
            read_before: Offsets that earlier steps read; None where these are not kept.
        """
        if not self.knows_offsets or not len(bad):
            return bad
        if read_before is not None:
            origins = bad["_origin"].to_pylist()
            was_read = [read_before.knows_origin(origin) for origin in origins]
            is_unread = pc.invert(pa.array(was_read, pa.bool_()))
            bad = bad.filter(is_unread)
        # A redelivered record has the same origin and the same bytes. Origins alone do not suffice: a topic that was made
        # again has other records at the same offsets.
        record_key = ["_origin", "_raw"]
        known = self._known()
        both = pa.concat_tables([known, bad.select(record_key)])
        codes = row_codes(both, record_key)
        _, first = np.unique(codes, return_index=True)
        is_first = np.zeros(len(both), dtype=bool)
        is_first[first] = True
        n_known = len(known)
        is_new = is_first[n_known:]
        return bad.filter(pa.array(is_new))

    def _known(self) -> pa.Table:
        """Read the origins and bytes of the records in the table."""
        rows = self.values("origin", "raw")
        return rows.rename_columns(["_origin", "_raw"])

    def values(self, *names: str) -> pa.Table:
        """Read some columns of all records; the oldest first if `order` is among them."""
        columns = columns_named(COLUMNS, names)
        snapshot = Snapshot.read(self.path)
        if snapshot is None:
            return columns.empty_table()
        rows = snapshot.rows(columns)
        return _oldest_first(rows) if "order" in names else rows

    def records(self, selection: Selection) -> pa.Table:
        """Read all columns of records, the oldest first.

        Args:
            selection: Conditions on the records.

        Raises:
            ConfigError: a reason is neither known nor that of a record.
        """
        snapshot = Snapshot.read(self.path)
        if snapshot is None:
            return COLUMNS.empty_table()
        parts = [COLUMNS.empty_table()]
        given: set[str] = set()
        for file in snapshot.files.values():
            rows = file.read(self.path, COLUMNS)
            given.update(rows["reason"].unique().to_pylist())
            parts.append(selection.fitting(rows))
        _refuse_unknown(selection.reasons, given)
        all_fitting = pa.concat_tables(parts)
        rows = _oldest_first(all_fitting)
        return rows.slice(0, selection.limit)

    def size(self) -> int:
        """Count the records by the log alone."""
        snapshot = Snapshot.read(self.path)
        if snapshot is None:
            return 0
        return sum(file.live_rows or 0 for file in snapshot.files.values())

    def write(self, new: pa.Table, facts: StepFacts) -> list[Action]:
        """Write a step's bad records as a data file; nothing is appended yet.

        Args:
            new: Records that are not in the table, as from `new`.

        Returns:
            The actions that add it: part of the decision, so that a retry does not read the source.
        """
        actions = self.added(_rows(new, facts))
        return self._synced(actions)

    def added(self, rows: pa.Table) -> list[Action]:
        """Write rows of this table as a data file; return the actions that add it, none without rows."""
        return write_files(self.path, rows, self.BOUNDED, data_change=True)

    def replace(self, gone: pa.Table, rows: pa.Table | None = None) -> list[Action]:
        """Return the actions that delete records and insert new ones; nothing is committed yet.

        Args:
            gone: Records to delete, with their `order`.
            rows: Records to insert, with all columns. Default: none.
        """
        snapshot = Snapshot.read(self.path)
        if snapshot is None:
            return []
        leaving = removal(snapshot, gone.select(ORDERS.names))
        coming = [] if rows is None else self.added(rows)
        return self._synced([*leaving, *coming])

    def _synced(self, actions: list[Action]) -> list[Action]:
        if Location(self.path).is_local:
            # The state's commit names the files: a power cut must not take them and leave the commit.
            writer_of(self.path).sync_files(self.path, actions, is_new=not Log(self.path).is_there())
        return actions

    def n_files_of(self, records: pa.Table) -> int:
        """Count the data files that hold some records."""
        snapshot = Snapshot.read(self.path)
        if snapshot is None:
            return 0
        orders = records.select(ORDERS.names)
        return len(losses(snapshot, orders))

    def append(self, actions: Sequence[Action], facts: StepFacts) -> None:
        """Commit the actions of a step; a step that was committed is skipped.

        Args:
            actions: Log actions of the step.

        Raises:
            TableMismatchError: the table was deleted, with or without the files that the step has written for it.
        """
        if not actions:
            return
        self._refuse_lost_files(actions)

        def actions_on(found: Snapshot) -> list[Action]:
            return _on(found, actions)

        self.commit_append(actions_on, facts)

    def _refuse_lost_files(self, actions: Sequence[Action]) -> None:
        """Refuse to make a table again whose first files were deleted with it."""
        # `refuse_lost` does not see it: before its first commit no step knows the table.
        if Log(self.path).is_there():
            return
        files = [DataFile(action["add"]) for action in actions if "add" in action]
        locations = [file.location(self.path) for file in files]
        if not all(Location(location).exists() for location in locations):
            raise TableMismatchError.of(
                f"The table at '{self.path}' is gone, with the bad records of the last step.",
                allowed="the files that the step has written",
                next_step="Run 'ebbtide repair', which reports the loss and continues without it; or 'ebbtide refresh' to rebuild all tables from the source.",
            )

    def perform_append(self, action: Append, work: Work) -> None:
        """Append the bad records that a step's facts name, and delete those that were replayed or dropped."""
        self.append(action.actions, work.facts)

    def properties_after(self, found: Snapshot) -> dict[str, str]:
        """Return its current properties."""
        return dict(found.configuration)

    def files_of(self, taken: Snapshot) -> list[Action]:
        """Write the records of another quarantine into one file."""
        rows = taken.rows(COLUMNS)
        return self.added(rows)


def _oldest_first(rows: pa.Table) -> pa.Table:
    """Sort rows by their `order`."""
    orders = order_struct(rows, "order")
    step, part, position = orders.T
    ascending = np.lexsort((position, part, step))
    indices = pa.array(ascending)
    return rows.take(indices)


def _on(found: Snapshot, actions: Sequence[Action]) -> list[Action]:
    """Return a step's actions, adapted to a version of the table."""
    fitted = rebased(actions, found)
    adds = [action["add"] for action in fitted if "add" in action]
    has_vectors = any("deletionVector" in add for add in adds)
    if not has_vectors:
        return fitted
    feature = found.with_vectors()
    return [*feature, *fitted]


def _rows(new: pa.Table, facts: StepFacts) -> pa.Table:
    n_rows = len(new)
    at_us = facts.now_ms * 1000
    columns: dict[str, object] = {
        "step": [facts.step] * n_rows,
        "reason": new["_reason"],
        "detail": new["_detail"],
        "origin": new["_origin"],
        "order": new["_order"],
        "raw": new["_raw"],
        "at": pa.array([at_us] * n_rows, pa.int64()),
    }
    return entry_table(COLUMNS, columns, n_rows)


def _refuse_unknown(reasons: Sequence[str], given: Collection[str]) -> None:
    """Refuse reasons that no record can have.

    Args:
        reasons: Those that are asked for.
        given: Reasons of the present records.

    Raises:
        ConfigError: one is unknown.
    """
    unknown = [reason for reason in reasons if reason not in BadRecordError.REASONS and reason not in given]
    if unknown:
        raise ConfigError.of(
            "The reason of a bad record is unknown.",
            got=", ".join(unknown),
            allowed=f"reasons of present records: {', '.join(sorted(given)) or 'none'}",
            next_step="docs/how-to/bad-records.md lists all.",
        )
