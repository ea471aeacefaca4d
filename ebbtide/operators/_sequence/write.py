"""Last phase: writes the entries that differ from the stored ones, in the row or in columns that the sink does not show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.changelog import UNKNOWN
from ebbtide.columns import Codes, Mask, entry_table, flags, is_set
from ebbtide.entries import Reconciled, SinkChange, Step
from ebbtide.operators._selection import Selected
from ebbtide.operators._sequence.choose import Rows
from ebbtide.operators._sequence.fill import Filled
from ebbtide.operators._sequence.links import NO_LINK, KeptRow, Link
from ebbtide.operators._sequence.rank import Ranked
from ebbtide.operators._sequence.rules import LINK_COLUMNS
from ebbtide.operators._sequence.stamps import renewed_by_event_time, stamps
from ebbtide.operators._sequence.tied_rows import (
    is_undecided,
    lost_rows_are_unknown,
    rivals_of,
    tied_column,
    was_undecided,
)
from ebbtide.operators._sequence.ties import digests


def write(
    ranked: Ranked,
    rows: Rows,
    filled: Filled,
    step: Step,
) -> Reconciled:
    """Write an entry for each key whose row in the sink or state must change.

    Args:
        ranked: The step's events.
        rows: Those that count.
        filled: Each key's row.
        step: Number, clocks and floor of the step.
    """
    is_change = filled.winner >= ranked.n_entries
    shows = is_change | filled.is_filled
    is_filled = shows & ~is_change
    # All other keys are already stored: the state grows only by changed entries.
    is_written = shows | _changes_only_in_state(ranked, rows, filled)
    written = filled.only(is_written)

    winner = written.winner
    n = len(winner)
    key = ranked.key[winner]
    is_delete = ranked.is_delete[winner]
    if_shown = _sink_changes(ranked, winner)
    change = np.where(shows[is_written], if_shown, "")
    stamp = stamps(ranked, rows, winner, step)
    # An old event time may make an entry expire before it is written: the sink gets the row, the state does not.
    is_past = step.has_expired(stamp, ranked.rules.ttl)
    may_expire = is_delete | ranked.rules.expires_live
    is_late = is_past & may_expire
    orders = _orders(ranked)
    base = rows.base[key]
    since = rows.since[key]
    known_columns, n_waiting = _known_columns(ranked, written)
    tie_columns, n_conflicts = _tie_columns(ranked, rows, winner)
    columns = _user_columns(ranked, written)
    columns |= {
        "_step": np.full(n, step.number),
        "_change": pa.array(change, mask=change == ""),
        "_removed": is_late,
        "_stamp_ms": stamp,
        "_changed_by": orders.take(pa.array(written.changed_by)),
        "_sequence": _stored_sequences(ranked, winner),
        "_columns": known_columns,
        "_base": ranked.scale.take(base),
        "_since": ranked.scale.take(since),
        "_retracted": _retracted(ranked, rows, winner),
        "_tombstone": is_delete,
        **tie_columns,
        **_link_columns(ranked, written),
        **_shown_before(ranked, key),
    }
    is_inserted = change == SinkChange.INSERT
    is_updated = change == SinkChange.UPDATE
    is_deleted = change == SinkChange.DELETE
    counts = Counter(
        filled=int(is_filled.sum()),
        pending_key_changes=filled.n_pending,
        inserted=int(is_inserted.sum()),
        updated=int(is_updated.sum()),
        deleted=int(is_deleted.sum()),
        late=int(is_late.sum()),
        waiting=n_waiting,
        conflicts=n_conflicts,
    )
    entries = entry_table(ranked.rules.schema, columns, n)
    return Reconciled(entries, counts)


def _changes_only_in_state(
    ranked: Ranked,
    rows: Rows,
    filled: Filled,
) -> Mask:
    """Mark stored rows that stay the same, but whose entry must change in columns that the sink does not show."""
    winner = filled.winner
    entries = ranked.entries
    n = ranked.n_entries
    # A late delete that is older than the row still matters while a column may be filled: values older than the delete must not fill
    # it.
    entry_keys = ranked.key[:n]
    is_newer_base = rows.base[entry_keys] > ranked.stored.base
    may_be_filled = is_set(entries, "_columns")
    has_new_base = is_newer_base & may_be_filled
    is_conflicting = np.zeros(len(ranked), bool)
    is_conflicting[rows.ties.conflicting] = True
    had_conflict = flags(entries, "_conflict")
    has_new_conflict = is_conflicting[:n] & ~had_conflict
    # Marked by event, since a key's entry is noted only if it is still its key's winner.
    is_renewed = renewed_by_event_time(ranked)
    is_noted = np.zeros(len(ranked), bool)
    is_noted[:n] = has_new_base | has_new_conflict | is_renewed
    # A retracted or losing content that the entry does not store yet.
    for event, taken_back in rows.ties.taken_back.items():
        stored_digests = rows.retracted.get(event)
        is_noted[event] |= taken_back != stored_digests
    for place, rivals in rivals_of(ranked, rows, winner).items():
        event = winner[place]
        newest = max(rivals, default=UNKNOWN)
        is_noted[event] |= newest >= ranked.n_stored
    for place, link in filled.links.items():
        event = int(winner[place])
        stored_link = ranked.stored.links.get(event, NO_LINK)
        is_noted[event] |= link != stored_link
    # A winner that is a change is written in any case.
    is_entry = winner < n
    return is_noted[winner] & is_entry


def _sink_changes(ranked: Ranked, winner: Codes) -> NDArray[np.str_]:
    """Return the sink's action for each key's row; empty: nothing."""
    is_live_entry = ~ranked.is_delete[: ranked.n_entries]
    key = ranked.key[winner]
    is_in_sink = ranked.of_entry(is_live_entry, key, otherwise=False)
    if_deleted = np.where(is_in_sink, SinkChange.DELETE, "")
    if_row = np.where(is_in_sink, SinkChange.UPDATE, SinkChange.INSERT)
    is_delete = ranked.is_delete[winner]
    return np.where(is_delete, if_deleted, if_row)


def _user_columns(ranked: Ranked, written: Filled) -> dict[str, object]:
    """Gather each column's values from their source events; a deleted row keeps only its key."""
    is_delete = ranked.is_delete[written.winner]
    columns: dict[str, object] = {}
    # A missing source (`UNKNOWN`, -1) is masked; its index becomes 0, whose value is never read.
    for name in ranked.rules.columns.names:
        source = written.source.get(name, written.winner)
        is_null = source < 0
        if name not in ranked.rules.key:
            is_null |= is_delete
        event_of_value = np.maximum(source, 0)
        indices = pa.array(event_of_value, mask=is_null)
        values = ranked.rows[name]
        columns[name] = values.take(indices)
    return columns


def _orders(ranked: Ranked) -> pa.ChunkedArray:
    """Return the order of the change that caused each event; entries have stored it."""
    stored = ranked.entries["_changed_by"]
    own = ranked.changes["_order"]
    chunks = [*stored.chunks, *own.chunks]
    return pa.chunked_array(chunks, stored.type)


def _stored_sequences(ranked: Ranked, winner: Codes) -> pa.Array:
    """Build `_sequence`: the row's sequence and the rank of its operation."""
    own_ranks = ranked.sequence[winner]
    sequences = ranked.scale.take(own_ranks)
    parts = [pc.struct_field(sequences, name) for name in ranked.rules.sequence]
    operations = ranked.operation[winner]
    parts.append(pa.array(operations, pa.int32()))
    fields = list(ranked.rules.schema.field("_sequence").type)
    return pa.StructArray.from_arrays(parts, fields=fields)


def _known_columns(ranked: Ranked, written: Filled) -> tuple[pa.Array, int]:
    """Build `_columns`, and count the rows that wait for a value."""
    n = len(written.winner)
    type_ = ranked.rules.schema.field("_columns").type
    if not written.known_at:
        return pa.nulls(n, type_), 0
    # Only exceptions are stored: values that are older than their row.
    names = pa.array(list(written.known_at))
    known_at = np.stack(list(written.known_at.values()), axis=1)
    own_rank = ranked.sequence[written.winner]
    is_row = ~ranked.is_delete[written.winner]
    differs = known_at != own_rank.reshape(n, 1)
    is_older = differs & is_row.reshape(n, 1)
    is_unknown = is_older & (known_at == UNKNOWN)
    is_waiting = is_unknown.any(axis=1)
    # A map array has the items of all rows in one array, row after row, and the offset of each row's items.
    _, column = np.nonzero(is_older)
    lengths = is_older.sum(axis=1)
    ends = np.cumsum(lengths)
    offsets = np.concatenate([[0], ends])
    is_empty = lengths == 0
    is_null = np.append(is_empty, False)  # the last offset belongs to no row
    columns = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32(), mask=is_null),
        names.take(pa.array(column)),
        ranked.scale.take(known_at[is_older]),
    )
    return columns.cast(type_), int(is_waiting.sum())


def _retracted(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> pa.Array:
    """Build `_retracted`: the digests of the contents that were retracted at each row's sequence.

    They exist if contents were compared or are stored. For a lone retraction that wins, the digest is computed here.
    """
    type_ = ranked.rules.schema.field("_retracted").type
    is_retraction = ranked.is_retraction
    if not (is_retraction.any() or rows.retracted or rows.ties.taken_back):
        return pa.nulls(len(winner), type_)
    taken_back = {**rows.retracted, **rows.ties.taken_back}
    lists = [taken_back.get(event) for event in winner.tolist()]
    retractions = np.flatnonzero(is_retraction[winner])
    alone = [place for place in retractions.tolist() if lists[place] is None]
    lone_events = pa.array(winner[alone])
    contents = ranked.rows.take(lone_events)
    own_digests = digests(contents).tolist()
    for place, digest in zip(alone, own_digests, strict=True):
        lists[place] = [digest]
    return pa.array(lists, type_)


def _tie_columns(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> tuple[dict[str, object], int]:
    """Build `_conflict` and `_tied`; also count new conflicts without a row.

    Such a key loses its row in this step though the row may exist: its content was retracted, and may have been added again.
    """
    undecided = is_undecided(ranked, rows, winner)
    if not undecided.any():
        return {"_conflict": undecided}, 0
    is_gone = undecided & ranked.is_delete[winner]
    is_lost_now = is_gone & ~was_undecided(ranked, winner)
    is_known_gone = is_gone & ~lost_rows_are_unknown(ranked, winner)
    rivals = rivals_of(ranked, rows, winner)
    of_undecided = {place: events for place, events in rivals.items() if undecided[place]}
    type_ = ranked.rules.schema.field("_tied").type
    tied = tied_column(ranked, of_undecided, is_known_gone, type_)
    return {"_conflict": undecided, "_tied": tied}, int(is_lost_now.sum())


def _shown_before(ranked: Ranked, key: Codes) -> dict[str, object]:
    """Copy the columns of a transform from the previous entries; see `ebbtide.operators._selection`."""
    columns: dict[str, object] = {}
    if ranked.rules.output is None:
        return columns
    entry = ranked.entry_of[key]
    has_none = entry < 0
    indices = pa.array(entry, mask=has_none)
    for name in Selected.COLUMNS:
        columns[name] = ranked.entries[name].take(indices)
    return columns


def _link_columns(ranked: Ranked, written: Filled) -> dict[str, object]:
    """Build `_moved_from`, `_kept` and `_kept_before` from links."""
    if not written.links:  # the usual case: whole columns of nulls
        return {}
    n = len(written.winner)
    old_codes = ranked.stored.old_codes.tolist()
    item_of = {code: item for item, code in enumerate(old_codes)}
    lists: dict[str, list[Any]] = {name: [None] * n for name in LINK_COLUMNS}
    for place, link in written.links.items():
        key_changes = _stored_key_changes(ranked, link, item_of)
        kept_rows = [_stored_kept_row(ranked, row) for row in link.kept]
        lists["_moved_from"][place] = key_changes or None
        event_ms = [ms for _, _, ms in link.all_key_changes]
        if any(ms is not None for ms in event_ms):
            lists["_moved_ms"][place] = event_ms
        if kept_rows:
            *earlier, newest = kept_rows
            lists["_kept"][place] = newest
            lists["_kept_before"][place] = earlier or None
    columns: dict[str, object] = {}
    for name, values in lists.items():
        type_ = ranked.rules.schema.field(name).type
        columns[name] = pa.array(values, type_)
    return columns


def _stored_key_changes(
    ranked: Ranked,
    link: Link,
    item_of: Mapping[int, int],
) -> list[dict[str, Any]]:
    """Return the key changes of a link as an entry stores them; `item_of` maps the code of an old key to its item."""
    key_changes = []
    for rank, old_code, _ in link.all_key_changes:
        key = None
        if old_code != UNKNOWN:
            item = item_of[old_code]
            key = ranked.stored.old_keys[item].as_py()
        sequence = ranked.scale.sequence(rank)
        key_changes.append({"sequence": sequence, "key": key})
    return key_changes


def _stored_kept_row(ranked: Ranked, row: KeptRow) -> dict[str, Any]:
    names = sorted(row.carriers)
    values: dict[str, Any] = {}
    since = []
    for name in names:
        event = row.carriers[name]
        values[name] = ranked.rows[name][event].as_py()
        rank = row.since[name]
        since.append(ranked.scale.sequence(rank))
    return {
        "sequence": ranked.scale.sequence(row.sequence),
        "until": ranked.scale.sequence(row.until),
        "known": names,
        "row": values,
        "since": since,
        "has_left": row.has_left,
        "n_moved": len(row.key_changes),
        "started": ranked.scale.sequence(row.started),
    }
