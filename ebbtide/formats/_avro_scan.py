"""Scans Avro values into the cells of a form, by a schema made into instructions for one compiled loop.

It does not take values of unusual schemas: other unions than with null, recursive types, arrays and maps in fields that are read. Nor
does it take values that do not fit their schema. Other paths read those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.columns import CompiledLoop
from ebbtide.formats._avro import SCHEMA_FROM, AvroRecords, WriterSchema
from ebbtide.formats._avro_loops import (
    BLOCKS_OP,
    BOOLEAN_OP,
    BYTES_OP,
    DOUBLE_OP,
    END,
    ENUM_OP,
    FIXED_OP,
    FLOAT_OP,
    LONG_OP,
    NEXT_OP,
    NULL_OP,
    RECORD_OP,
    STRING_OP,
    UNION_OP,
    decode,
)
from ebbtide.formats._format import BadRecordError
from ebbtide.formats._forms import ScanForm
from ebbtide.formats._scan import Cells, Fields, Path, Rows, Scanned, bytes_of
from ebbtide.formats._scan_loops import ANY, DEEPEST

_PRIMITIVES = {
    "null": NULL_OP,
    "boolean": BOOLEAN_OP,
    "int": LONG_OP,
    "long": LONG_OP,
    "float": FLOAT_OP,
    "double": DOUBLE_OP,
    "bytes": BYTES_OP,
    "string": STRING_OP,
}
_LONGEST = 20
"""Most digits of a number, and its sign."""


class UnusualSchemaError(Exception):
    """Raised for a schema whose values are left to other paths."""


class AvroScanner:
    """Scans values of one schema.

    Args:
        form: The form of a record.
        schema: The schema.

    Raises:
        UnusualSchemaError: other paths must read its values.
    """

    def __init__(self, form: ScanForm, schema: WriterSchema) -> None:
        self._form = form
        self._named = schema.parsed.named
        self._under_way: set[str] = set()
        self._instructions: list[list[int]] = []
        self._symbols: list[bytes] = []
        self._places: dict[Path, int] = {(): 0}
        waiting: list[tuple[Path, Fields]] = [((), form.fields)]
        for path, own in waiting:
            for name, within in own.items():
                self._places[*path, name] = len(self._places)
                if isinstance(within, Mapping):
                    waiting.append(((*path, name), within))
        self._value(schema.parsed.avro, (), form.fields)
        self._add(END)
        program = np.array(self._instructions, np.int32)
        self._program = tuple(np.ascontiguousarray(column) for column in program.T)
        self._n_longs = sum(op == LONG_OP and field >= 0 for op, field, _, _ in self._instructions)
        self._symbol_ends = np.cumsum([0, *map(len, self._symbols)])

    def scan(self, values: pa.BinaryArray, rows: Rows) -> Scanned:
        """Scan some values of a batch, which have the schema."""
        raw, all_begins, all_ends = bytes_of(values)
        begins, ends = all_begins[rows] + SCHEMA_FROM, all_ends[rows]
        n = len(rows)
        symbols = np.frombuffer(b"".join(self._symbols), np.uint8)
        to = len(raw) + len(symbols)
        # Of a number's bytes each gives at most three digits.
        room = min(3 * len(raw), n * self._n_longs * _LONGEST)
        shape = len(self._places), n
        kinds = np.zeros(shape, np.uint8)
        starts = np.zeros(shape, np.int32)
        stops = np.zeros(shape, np.int32)
        is_taken = np.zeros(n, bool)
        data = np.empty(to + room, np.uint8)
        data[: len(raw)] = raw
        data[len(raw) : to] = symbols
        if len(data) < 2**31:
            loop = CompiledLoop(decode).code
            loop(
                data,
                begins,
                ends,
                *self._program,
                self._symbol_ends + len(raw),
                to,
                np.zeros(DEEPEST, np.int64),
                kinds,
                starts,
                stops,
                is_taken,
            )
        cells = {path: Cells(kinds[at], starts[at], stops[at]) for path, at in self._places.items() if path}
        return Scanned(data, cells, is_taken)

    def _add(self, op: int, path: Path | None = None, number: int = 0) -> int:
        """Add an instruction, and return its index."""
        self._instructions.append([op, -1 if path is None else self._places[path], 0, number])
        return len(self._instructions) - 1

    def _jump(self, index: int, to: int | None = None) -> None:
        """Let an instruction jump. Default: behind the last."""
        self._instructions[index][2] = len(self._instructions) if to is None else to

    def _value(self, avro: Any, path: Path | None, within: Any) -> None:
        """Add the instructions for a value.

        Args:
            avro: Its type.
            path: Its field; None: it is not read.
            within: What the form expects there, see `Fields`.
        """
        if isinstance(avro, list):
            self._union(avro, path, within)
            return
        type_ = avro if isinstance(avro, str) else avro["type"]
        if type_ in ("record", "error"):
            self._record(avro, path, within)
        elif isinstance(type_, list | dict) or type_ in self._named:
            self._value(self._named[type_] if isinstance(type_, str) else type_, path, within)
        elif isinstance(within, Mapping):
            raise UnusualSchemaError
        elif type_ in ("array", "map"):
            self._items(avro, path)
        elif type_ == "enum":
            symbols = [symbol.encode() for symbol in avro["symbols"]]
            index = self._add(ENUM_OP, path, len(self._symbols))
            self._jump(index, len(symbols))
            self._symbols += symbols
        elif type_ == "fixed":
            self._add(FIXED_OP, path, avro["size"])
        elif type_ in _PRIMITIVES:
            self._add(_PRIMITIVES[type_], path)
        else:
            raise UnusualSchemaError

    def _union(self, branches: list[Any], path: Path | None, within: Any) -> None:
        types = [branch for branch in branches if branch != "null"]
        if len(branches) != 2 or len(types) != 1:
            raise UnusualSchemaError
        index = self._add(UNION_OP, path, branches.index("null"))
        self._value(types[0], path, within)
        self._jump(index)

    def _record(self, avro: Any, path: Path | None, within: Any) -> None:
        name = avro["name"]
        if name in self._under_way or (path is not None and not isinstance(within, Mapping)):
            raise UnusualSchemaError
        self._under_way.add(name)
        self._add(RECORD_OP, path)
        for field in avro["fields"]:
            field_name = field["name"]
            if path is not None and field_name in within:
                self._value(field["type"], (*path, field_name), within[field_name])
            elif path in self._form.exact and not self._is_of_event(field_name):
                raise UnusualSchemaError
            else:
                self._value(field["type"], None, ANY)
        self._under_way.discard(name)

    def _items(self, avro: Any, path: Path | None) -> None:
        if path is not None:
            raise UnusualSchemaError
        blocks = self._add(BLOCKS_OP)
        if avro["type"] == "map":
            self._add(STRING_OP)
        self._value(avro.get("items", avro.get("values")), None, ANY)
        end = self._add(NEXT_OP)
        self._jump(end, blocks)
        self._jump(blocks)

    def _is_of_event(self, name: str) -> bool:
        """Return whether a row may also have a field, see `ScanForm`."""
        return any(
            name.startswith(known.removesuffix("*")) if known.endswith("*") else name == known
            for known in self._form.event_fields
        )


def rows_by_schema(records: AvroRecords, values: pa.BinaryArray) -> list[tuple[WriterSchema, NDArray[np.int64]]]:
    """Return the schemas of some values that the registry has, with the indices of their values."""
    data, begins, ends = bytes_of(values)
    rows = np.flatnonzero(ends - begins >= SCHEMA_FROM)
    heads = data[begins[rows, None] + np.arange(SCHEMA_FROM)].astype(np.int64)
    ids = heads @ np.array([2**32, 2**24, 2**16, 2**8, 1])  # another first byte than 0 makes another number
    found = []
    for id_ in np.unique(ids).tolist():
        own = rows[ids == id_]
        try:
            found.append((records.schema_of(values[int(own[0])].as_py()), own))
        except BadRecordError:
            continue
    return found
