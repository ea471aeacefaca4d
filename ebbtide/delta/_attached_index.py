"""Key indices attached to data files.

| bytes | content |
|---|---|
| 8 a row | hashes, ascending, little-endian |
| 4 a row | the position of each in the file, little-endian; left out where `in_order`: they are 0, 1, 2 and so on |

Their note has the number of `rows`, `in_order`, and the index's identity: see `identity_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ebbtide.columns import Hashes
from ebbtide.delta._file_rows import Positions
from ebbtide.storage import Attached

FORMAT = 1
"""An index of another format is computed."""
Note = dict[str, Any]


def identity_of(columns: pa.Schema, key: Sequence[str], where: tuple[str, str] | None) -> Note:
    """Return the part of a note that identifies an index: its keys, rows and format.

    Args:
        columns: Columns of the rows.
        key: Names of the key's columns.
        where: (column, value) of the rows; None: all.
    """
    types = {}
    for name in key:
        type_ = columns.field(name).type
        types[name] = str(type_)
    return {
        "key_index": FORMAT,
        "key": types,
        "where": list(where or ()),
    }


def attachment(identity: Note, hashes: Hashes, positions: Positions) -> Attached:
    """Return an index in its attached form.

    Args:
        identity: See `identity_of`.
        hashes: (n,) ascending.
        positions: (n,) number of each row in the data file.
    """
    # A file of a fold is in the order of hashes: its positions need not be stored.
    in_order = np.arange(len(positions))
    is_in_order = bool(np.array_equal(positions, in_order))
    content = hashes.astype("<u8").tobytes()
    if not is_in_order:
        content += positions.astype("<u4").tobytes()
    note = {
        **identity,
        "rows": len(hashes),
        "in_order": is_in_order,
    }
    return Attached(note, content)


def index_in(note: Note, content: bytes, identity: Note) -> tuple[Hashes, Positions] | None:
    """Return the hashes and positions of an attached index; None if it is not of the wanted keys and rows.

    Args:
        note: Its note.
        content: Its bytes.
        identity: See `identity_of`.
    """
    is_wanted = identity.items() <= note.items()
    if not is_wanted:
        return None
    n_rows = note["rows"]
    hashes = np.frombuffer(content, "<u8", n_rows)
    if note["in_order"]:
        return hashes, np.arange(n_rows)
    positions = np.frombuffer(content, "<u4", n_rows, offset=hashes.nbytes)
    return hashes, positions
