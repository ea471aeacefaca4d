"""Finds entries to delete with all their versions, and counts those that stay.

The newest version of an entry decides. Rows are judged one by one first, from the few columns that this takes, in those
files alone that may have a doomed one; no key is read. A second pass finds the other versions. Among the files of the last fold of
the whole state (the base, see `Stored.base`) no entry has two versions: a row of the base can only have other versions in the files that
were added since. So without such files nothing more is read; else the keys of all files are. Keys meet by their hashes, in parts of
`ROWS_IN_PART` of the added rows, and are then compared themselves.

Memory: a part's rows with their keys, and the columns of one file that are read: both are bound by rows, not by compressed bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.columns import Hashes, Mask, flags, ints, key_hashes, row_codes
from ebbtide.delta import positions_in
from ebbtide.entries import newest
from ebbtide.operations._maintenance.judging import (
    Doom,
    Judged,
    bitmap,
    is_for_driver,
    judge_rows,
    least_stamp,
)
from ebbtide.operators import Operator
from ebbtide.tables import Stored

if TYPE_CHECKING:
    from ebbtide.executors import Executor

ROWS_IN_PART = 2_000_000
"""Rows added since the last fold of the whole state whose keys are held at a time."""


@dataclass(frozen=True)
class Found:
    """The entries of a state, and those to delete.

    Args:
        losses: The rows that each data file loses, by the file's number.
        n_kept: Entries that stay, dropped ones left out.
        oldest_ms: The least stamp among these; None without any.
        n_doomed: Entries that are deleted.
        left_ms: Least stamp of the rows that a file keeps, by its number, if known.
    """

    losses: Mapping[int, BitMap64]
    n_kept: int
    oldest_ms: int | None
    n_doomed: int
    left_ms: Mapping[int, int | None] = field(default_factory=dict)


class _Versions(NamedTuple):
    """Some rows of a data file, with the columns that distinguish the versions of an entry.

    Args:
        number: Number of the file.
        positions: Positions of the rows.
        rows: Their entry keys, `_step`, `_removed` and `_stamp_ms`.
        is_doomed: Those that are doomed, judged one by one.
    """

    number: int
    positions: NDArray[np.int64]
    rows: pa.Table
    is_doomed: Mask


class _OfPart(NamedTuple):
    """The result of one part of the entries.

    Args:
        losses: Number of a data file, and the rows that it loses.
        n_met: Rows of the base that are lost, or have other versions.
        n_kept: Entries that stay, of those that are not only in the base.
        oldest_ms: Least stamp of entries that stay.
        n_doomed: Entries that are deleted.
    """

    losses: list[tuple[int, bytes]]
    n_met: int
    n_kept: int
    oldest_ms: int | None
    n_doomed: int


@dataclass(frozen=True)
class FindVersions:
    """Finds all versions of the doomed entries; runs in workers.

    Args:
        state: The state's data files.
        operator: Returns the operator of the entries.
        doomed: The doomed rows of each file, judged one by one, as a bitmap.
        n_parts: Number of equal ranges of hashes.
    """

    state: Stored
    operator: Callable[[], Operator]
    doomed: Sequence[bytes]
    n_parts: int

    def __call__(self, part: int) -> _OfPart:
        """Find those whose entry's hash is in a part."""
        operator = self.operator()
        added: list[_Versions] = []
        hashes: list[Hashes] = []
        for number in self.state.added:
            versions, own = self._read(number, operator, part)
            added.append(versions)
            hashes.append(own)
        wanted = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]))
        met: list[_Versions] = []
        losses: dict[int, BitMap64] = {}
        stamps_ms: list[int | None] = []
        for number in self.state.base:
            versions, own = self._read(number, operator, part)
            is_met = np.isin(own, wanted)
            # No version of it elsewhere: the row decides for itself.
            is_alone = ~is_met
            is_lost = is_alone & versions.is_doomed
            is_left = is_alone & ~versions.is_doomed
            if is_lost.any():
                lost = versions.positions[is_lost]
                losses[number] = bitmap(lost)
            oldest_ms = least_stamp(versions.rows, is_left)
            stamps_ms.append(oldest_ms)
            met.append(_some(versions, is_met))
        n_alone = sum(map(len, losses.values()))
        n_compared = sum(len(each.positions) for each in met)
        columns = self.state.columns_of(_columns_of_versions(operator))
        together = _together([*added, *met], columns, operator)
        for number, rows in together.losses.items():
            _add_rows(losses, number, rows)
        stamps_ms.append(together.oldest_ms)
        return _OfPart(
            losses=[(number, rows.serialize()) for number, rows in losses.items()],
            n_met=n_alone + n_compared,
            n_kept=together.n_kept,
            oldest_ms=_least(stamps_ms),
            n_doomed=n_alone + together.n_doomed,
        )

    def _read(self, number: int, operator: Operator, part: int) -> tuple[_Versions, Hashes]:
        """Read the versions in a file that are in a part, and their hashes."""
        file = self.state.files[number]
        rows, counts = self.state.scan(file, _columns_of_versions(operator))
        hashes = key_hashes(rows, operator.entry_key)
        doomed = BitMap64.deserialize(self.doomed[number])
        is_doomed = np.zeros(len(rows), dtype=bool)
        is_doomed[positions_in(doomed)] = True
        is_own = counts
        if self.n_parts > 1:
            n_hashes = 2**64
            width = -(-n_hashes // self.n_parts)  # rounded up
            parts = hashes // np.uint64(width)
            is_in_part = parts == np.uint64(part)
            is_own = counts & is_in_part
        positions = np.arange(len(rows))
        versions = _Versions(number, positions, rows, is_doomed)
        return _some(versions, is_own), hashes[is_own]


def _add_rows(losses: dict[int, BitMap64], number: int, rows: BitMap64) -> None:
    """Add rows to those that a file loses."""
    known = losses.get(number, BitMap64())
    losses[number] = known | rows


def find(
    executor: Executor,
    state: Stored,
    operator: Callable[[], Operator],
    doom: Doom | None,
    *,
    max_files: int | None = None,
    judged: Mapping[int, Judged] | None = None,
) -> Found:
    """Find the entries to delete, and count those that stay.

    Args:
        state: All data files of the state.
        operator: Returns the operator of the entries.
        doom: Selects the entries to delete; None: none, they are counted only.
        max_files: The most files whose newest versions are deleted, those with the most first; None: all.
        judged: What `judge_rows` has returned, if it was asked before.
    """
    in_driver = is_for_driver(state)
    if judged is None:
        judged = {} if doom is None else judge_rows(executor, state, operator, doom)
    if max_files is not None:
        judged = _most_doomed(judged, max_files)
    n_base = sum(file.likely_rows for file in state.base.values())
    n_added = sum(file.likely_rows for file in state.added.values() if state.may_have_rows(file))
    if not n_added:
        return _of_base(state, judged, n_base)
    n_parts = -(-n_added // ROWS_IN_PART)  # rounded up
    none = Judged(BitMap64(), None)
    doomed = [judged.get(number, none).doomed.serialize() for number in range(len(state.files))]
    work = FindVersions(state, operator, doomed, n_parts)
    parts = executor.map(work, range(n_parts), is_little=in_driver)
    losses: dict[int, BitMap64] = {}
    for part in parts:
        for number, serialized in part.losses:
            _add_rows(losses, number, BitMap64.deserialize(serialized))
    n_in_base_alone = n_base - sum(part.n_met for part in parts)
    n_kept = sum(part.n_kept for part in parts)
    return Found(
        losses,
        n_kept=n_in_base_alone + n_kept,
        oldest_ms=_least(part.oldest_ms for part in parts),
        n_doomed=sum(part.n_doomed for part in parts),
    )


def _most_doomed(judged: Mapping[int, Judged], n_files: int) -> dict[int, Judged]:
    """Keep only the files with the most doomed rows."""
    most_first = sorted(judged, key=lambda number: len(judged[number].doomed), reverse=True)
    return {number: judged[number] for number in most_first[:n_files]}


def _of_base(state: Stored, judged: Mapping[int, Judged], n_rows: int) -> Found:
    """Return the result if all entries are in the base: each row is a separate entry."""
    losses = {}
    stamps_ms: list[int | None] = []
    for number, file in state.base.items():
        if number not in judged:
            stamps_ms.append(file.least("_stamp_ms"))
            continue
        doomed, oldest_ms = judged[number]
        stamps_ms.append(oldest_ms)
        if doomed:
            losses[number] = doomed
    n_doomed = sum(map(len, losses.values()))
    left_ms = {number: judged[number].oldest_ms for number in losses}
    return Found(losses, n_rows - n_doomed, _least(stamps_ms), n_doomed, left_ms)


class _Together(NamedTuple):
    """The result of versions that are compared with each other; see `Found`."""

    losses: dict[int, BitMap64]
    n_kept: int
    oldest_ms: int | None
    n_doomed: int


def _together(versions: Sequence[_Versions], columns: pa.Schema, operator: Operator) -> _Together:
    """Find the newest version of each entry, and all versions of those whose newest one is doomed."""
    tables = [columns.empty_table()]
    masks = [np.empty(0, dtype=bool)]
    for each in versions:
        tables.append(each.rows)
        masks.append(each.is_doomed)
    rows = pa.concat_tables(tables)
    is_doomed = np.concatenate(masks)
    codes = row_codes(rows, operator.entry_key)
    steps = ints(rows, "_step")
    latest = newest(codes, steps)
    doomed = latest[is_doomed[latest]]
    # Older versions go too: without the newest one, the next older would count again.
    goes = np.isin(codes, codes[doomed])
    losses: dict[int, BitMap64] = {}
    start = 0
    for each in versions:
        end = start + len(each.positions)
        own = each.positions[goes[start:end]]
        start = end
        if len(own):
            losses[each.number] = bitmap(own)
    stays = np.zeros(len(rows), dtype=bool)
    stays[latest] = True
    stays &= ~goes
    stays &= ~flags(rows, "_removed")
    n_kept = int(stays.sum())
    oldest_ms = least_stamp(rows, stays)
    return _Together(losses, n_kept, oldest_ms, len(doomed))


def _columns_of_versions(operator: Operator) -> set[str]:
    return {*operator.entry_key, "_step", "_removed", "_stamp_ms"}


def _some(versions: _Versions, is_own: Mask) -> _Versions:
    number, positions, rows, is_doomed = versions
    own = rows.filter(pa.array(is_own))
    return _Versions(number, positions[is_own], own, is_doomed[is_own])


def _least(stamps_ms: Iterable[int | None]) -> int | None:
    known_ms = [each for each in stamps_ms if each is not None]
    return min(known_ms, default=None)
