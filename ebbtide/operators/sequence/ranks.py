"""The sequences that a step meets, as ranks: integers that compare as the sequences do.

Sequences stand in entries, in changes, and inside both: where a value was last known, where a row got its key. All are ranked
together, so that any two of them compare (`ebbtide.model.sequences.rank_sequences`). `UNKNOWN` is below every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.codes import Codes
from ebbtide.model.sequences import rank_sequences, without_op


@dataclass(frozen=True)
class StoredLinks:
    """What entries and changes hold of changed keys, as lists whose items stand behind one another.

    Args:
        moved: (entries,) `_moved_from`.
        kept: The rows that are kept: (entries,) `_kept`, behind them the items of `_kept_before`.
        kept_before: (entries,) `_kept_before`.
        changes: (changes,) `_moved_from`.
        row: (usable entries,) where each stands among these entries.
        moved_ranks: Rank of the sequence of each item of `moved`, then of `changes`.
        kept_ranks: The same of `kept`; `UNKNOWN` where there is none.
        kept_until: Rank of the sequence up to which each of `kept` had the key.
        kept_since: Ranks since when the values of each of `kept` are known, in the order of their names.
        kept_started: Rank of the sequence since when each of `kept` had the key; `UNKNOWN` where that is not known.
        old_keys: The old key of each item of `moved`, then of `changes`; null where the row is cut off from it.
    """

    moved: pa.ListArray
    kept: pa.StructArray
    kept_before: pa.ListArray
    changes: pa.ListArray
    row: Codes
    moved_ranks: list[int]
    kept_ranks: list[int]
    kept_until: list[int]
    kept_since: list[list[int]]
    kept_started: list[int]
    old_keys: pa.StructArray

    def kept_of(self, row: int) -> list[int]:
        """Return which of `kept` an entry has, the oldest first."""
        n_entries = len(self.moved)
        earlier = [n_entries + item for item in items_of(self.kept_before, row)]
        newest = [row] if self.kept[row].is_valid else []
        return [*earlier, *newest]


@dataclass(frozen=True)
class StepRanks:
    """All sequences of a step as ranks.

    Args:
        floor: Rank of the floor; `UNKNOWN` if there is none.
        usable: (n,) indices of the entries that are not below the floor.
        entries: (n,) ranks of their sequences.
        changes: (changes,) ranks of the changes' sequences.
        base: (n,) ranks of the newest deletes below these entries' rows.
        since: (n,) ranks of the sequences since when these rows have their keys.
        known_since: Entry to column to the rank since when its value is known, where that is not the entry's own.
        links: What entries and changes hold of changed keys.
        sequences: The sequence of each rank.
    """

    floor: int
    usable: Codes
    entries: Codes
    changes: Codes
    base: Codes
    since: Codes
    known_since: dict[int, dict[str, int]]
    links: StoredLinks
    sequences: pa.StructArray


def rank_step(
    state: pa.Table,
    changes: pa.Table,
    type_: pa.StructType,
    floor: tuple[int, ...] | None,
) -> StepRanks:
    """Rank every sequence of a step.

    Args:
        state: One entry per key.
        changes: The step's.
        type_: The struct that holds a sequence.
        floor: The sequence below which all is dead; None: there is none.
    """
    known = in_one_piece(state["_columns"])
    moved = in_one_piece(state["_moved_from"])
    kept_before = in_one_piece(state["_kept_before"])
    kept = pa.concat_arrays([in_one_piece(state["_kept"]), kept_before.values])
    kept_since = pc.struct_field(kept, "since")
    key_changes = in_one_piece(changes["_moved_from"])
    stored_sequences = in_one_piece(state["_sequence"])
    sequences_met = {
        "floor": _floor_array(floor, type_),
        "entries": without_op(stored_sequences, type_),
        "changes": in_one_piece(changes["_sequence"]),
        "base": in_one_piece(state["_base"]),
        "since": in_one_piece(state["_since"]),
        "known": known.items,
        "moved": pc.struct_field(moved.values, "sequence"),
        "key_changes": pc.struct_field(key_changes.values, "sequence"),
        "kept": pc.struct_field(kept, "sequence"),
        "kept_until": pc.struct_field(kept, "until"),
        "kept_since": kept_since.values,
        "kept_started": pc.struct_field(kept, "started"),
    }
    rank_arrays, sequences = rank_sequences(sequences_met.values())
    ranks = dict(zip(sequences_met, rank_arrays, strict=True))
    [floor_rank] = ranks["floor"].tolist()
    usable = np.flatnonzero(ranks["entries"] >= floor_rank)
    old_keys = [
        pc.struct_field(moved.values, "key"),
        pc.struct_field(key_changes.values, "key"),
    ]
    links = StoredLinks(
        moved=moved,
        kept=kept,
        kept_before=kept_before,
        changes=key_changes,
        row=usable,
        moved_ranks=[*ranks["moved"].tolist(), *ranks["key_changes"].tolist()],
        kept_ranks=ranks["kept"].tolist(),
        kept_until=ranks["kept_until"].tolist(),
        kept_since=_kept_since(kept, ranks["kept"].tolist(), kept_since, ranks["kept_since"].tolist()),
        kept_started=ranks["kept_started"].tolist(),
        old_keys=pa.concat_arrays(old_keys),
    )
    return StepRanks(
        floor=floor_rank,
        usable=usable,
        entries=ranks["entries"][usable],
        changes=ranks["changes"],
        base=ranks["base"][usable],
        since=ranks["since"][usable],
        known_since=_known_since(known, ranks["known"].tolist(), usable),
        links=links,
        sequences=sequences,
    )


def _floor_array(floor: tuple[int, ...] | None, type_: pa.StructType) -> pa.StructArray:
    """Return the floor as an array of one sequence, null if there is none."""
    if not floor:
        return pa.nulls(1, type_)
    names = [field.name for field in type_]
    parts = zip(names, floor, strict=True)
    sequence = dict(parts)
    return pa.array([sequence], type_)


def _kept_since(
    kept: pa.StructArray,
    own_ranks: list[int],
    since: pa.ListArray,
    ranks: list[int],
) -> list[list[int]]:
    """Return the ranks since when the values of kept rows are known; of older entries, which do not tell, the row's own."""
    since_of = []
    names_of = pc.struct_field(kept, "known").to_pylist()
    for row, names in enumerate(names_of):
        items = items_of(since, row)
        own_rank = own_ranks[row]
        known = [ranks[item] for item in items] if since[row].is_valid else [own_rank] * len(names or ())
        since_of.append(known)
    return since_of


def items_of(lists: pa.ListArray, row: int) -> range:
    """Return where the items of one list stand among the items of all."""
    first = lists.offsets[row]
    end = lists.offsets[row + 1]
    return range(first.as_py(), end.as_py())


def _known_since(
    columns: pa.MapArray,
    ranks: list[int],
    usable: Codes,
) -> dict[int, dict[str, int]]:
    """Map entry to column to the rank since when its value is known, `UNKNOWN` if it never was.

    Args:
        columns: The entries' `_columns`.
        ranks: Of all their sequences.
        usable: Which entries count, in their new order.
    """
    names = columns.keys.to_pylist()
    offsets = columns.offsets.to_numpy()
    is_partly_known = columns.is_valid().to_numpy(zero_copy_only=False)
    known_since: dict[int, dict[str, int]] = {}
    partly_known = np.flatnonzero(is_partly_known[usable])
    for entry in partly_known.tolist():
        row = usable[entry]
        items = slice(offsets[row], offsets[row + 1])
        rank_of = zip(names[items], ranks[items], strict=True)
        known_since[entry] = dict(rank_of)
    return known_since


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array whose nested values start at 0."""
    return column.combine_chunks()
