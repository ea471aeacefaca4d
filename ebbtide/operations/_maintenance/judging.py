"""Judges the rows of a state's data files one by one: which of them are of entries to delete. No key is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.columns import Long, Mask, ints
from ebbtide.delta import DataFile
from ebbtide.operators import Operator
from ebbtide.tables import Stored

if TYPE_CHECKING:
    from ebbtide.executors import Executor

ROWS_IN_DRIVER = 20_000_000
"""Rows up to which the driver reads the few columns itself: for 10 million rows this takes less CPU than starting Spark."""


class Pick(Protocol):
    """Selects entries one by one; picklable, since it is sent to workers."""

    def __call__(self, entries: pa.Table, operator: Operator) -> Mask:
        """Mark the selected ones."""


class Judged(NamedTuple):
    """The rows of a data file, judged one by one.

    Args:
        doomed: Positions of those that are picked.
        oldest_ms: Least stamp of the other entries; None: they have none.
    """

    doomed: BitMap64
    oldest_ms: int | None


def always(_: DataFile) -> bool:
    """Return True: the statistics of no file rule it out."""
    return True


@dataclass(frozen=True)
class Doom:
    """Selects the entries to delete.

    Args:
        pick: Marks them, of all versions in a file: only the newest version of an entry counts.
        columns: Columns of an entry that it reads; None: all.
        may_have: Returns by a file's statistics whether it may have some.
        is_purged: Marks rows that no file may keep, not even hidden by a vector: a file with one is rewritten. It reads `columns`.
        may_purge: Returns by the statistics of a file without a vector whether it may have some of these.
    """

    pick: Pick
    columns: frozenset[str] | None = None
    may_have: Callable[[DataFile], bool] = always
    is_purged: Pick | None = None
    may_purge: Callable[[DataFile], bool] = always


@dataclass(frozen=True)
class JudgeRows:
    """Judges the rows of a data file one by one; runs in workers.

    Args:
        state: The state's data files.
        operator: Returns the operator of the entries.
        pick: Marks the doomed rows.
        names: Columns of an entry that it reads; None: all.
    """

    state: Stored
    operator: Callable[[], Operator]
    pick: Pick
    names: frozenset[str] | None

    def __call__(self, number: int) -> tuple[bytes, int | None]:
        """Return the positions of the doomed rows of a file, as a bitmap, and the least stamp of its other entries."""
        operator = self.operator()
        names = None if self.names is None else self.names | {"_stamp_ms"}
        rows, counts = self.state.scan(self.state.files[number], names)
        is_picked = self.pick(rows, operator)
        is_doomed = counts & is_picked
        is_left = counts & ~is_picked
        oldest_ms = least_stamp(rows, is_left)
        doomed = bitmap(np.flatnonzero(is_doomed))
        return doomed.serialize(), oldest_ms


def is_for_driver(state: Stored) -> bool:
    """Return whether the driver reads a state itself."""
    return state.n_rows <= ROWS_IN_DRIVER


def judge_rows(
    executor: Executor,
    state: Stored,
    operator: Callable[[], Operator],
    doom: Doom,
) -> dict[int, Judged]:
    """Judge the rows of files that may have a doomed one, one by one; return the results by number of the file.

    The newest version of each doomed entry is among these rows; they include rows whose entry has a newer version elsewhere.
    """
    numbers = []
    for number, file in enumerate(state.files):
        if state.may_have_rows(file) and doom.may_have(file):
            numbers.append(number)
    work = JudgeRows(state, operator, doom.pick, doom.columns)
    results = executor.map(work, numbers, is_little=is_for_driver(state))
    judged = {}
    for number, (doomed, oldest_ms) in zip(numbers, results, strict=True):
        judged[number] = Judged(BitMap64.deserialize(doomed), oldest_ms)
    return judged


def least_stamp(rows: pa.Table, marked: Mask) -> int | None:
    """Return the least stamp of the marked rows."""
    stamps_ms = ints(rows, "_stamp_ms", null=Long.MAX)
    least_ms = int(stamps_ms[marked].min(initial=Long.MAX))
    return None if least_ms == Long.MAX else least_ms


def bitmap(positions: NDArray[np.int64]) -> BitMap64:
    """Return positions as a bitmap."""
    return BitMap64(positions.astype(np.uint64))
