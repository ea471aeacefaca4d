"""Last phase: the entries that remember each key's row, of the keys whose row or memory differs from what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.codes import Codes, Mask
from ebbtide.model.entries import DELETE, INSERT, UPDATE, Reconciled, Step, entry_table, flags, has_expired, is_set
from ebbtide.model.sequences import UNKNOWN
from ebbtide.operators.selection import SELECTED_COLUMNS
from ebbtide.operators.sequence.choose import Rows
from ebbtide.operators.sequence.fill import Filled
from ebbtide.operators.sequence.links import NO_LINK, KeptRow, Link
from ebbtide.operators.sequence.rank import Ranked
from ebbtide.operators.sequence.stamps import renewed_by_event_time, stamps
from ebbtide.operators.sequence.tied_rows import is_undecided, lost_rows_are_unknown, others, tied_column, was_undecided
from ebbtide.operators.sequence.ties import digests


def write(
    ranked: Ranked,
    rows: Rows,
    filled: Filled,
    step: Step,
) -> Reconciled:
    """Write the entries of the keys of which the sink must take something, or something new must be remembered.

    Args:
        ranked: The step's events.
        rows: Those that count.
        filled: Each key's row.
        step: The step.
    """
    is_change = filled.winner >= ranked.n_entries
    shows = is_change | filled.is_filled
    is_written = shows | _is_noted(ranked, rows, filled)
    written = filled.only(is_written)
    counts = Counter(filled=int((shows & ~is_change).sum()), pending_key_changes=filled.n_pending)

    winner = written.winner
    key = ranked.key[winner]
    is_delete = ranked.is_delete[winner]
    change = np.where(shows[is_written], _sink_changes(ranked, winner), "")
    stamp = stamps(ranked, rows, winner, step)
    # An entry may have expired as it is written, by an event time long past: the sink takes it, the state does not.
    is_late = has_expired(stamp, ranked.rules.ttl, step) & (is_delete | ranked.rules.expires_live)
    known_columns, n_waiting = _known_columns(ranked, written)
    columns = _user_columns(ranked, written)
    columns |= {
        "_step": np.full(len(winner), step.number),
        "_change": pa.array(change, mask=change == ""),
        "_removed": is_late,
        "_stamp_ms": stamp,
        "_changed_by": _orders(ranked).take(pa.array(written.changed_by)),
        "_sequence": _stored_sequences(ranked, winner),
        "_columns": known_columns,
        "_base": ranked.scale.take(rows.base[key]),
        "_since": ranked.scale.take(rows.since[key]),
        "_retracted": _retracted(ranked, rows, winner),
        "_tombstone": is_delete,
    }
    columns |= _link_columns(ranked, written)
    columns |= _shown_before(ranked, key)
    tie_columns, n_lost = _tie_columns(ranked, rows, winner)
    columns |= tie_columns
    counts.update(
        inserted=int((change == INSERT).sum()),
        updated=int((change == UPDATE).sum()),
        deleted=int((change == DELETE).sum()),
        late=int(is_late.sum()),
        waiting=n_waiting,
        conflicts=n_lost,
    )
    return Reconciled(entry_table(ranked.rules.schema, columns, len(winner)), counts)


def _is_noted(
    ranked: Ranked,
    rows: Rows,
    filled: Filled,
) -> Mask:
    """Mark the rows that are as they are stored, and about which something must be remembered that the sink does not show."""
    winner = filled.winner
    entries = ranked.entries
    n = ranked.n_entries
    # A late delete below the row, if a column may yet be filled.
    is_newer_base = rows.base[ranked.key[:n]] > ranked.stored.base
    has_new_base = is_newer_base & is_set(entries, "_columns")
    is_conflicting = np.zeros(len(ranked), bool)
    is_conflicting[rows.ties.conflicting] = True
    has_new_conflict = is_conflicting[:n] & ~flags(entries, "_conflict")
    # Marked by event, since a key's entry is noted only where it still is its key's winner.
    is_noted = np.zeros(len(ranked), bool)
    is_noted[:n] = has_new_base | has_new_conflict | renewed_by_event_time(ranked)
    for event, taken_back in rows.ties.taken_back.items():
        if event < n and taken_back != rows.retracted.get(event):
            is_noted[event] = True
    for place, beside in others(ranked, rows, winner).items():
        if any(event >= ranked.n_stored for event in beside):
            is_noted[winner[place]] = True
    for place, link in filled.links.items():
        event = int(winner[place])
        if event < n and link != ranked.stored.links.get(event, NO_LINK):
            is_noted[event] = True
    return is_noted[winner] & (winner < n)


def _sink_changes(ranked: Ranked, winner: Codes) -> NDArray[np.str_]:
    """Return what the sink must do to show each key's row; empty: nothing."""
    is_live_entry = ~ranked.is_delete[: ranked.n_entries]
    is_in_sink = ranked.of_entry(is_live_entry, ranked.key[winner], otherwise=False)
    if_deleted = np.where(is_in_sink, DELETE, "")
    if_row = np.where(is_in_sink, UPDATE, INSERT)
    return np.where(ranked.is_delete[winner], if_deleted, if_row)


def _user_columns(ranked: Ranked, written: Filled) -> dict[str, object]:
    """Take each column's values from where they are; of a deleted row only the key stays."""
    is_delete = ranked.is_delete[written.winner]
    columns: dict[str, object] = {}
    for name in ranked.rules.columns.names:
        source = written.source.get(name, written.winner)
        is_null = source < 0
        if name not in ranked.rules.key:
            is_null = is_null | is_delete
        event_of_value = np.maximum(source, 0)
        columns[name] = ranked.rows[name].take(pa.array(event_of_value, mask=is_null))
    return columns


def _orders(ranked: Ranked) -> pa.ChunkedArray:
    """Return the order of the change that caused each event: an entry's was stored."""
    stored = ranked.entries["_changed_by"]
    return pa.chunked_array([*stored.chunks, *ranked.changes["_order"].chunks], stored.type)


def _stored_sequences(ranked: Ranked, winner: Codes) -> pa.Array:
    """Return `_sequence`: the row's, and the rank of its operation."""
    sequences = ranked.scale.take(ranked.sequence[winner])
    parts = [pc.struct_field(sequences, name) for name in ranked.rules.sequence]
    parts.append(pa.array(ranked.operation[winner].astype(np.int32)))
    return pa.StructArray.from_arrays(parts, fields=list(ranked.rules.schema.field("_sequence").type))


def _known_columns(ranked: Ranked, written: Filled) -> tuple[pa.Array, int]:
    """Build `_columns`, and count the rows that still wait for a value."""
    n = len(written.winner)
    type_ = ranked.rules.schema.field("_columns").type
    if not written.known_at:
        return pa.nulls(n, type_), 0
    # Only exceptions are stored: a value that is as new as its row is not listed.
    names = list(written.known_at)
    known_at = np.stack([written.known_at[name] for name in names], axis=1)
    is_row = ~ranked.is_delete[written.winner]
    is_older = is_row[:, None] & (known_at != ranked.sequence[written.winner][:, None])
    _, column = np.nonzero(is_older)  # row after row
    lengths = is_older.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    is_null = np.append(lengths == 0, False)
    waits = (is_older & (known_at == UNKNOWN)).any(axis=1)
    columns = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32(), mask=is_null),
        pa.array(names).take(pa.array(column)),
        ranked.scale.take(known_at[is_older]),
    )
    return columns.cast(type_), int(waits.sum())


def _retracted(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> pa.Array:
    """Give each row the digests of the contents that were taken back at its sequence.

    They are known where contents were compared, or stored. Of a lone retraction that shows its key the digest is made here.
    """
    type_ = ranked.rules.schema.field("_retracted").type
    is_retraction = ranked.is_retraction
    if not (is_retraction.any() or rows.retracted):
        return pa.nulls(len(winner), type_)
    taken_back = {**rows.retracted, **rows.ties.taken_back}
    lists = [taken_back.get(event) for event in winner.tolist()]
    alone = [place for place in np.flatnonzero(is_retraction[winner]).tolist() if lists[place] is None]
    contents = ranked.rows.take(pa.array(winner[alone]))
    for place, digest in zip(alone, digests(contents).tolist(), strict=True):
        lists[place] = [digest]
    return pa.array(lists, type_)


def _tie_columns(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> tuple[dict[str, object], int]:
    """Build `_conflict` and `_tied`; count the keys without a row of which this step found that one may have come back."""
    undecided = is_undecided(ranked, rows, winner)
    if not undecided.any():
        return {"_conflict": undecided}, 0
    is_gone = undecided & ranked.is_delete[winner]
    n_lost = int((is_gone & ~was_undecided(ranked, winner)).sum())
    beside = others(ranked, rows, winner)
    of_undecided = {place: events for place, events in beside.items() if undecided[place]}
    is_known_gone = is_gone & ~lost_rows_are_unknown(ranked, winner)
    tied = tied_column(ranked, of_undecided, is_known_gone, ranked.rules.schema.field("_tied").type)
    return {"_conflict": undecided, "_tied": tied}, n_lost


def _shown_before(ranked: Ranked, key: Codes) -> dict[str, object]:
    """Hand on what the sink shows of keys, where a transform selects that; see `ebbtide.operators.selection`."""
    if ranked.rules.output is None:
        return {}
    entry = ranked.entry_of[key]
    indices = pa.array(entry, mask=entry < 0)
    return {name: ranked.entries[name].take(indices) for name in SELECTED_COLUMNS}


def _link_columns(ranked: Ranked, written: Filled) -> dict[str, object]:
    """Write links as `_moved_from`, `_kept` and `_kept_before`."""
    if not written.links:
        return {}
    n = len(written.winner)
    key_of = dict(zip(ranked.stored.old_codes.tolist(), range(len(ranked.stored.old_codes)), strict=True))
    moved: list[Any] = [None] * n
    newest: list[Any] = [None] * n
    before: list[Any] = [None] * n
    for place, link in written.links.items():
        moved[place] = _stored_moves(ranked, link, key_of) or None
        kept = [_stored_kept_row(ranked, row) for row in link.kept]
        if kept:
            newest[place], before[place] = kept[-1], kept[:-1] or None
    lists = {"_moved_from": moved, "_kept": newest, "_kept_before": before}
    return {name: pa.array(values, ranked.rules.schema.field(name).type) for name, values in lists.items()}


def _stored_moves(ranked: Ranked, link: Link, key_of: Mapping[int, int]) -> list[dict[str, Any]]:
    moves = []
    for sequence, old_key in link.all_moves:
        key = None if old_key == UNKNOWN else ranked.stored.old_keys[key_of[old_key]].as_py()
        moves.append({"sequence": ranked.scale.sequence(sequence), "key": key})
    return moves


def _stored_kept_row(ranked: Ranked, row: KeptRow) -> dict[str, Any]:
    names = sorted(row.carriers)
    return {
        "sequence": ranked.scale.sequence(row.sequence),
        "until": ranked.scale.sequence(row.until),
        "known": names,
        "row": {name: ranked.rows[name][row.carriers[name]].as_py() for name in names},
        "since": [ranked.scale.sequence(row.since[name]) for name in names],
        "has_left": row.has_left,
        "n_moved": len(row.moves),
        "started": ranked.scale.sequence(row.started),
    }
