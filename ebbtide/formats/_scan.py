"""Scans JSON into columns, by one compiled loop over the bytes of a batch, without an object per record.

The scan takes only records of a known form: nested objects whose known fields hold scalars, or any JSON. Lists and objects in the
latter are scanned in turn. It does not take unusual records, even if they are valid: an unknown field in a row, a repeated
field, a name with an escaped letter, a list instead of a scalar.
Nor does it take text that is not JSON. Other paths read those records. For the records it takes, it agrees with every JSON
parser.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import from_json

from ebbtide.columns import CompiledLoop, Mask
from ebbtide.formats._scan_loops import (
    ANY,
    BYTES,
    DEEPEST,
    DOUBLE,
    ESCAPED,
    EXACT,
    FALSE,
    FLOAT,
    INTEGER,
    LIST,
    NULL,
    NUMBER,
    OBJECT,
    SCALAR,
    TEXT,
    TRUE,
    byte,
    elements,
    exceeds,
    gather,
    integers,
    scan,
)

Rows = NDArray[np.int64]
Fields = Mapping[str, Any]
"""Name of a field to the fields of its object; None: it holds a scalar; `ANY`: any JSON."""
Path = tuple[str, ...]
"""A field's path of names from the record; the empty path is the record."""


_MOST_UNSCALED_BYTES = 15
"""Most bytes of a whole number that always has at most 38 digits."""


@dataclass(frozen=True)
class Cells:
    """One field of some records.

    Args:
        kind: (n,) its content, see `ebbtide.formats._scan_loops`.
        start: (n,) offset in the bytes at which a text or number begins.
        stop: (n,) offset at which it ends.
    """

    kind: NDArray[np.uint8]
    start: NDArray[np.int32]
    stop: NDArray[np.int32]

    def has(self, *kinds: int) -> Mask:
        """Mark the cells of some kinds."""
        is_any = np.zeros(len(self.kind), bool)
        for kind in kinds:  # a few comparisons of bytes, where `isin` sorts
            is_any |= self.kind == kind
        return is_any

    def take(self, rows: Rows) -> Cells:
        """Return the cells of some records."""
        return Cells(
            self.kind[rows],
            self.start[rows],
            self.stop[rows],
        )

    def but(self, is_other: Mask, other: Cells) -> Cells:
        """Return these cells, replaced by another field's for some records."""
        return Cells(
            np.where(is_other, other.kind, self.kind),
            np.where(is_other, other.start, self.start),
            np.where(is_other, other.stop, self.stop),
        )

    def filled(self, is_filled: Mask, kind: int) -> Cells:
        """Return these cells with another kind for some."""
        filling = np.uint8(kind)
        kinds = np.where(is_filled, filling, self.kind)
        return Cells(kinds, self.start, self.stop)


@dataclass(frozen=True)
class Elements:
    """The elements of the lists or objects of one field.

    Args:
        cells: (m,) the elements of all, one after another.
        offsets: (n + 1,) the first element of each, and the end of the last.
        names: (m,) names of the elements of objects.
    """

    cells: Cells
    offsets: NDArray[np.int32]
    names: Cells

    def owners(self, are_elements: Mask) -> Mask:
        """Mark the (n,) lists or objects that have any of some elements."""
        is_owner = np.zeros(len(self.offsets) - 1, bool)
        indices = np.flatnonzero(are_elements)
        is_owner[np.searchsorted(self.offsets, indices, side="right") - 1] = True
        return is_owner


@dataclass(frozen=True)
class Scanned:
    """Scanned records.

    Args:
        data: The bytes of all records.
        cells: Their cells by field.
        is_taken: (n,) the record has the form.
    """

    data: NDArray[np.uint8]
    cells: Mapping[Path, Cells]
    is_taken: Mask

    def take(self, rows: Rows) -> Scanned:
        """Return some records."""
        cells = {name: own.take(rows) for name, own in self.cells.items()}
        is_taken = self.is_taken[rows]
        return Scanned(self.data, cells, is_taken)

    def texts(self, cells: Cells) -> pa.StringArray:
        """Return (n,) texts, and numbers as written; null for other values."""
        n = len(cells.kind)
        offsets = np.zeros(n + 1, np.int32)
        lengths = cells.stop - cells.start
        most_bytes = lengths.sum(dtype=np.int64)
        out = np.empty(most_bytes, np.uint8)
        loop = CompiledLoop(gather, (byte,)).code
        n_bytes = loop(
            self.data,
            cells.kind,
            cells.start,
            cells.stop,
            offsets,
            out,
        )
        is_valid = cells.has(TEXT, ESCAPED, INTEGER, NUMBER)
        _, validity = pa.array(is_valid).buffers()
        return pa.StringArray.from_buffers(
            n,
            pa.py_buffer(offsets),
            pa.py_buffer(out[:n_bytes]),
            validity,
        )

    def integers(self, cells: Cells) -> pa.Int64Array:
        """Return (n,) integers; null for other values."""
        values = np.zeros(len(cells.kind), np.int64)
        loop = CompiledLoop(integers, (byte,)).code
        loop(
            self.data,
            cells.kind,
            cells.start,
            cells.stop,
            values,
        )
        is_valid = cells.has(INTEGER)
        return pa.array(values, mask=~is_valid)

    def are_same(self, cells: Cells, other: Cells) -> Mask:
        """Mark the records whose two cells are the same text or number, in the same notation."""
        are_same: Mask = cells.kind == other.kind
        return are_same & marked(pc.equal(self.texts(cells), self.texts(other)))

    def doubles(self, cells: Cells) -> NDArray[np.float64]:
        """Return (n,) binary numbers; 0 for other values."""
        values = np.zeros(len(cells.kind))
        for kind, type_ in ((FLOAT, np.dtype("<f4")), (DOUBLE, np.dtype("<f8"))):
            rows = np.flatnonzero(cells.kind == kind)
            places = cells.start[rows, None] + np.arange(type_.itemsize)
            values[rows] = self.data[places].view(type_)[:, 0]
        return values

    def unscaled(self, cells: Cells, scale: int) -> tuple[pa.Decimal128Array, Mask]:
        """Read bytes as whole numbers in two's complement, the highest byte first.

        Args:
            cells: (n,) cells.
            scale: The scale of all, 0 to 38.

        Returns:
            (n,) the decimals, null for other values, and a mask of bytes that are none or too many.
        """
        is_bytes = cells.has(BYTES)
        lengths = cells.stop - cells.start
        is_bad = is_bytes & ((lengths < 1) | (lengths > _MOST_UNSCALED_BYTES))
        rows = np.flatnonzero(is_bytes & ~is_bad)
        words = np.zeros((len(lengths), 16), np.uint8)
        is_negative = self.data[cells.start[rows]] >= 128
        for place in range(16):  # from the lowest byte
            at = cells.stop[rows] - 1 - place
            is_there = at >= cells.start[rows]
            words[rows, place] = np.where(is_there, self.data[np.maximum(at, 0)], is_negative * np.uint8(255))
        _, validity = pa.array(is_bytes & ~is_bad).buffers()
        type_ = pa.decimal128(38, scale)
        return pa.Array.from_buffers(type_, len(words), [validity, pa.py_buffer(words)]), is_bad

    def written(self, cells: Cells) -> pa.StringArray:
        """Return (n,) lists and objects as JSON; null for other values."""
        kinds = np.where(cells.has(LIST, OBJECT), np.uint8(TEXT), np.uint8(NULL))
        return self.texts(Cells(kinds, cells.start, cells.stop))

    def raw(self, cells: Cells) -> pa.BinaryArray:
        """Return (n,) bytes; null for other values."""
        kinds = np.where(cells.kind == BYTES, np.uint8(TEXT), np.uint8(NULL))
        return self.texts(Cells(kinds, cells.start, cells.stop)).cast(pa.binary())

    def values(self, cells: Cells) -> list[Any]:
        """Return (n,) JSON values; None for numbers that are no integers."""
        is_text = cells.has(TEXT, ESCAPED)
        values: list[Any] = self.texts(cells.filled(~is_text, NULL)).to_pylist()
        for row in np.flatnonzero(cells.has(INTEGER, LIST, OBJECT)).tolist():
            values[row] = from_json(self.data[cells.start[row] : cells.stop[row]].tobytes(), allow_inf_nan=False)
        for row in np.flatnonzero(cells.has(TRUE, FALSE)).tolist():
            values[row] = bool(cells.kind[row] == TRUE)
        return values

    def elements(self, cells: Cells) -> Elements:
        """Return the elements of lists, or of objects; other cells have none."""
        offsets = np.zeros(len(cells.kind) + 1, np.int32)
        lengths = cells.stop - cells.start
        most = int(lengths.sum(dtype=np.int64)) // 2
        name_starts, name_stops, starts, stops = (np.zeros(most, np.int32) for _ in range(4))
        kinds = np.zeros(most, np.uint8)
        loop = CompiledLoop(elements, (byte, exceeds)).code
        n = loop(
            self.data,
            cells.kind,
            cells.start,
            cells.stop,
            offsets,
            name_starts,
            name_stops,
            kinds,
            starts,
            stops,
        )
        of_names = Cells(np.full(n, TEXT, np.uint8), name_starts[:n], name_stops[:n])
        return Elements(Cells(kinds[:n], starts[:n], stops[:n]), offsets, of_names)


def bytes_of(values: pa.BinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
    """Return the bytes of all values, and where each begins and ends."""
    _, offset_buffer, data_buffer = values.buffers()
    all_offsets = np.frombuffer(offset_buffer, np.int32)
    offsets = all_offsets[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    return data, offsets[:-1], offsets[1:]


def marked(values: pa.BooleanArray) -> Mask:
    """Return a mask in numpy; null is false."""
    filled = values.fill_null(False)
    mask: Mask = filled.to_numpy(zero_copy_only=False)
    return mask


class Scanner:
    """Scans records of one form.

    Args:
        fields: The record's fields.
        exact: The objects that may have no other fields.
        event_fields: Names of further fields that they may have; a name that ends in `*` is a prefix.
    """

    def __init__(
        self,
        fields: Fields,
        exact: Collection[Path],
        event_fields: Sequence[str] = (),
    ) -> None:
        self._places: dict[Path, int] = {}
        names = b""
        name_ends = [0]
        child_node: list[int] = []
        first_child: list[int] = []
        is_exact: list[int] = []
        # Breadth first: the fields of an object are adjacent, and a field's object is the next unassigned one.
        waiting: list[tuple[Path, Fields]] = [((), fields)]
        for path, own in waiting:
            first_child.append(len(child_node))
            is_exact.append(EXACT if path in exact else 0)
            for name, within in own.items():
                whole = (*path, name)
                self._places[whole] = len(child_node)
                names += name.encode()
                name_ends.append(len(names))
                if within is None or within == ANY:
                    child_node.append(SCALAR if within is None else ANY)
                else:
                    child_node.append(len(waiting))
                    waiting.append((whole, within))
        # One more object, without known fields: any object in an ignored field.
        n_fields = len(child_node)
        first_child += [n_fields, n_fields]
        is_exact.append(0)
        self._form = (
            np.frombuffer(names, np.uint8),
            np.array(name_ends),
            np.array(child_node),
            np.array(first_child),
            np.array(is_exact),
            *_beginnings(event_fields),
        )

    def scan(self, values: pa.BinaryArray, rows: Rows | None = None) -> Scanned:
        """Scan records.

        Args:
            values: (n,) their bytes, UTF-8; nulls are not taken.
            rows: (m,) indices of those to scan. Default: all.
        """
        data, begins, ends = bytes_of(values)
        if rows is not None and len(rows) < len(values):
            begins, ends = begins[rows], ends[rows]
        return self.scan_within(data, begins, ends)

    def scan_within(self, data: NDArray[np.uint8], begins: NDArray[np.int32], ends: NDArray[np.int32]) -> Scanned:
        """Scan records within some bytes.

        Args:
            data: The bytes.
            begins: (n,) where each record begins.
            ends: (n,) where it ends.
        """
        n = len(begins)
        shape = len(self._places), n
        kinds = np.zeros(shape, np.uint8)
        starts = np.zeros(shape, np.int32)
        stops = np.zeros(shape, np.int32)
        is_taken = np.zeros(n, bool)
        loop = CompiledLoop(scan, (byte, exceeds)).code
        loop(
            data,
            begins,
            ends,
            *self._form,
            np.zeros(DEEPEST, np.int64),
            kinds,
            starts,
            stops,
            is_taken,
        )
        cells = {}
        for path, place in self._places.items():
            cells[path] = Cells(
                kinds[place],
                starts[place],
                stops[place],
            )
        return Scanned(data, cells, is_taken)


def _beginnings(names: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of name prefixes in JSON (a whole name includes its closing quote), and their offsets."""
    encoded = [name.removesuffix("*") if name.endswith("*") else f'{name}"' for name in names]
    written = [name.encode() for name in encoded]
    ends = np.cumsum([0, *map(len, written)])
    return np.frombuffer(b"".join(written), np.uint8), ends


def load_loops() -> None:
    """Load the compiled loops into this process by scanning a record."""
    scanner = Scanner({"a": ANY}, ())
    record = pa.array([b'{"a": [1]}'])
    scanned = scanner.scan(record)
    for cells in scanned.cells.values():
        scanned.texts(cells)
        scanned.integers(cells)
        scanned.elements(cells)
