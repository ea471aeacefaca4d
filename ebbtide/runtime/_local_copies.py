"""Drops the local copies of data files that hold erased rows; see `ebbtide.delta._key_index`.

The name of a copy begins with its table's. One of an earlier release names no table: it is known by its columns and rows. One that cannot be read may
hold any row, and goes too: a copy is made again where it is needed.

An erasure reaches the folder of its process, and the default one. On other hosts, and in other folders, copies are
deleted by generation: each erasure begins another one, and the next process there that runs, changes or checks the
pipeline deletes all copies of an earlier one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ebbtide.delta import Held, LocalCopies
from ebbtide.model import ErasedKeys
from ebbtide.runtime._erasing import ErasureKey
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.runtime._plan import Plan


def drop_copies(plan: Plan, erased: ErasedKeys, generation: str) -> Held:
    """Delete the copies in this process's folders that hold erased rows.

    Args:
        erased: The keys.
        generation: That of the copies from then on.
    """
    ways = [ErasureKey.of(plan).doomed_in(name, erased) for name in ("state", "sink")]
    tables = plan.own_tables
    total = Held()
    for copies in LocalCopies.reached():
        if not (copies.folder.is_dir() and Location(copies.folder).is_ours()):
            continue
        for path in copies.possibly_of(tables):
            n_rows = copies.n_held(path, ways)
            if n_rows is None or n_rows:
                with contextlib.suppress(OSError):
                    size = path.stat().st_size
                    path.unlink()
                    total += Held(n_rows or 0, 1, size)
        for table in tables:
            copies.begin(table, generation)
        copies.close_deleted()
    return total
