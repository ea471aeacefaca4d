"""Rules for typed changes beyond their types; a record that breaks one is bad."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import TRUNCATE, RowKind
from ebbtide.formats._format import BadRecordError, shortened
from ebbtide.formats._reading import Contents
from ebbtide.formats._settings import DELETING, DecodingSettings

Columns = Mapping[str, pa.Array]


class Judge:
    """Judges the changes of one batch. A record that breaks several rules gets the reason of the first.

    Args:
        settings: Settings of the pipeline.
        contents: The changes and their records, which are marked if they break a rule.
    """

    def __init__(self, settings: DecodingSettings, contents: Contents) -> None:
        self._settings = settings
        self._changes = contents.changes
        self._records = contents.records
        self._truncates: set[int] = set()
        for i, change in enumerate(self._changes):
            if change.kind == TRUNCATE:
                self._truncates.add(i)

    def judge(
        self,
        columns: Columns,
        event_ms: pa.Array,
        wall_ms: int | None,
    ) -> None:
        """Mark the records that break a rule.

        Args:
            columns: (n,) the user's columns, `_unavailable`, and `_sequence` in sequence mode.
            event_ms: (n,) event times, epoch ms.
            wall_ms: Wall time of the step, epoch ms; None: no event time is ahead of it.
        """
        self._judge_truncates()
        self._judge_retractions()
        self._judge_unknown_columns()
        self._judge_keys(columns)
        self._judge_unsent(columns)
        self._judge_nulls(columns)
        self._judge_sequence(columns)
        self._judge_event_times(event_ms, wall_ms)

    def _judge_truncates(self) -> None:
        if self._settings.truncates:
            return
        detail = "got TRUNCATE; allowed: changes of rows, since a function cannot apply it"
        error = BadRecordError("truncate", detail, masked=detail)
        self._refuse(self._truncates, error)

    def _judge_retractions(self) -> None:
        """Refuse -U in a log of upserts: it can be neither ignored nor applied, since the next record may have another key."""
        if not self._settings.by_place:
            return
        retractions = [i for i, change in enumerate(self._changes) if change.op == RowKind.UPDATE_BEFORE]
        detail = "got -U; allowed: +I, +U, -D, since order: upsert keeps the last write per key. Next: order: arrival, for changelogs with retractions"
        error = BadRecordError("retraction", detail, masked=detail)
        self._refuse(retractions, error)

    def _judge_unknown_columns(self) -> None:
        """Judge unknown columns if the spec refuses them; in sequence mode only the key of a delete counts."""
        if self._settings.unknown_columns != "refuse":
            return
        known = self._settings.known_columns
        for i, change in enumerate(self._changes):
            row = change.row
            is_delete = self._settings.sequence and change.kind in DELETING
            if row is None or is_delete or known.issuperset(row):
                continue
            names = sorted(row.keys() - known)
            listed = ", ".join(map(shortened, names))
            detail = f"got {listed}; allowed: columns of the schema, ignored_columns"
            error = BadRecordError("unknown_column", detail, masked=detail)
            self._refuse([i], error)

    def _judge_keys(self, columns: Columns) -> None:
        for name in self._settings.key:
            nulls = null_indices(columns[name], but=self._truncates)
            error = BadRecordError.of(
                BadRecordError.NULL_KEY,
                name,
                got="null",
                allowed="a value in every key column",
            )
            self._refuse(nulls, error)

    def _judge_unsent(self, columns: Columns) -> None:
        """Judge unsent values that no earlier change can fill in."""
        if not self._settings.needs_whole_rows:
            return
        for i, names in enumerate(columns["_unavailable"].to_pylist()):
            if not names:
                continue
            error = BadRecordError.of(
                "value_not_sent",
                names[0],
                got="the mark of a value that the source did not send",
                allowed=f"whole rows with order: arrival. Next: order: {{sequence: ...}} or upsert; or {BadRecordError.NEEDS_WHOLE_ROWS}",
            )
            self._refuse([i], error)

    def _judge_nulls(self, columns: Columns) -> None:
        """Judge NOT NULL. A delete in sequence mode needs its key only, and an unsent value is allowed."""
        unavailable = columns["_unavailable"]
        for column in self._settings.columns:
            name = column.name
            if column.nullable or name in self._settings.key:
                continue
            refused = []
            for i in null_indices(columns[name], but=self._truncates):
                change = self._changes[i]
                is_delete = self._settings.sequence and change.kind in DELETING
                unsent = unavailable[i].as_py() or []
                if not is_delete and name not in unsent:
                    refused.append(i)
            error = BadRecordError.of(
                "null_value",
                name,
                got="null",
                allowed="a value, as the schema says NOT NULL",
            )
            self._refuse(refused, error)

    def _judge_sequence(self, columns: Columns) -> None:
        if not self._settings.reads_sequence:
            return
        for index, name in enumerate(self._settings.sequence):
            component = columns["_sequence"].field(index)
            nulls = null_indices(component)
            error = BadRecordError.of(
                "null_sequence",
                name,
                got="null",
                allowed="a value in every column of the sequence",
            )
            self._refuse(nulls, error)

    def _judge_event_times(self, event_ms: pa.Array, wall_ms: int | None) -> None:
        if self._settings.needs_event_time:
            nulls = null_indices(event_ms)
            error = BadRecordError.of(
                "null_event_time",
                "event time",
                got="null",
                allowed="a time, since state expires by event time",
            )
            self._refuse(nulls, error)
        for i in ahead_of(self._settings, event_ms, wall_ms):
            limit = _latest_ms(self._settings, wall_ms)
            error = BadRecordError.of(
                "event_time_ahead",
                "event time",
                got=f"{event_ms[i]} ms",
                allowed=f"up to {limit} ms",
            )
            self._refuse([i], error)

    def _refuse(self, changes: Collection[int], error: BadRecordError) -> None:
        for i in changes:
            record = self._records[i]
            record.refuse(error)


def ahead_of(
    settings: DecodingSettings,
    event_ms: pa.Array,
    wall_ms: int | None,
) -> list[int]:
    """Return the changes whose event time is further ahead than `max_ahead_ms` allows.

    Args:
        settings: Settings of the pipeline.
        event_ms: (n,) event times, epoch ms.
        wall_ms: Wall time of the step, epoch ms; None: none is ahead of it.
    """
    latest_ms = _latest_ms(settings, wall_ms)
    if latest_ms is None:
        return []
    is_ahead = pc.greater(event_ms, latest_ms).fill_null(False)
    return _true_indices(is_ahead)


def _latest_ms(settings: DecodingSettings, wall_ms: int | None) -> int | None:
    max_ahead_ms = settings.max_ahead_ms
    if max_ahead_ms is None or wall_ms is None:
        return None
    return wall_ms + max_ahead_ms


def null_indices(array: pa.Array, *, but: Collection[int] = ()) -> list[int]:
    """Return the indices of a column's nulls, except for some changes."""
    if not array.null_count:
        return []
    is_null = array.is_null()
    nulls = _true_indices(is_null)
    return [i for i in nulls if i not in but]


def _true_indices(array: pa.BooleanArray) -> list[int]:
    mask = array.to_numpy(zero_copy_only=False)
    indices: list[int] = np.flatnonzero(mask).tolist()
    return indices
