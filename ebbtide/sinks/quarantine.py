"""The quarantine: bad records, with the reason, their place and their bytes.

| column | meaning |
|---|---|
| `step` | the step that met the record |
| `reason`, `detail` | see docs/bad-records.md |
| `origin`, `order` | where it stands in its source; in what order it was read |
| `raw` | its bytes, of a record that is too long the first of them |
| `at` | the step's clock |
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import add_file, create_if_absent, emptied, read_rows
from ebbtide.errors import StoredFormatError
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.tables import OwnTable
from ebbtide.model.changelog import ORDER, ORIGIN
from ebbtide.model.codes import row_codes
from ebbtide.model.entries import entry_table
from ebbtide.sinks.stage import append_stage, commit_stage

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
BOUNDED = ("step",)
"""Columns that statistics are kept of."""


@dataclass(frozen=True)
class QuarantineTable:
    """One pipeline's quarantine; made with its first bad record.

    Args:
        path: Its location.
        knows_offsets: Records are known by their offsets: one that is delivered again is taken once.
    """

    path: str
    knows_offsets: bool

    def new(self, bad: pa.Table) -> pa.Table:
        """Pick the bad records that are not in the table yet.

        Args:
            bad: With the columns of `ebbtide.state_table.staged.BAD_ROWS`.
        """
        if not self.knows_offsets or not len(bad):
            return bad
        # A redelivered record has the same origin and the same bytes.
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
        columns = pa.schema(
            [
                COLUMNS.field("origin"),
                COLUMNS.field("raw"),
            ]
        )
        snapshot = Snapshot.read(self.path)
        rows = columns.empty_table()
        if snapshot is not None:
            rows = read_rows(snapshot, columns)
        return rows.rename_columns(["_origin", "_raw"])

    def write(self, new: pa.Table, facts: StepFacts) -> list[Action]:
        """Write a step's bad records as a data file; nothing is appended yet.

        Args:
            new: Those that are not in the table, as from `new`.
            facts: The step's.

        Returns:
            The actions that add it: part of the decision, so that whoever redoes it reads no source.
        """
        if not len(new):
            return []
        name = f"part-{uuid.uuid4()}.parquet"
        rows = _rows(new, facts)
        add = add_file(self.path, name, rows, bounded=BOUNDED)
        return [add]

    def append(self, facts: StepFacts) -> None:
        """Append a step's bad records; a step that was appended is skipped.

        Args:
            facts: The step's.

        Raises:
            StoredFormatError: an older version of Ebbtide decided the step, and did not write them down.
        """
        if facts.bad_rows:
            create_if_absent(
                puts_of(self.path),
                self.path,
                COLUMNS,
                {},
                name="quarantine",
            )
            adds = facts.bad_rows
            append_stage(
                self.path,
                COLUMNS,
                lambda: adds,
                BOUNDED,
                facts,
                "quarantine",
            )
        elif facts.bad_rows is None and facts.quarantined and self._last_step() < facts.step:
            raise StoredFormatError.of(
                f"The {facts.quarantined} bad records of step {facts.step} of '{facts.pipeline}' are not in its quarantine.",
                got="a step decided by an older Ebbtide and not finished",
                next_step="Run 'ebbtide refresh' to rebuild the sink from the source.",
            )

    def _last_step(self) -> int:
        return OwnTable(self.path, "quarantine").last_step()

    def empty(self, facts: StepFacts) -> None:
        """Delete all rows, if the table is there; its history stays."""
        commit_stage(self.path, lambda found: emptied(found, COLUMNS, found.configuration), facts, "quarantine")


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
