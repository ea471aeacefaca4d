"""Drops the local copies of data files that hold erased rows; see `ebbtide.delta.key_index`.

The name of a copy begins with its table's. One of an earlier release names no table: it is known by its columns and rows. One that cannot be read may
hold any row, and goes too: a copy is made again where it is needed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.delta import copy_files
from ebbtide.delta.erasing import Found
from ebbtide.delta.key_index import close_deleted_copies, default_folder
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.erased import ErasedKeys
from ebbtide.runtime.erasing import KeyNames, RowsOfKeys, fields
from ebbtide.storage.paths import is_ours

if TYPE_CHECKING:
    from ebbtide.runtime.plan import Plan


DASHES_BEFORE = 1
"""Dashes in the name of a copy of an earlier release, which names no table."""


def drop_copies(plan: Plan, erased: ErasedKeys) -> Found:
    """Delete the copies on this host that hold erased rows.

    Args:
        plan: The pipeline.
        erased: The keys.
    """
    names = KeyNames.of(plan)
    ways = [
        RowsOfKeys(erased, fields(plan.operator.schema, names.state)),
        RowsOfKeys(erased, fields(plan.spec.sink_table.columns, names.sink)),
    ]
    own = tuple(copy_files.prefix_of(plan.at(name)) for name in ("state", *BESIDE_STATE))
    total = Found()
    for folder in sorted({default_folder(), copy_files.own_folder()}):
        if not (folder.is_dir() and is_ours(folder)):
            continue
        for path in sorted(folder.iterdir()):
            if not (path.name.startswith(own) or path.name.count("-") == DASHES_BEFORE):
                continue
            n_rows = _erased_rows(path, ways)
            if n_rows is None or n_rows:
                with contextlib.suppress(OSError):
                    size = path.stat().st_size
                    path.unlink()
                    total += Found(n_rows or 0, 1, size)
    close_deleted_copies()
    return total


def _erased_rows(path: Path, ways: list[RowsOfKeys]) -> int | None:
    """Count the erased rows of a copy; None if it cannot be read."""
    if path.suffix != ".arrow":
        return None  # unfinished: its writer makes it again, or is dead
    try:
        content = copy_files.whole_content(path)
        if content is None:
            return None
        file = pa.ipc.open_file(content)
        rows = file.read_all()
    except (OSError, pa.ArrowException):
        return None
    n_rows = 0
    for way in ways:
        names = way.columns.names
        if all(name in rows.column_names and rows[name].type == way.columns.field(name).type for name in names):
            n_rows = max(n_rows, int(way.marks(rows.select(names)).sum()))
    return n_rows
