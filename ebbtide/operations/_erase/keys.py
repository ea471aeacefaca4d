"""The keys that a user asks to erase: from a file, or from rows that fulfil a condition."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.errors import ConfigError
from ebbtide.formats import BadRecordError, Coding, parse_exactly
from ebbtide.lines import lines_of
from ebbtide.operations._erase.selecting import keys_where
from ebbtide.runtime import ErasureKey
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.runtime import Plan

ALLOWED = "JSON lines, each with the columns of the key, or CSV whose header names them"
_Line = tuple[int, dict[str, Any]]
"""Number of a line, from 1, and its values by column."""


def asked_keys(executor: Executor, plan: Plan, file: str | None, where: str | None) -> pa.Table:
    """Return the requested keys, with the sink's key columns.

    Args:
        executor: Evaluates a condition.
        file: Location of a file of keys.
        where: A condition on rows.

    Raises:
        ConfigError: both or none are given, the file does not exist or has a line that is not a key, or the condition
            is not usable.
    """
    if (file is None) == (where is None):
        raise ConfigError.of(
            "The keys to erase are not clear.",
            got="--keys and --where" if file else "neither --keys nor --where",
            allowed="one of them",
        )
    key = ErasureKey.of(plan)
    if file is not None:
        return _of_file(file, key.columns)
    return keys_where(executor, key, where or "")


def _of_file(file: str, key: pa.Schema) -> pa.Table:
    text = _text_of(file)
    is_json = text.lstrip().startswith("{")
    found = _json_lines(file, text) if is_json else _csv_lines(file, text, key.names)
    lines = list(found)
    needed = ", ".join(key.names)
    columns = []
    for field in key:
        values = []
        for number, line in lines:
            if field.name not in line:
                raise _bad_line(file, number, f"no column '{field.name}'", needed)
            values.append(line[field.name])
        column = _typed(file, lines, values, field, is_text=not is_json)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=key)


def _text_of(file: str) -> str:
    raw = Location(file).read_bytes()
    if raw is None:
        raise ConfigError.of(f"The file of keys '{file}' does not exist.", allowed=ALLOWED)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError.of(
            f"The file of keys '{file}' is not UTF-8.",
            got=str(error.reason),
            allowed=ALLOWED,
        ) from error


def _json_lines(file: str, text: str) -> Iterator[_Line]:
    for number, line in enumerate(lines_of(text), start=1):
        if not line.strip():
            continue
        try:
            yield number, parse_exactly(line)
        except BadRecordError as error:
            raise _bad_line(file, number, error.masked, ALLOWED) from error


def _csv_lines(file: str, text: str, names: Sequence[str]) -> Iterator[_Line]:
    reader = csv.reader(io.StringIO(text), strict=True)
    first = next(reader, [])
    header = [name.strip() for name in first]
    if not set(names) <= set(header):
        key = ", ".join(names)
        raise _bad_line(file, 1, f"a header that lacks columns of the key ({key})", ALLOWED)
    n_columns = len(header)
    try:
        for row in reader:
            if not row:
                continue
            if len(row) != n_columns:
                got = f"{len(row)} values"
                raise _bad_line(file, reader.line_num, got, f"{n_columns}, as in the header")
            values = dict(zip(header, row, strict=True))
            yield reader.line_num, values
    except csv.Error as error:
        raise _bad_line(file, reader.line_num, str(error), ALLOWED) from error


def _typed(file: str, lines: Sequence[_Line], values: list[Any], field: pa.Field, *, is_text: bool) -> pa.Array:
    """Convert a column of the key to its type.

    Raises:
        ConfigError: a value does not fit; the error names its line, but not the value, which may be personal.
    """
    given = values
    if is_text:
        given = [_of_text(value, field.type) for value in values]
    misfits = [index for index, value in enumerate(given) if value is None]
    column = None
    if not misfits:
        column, misfits = Coding().convert(given, field.type)
    if misfits or column is None:
        first = misfits[0]
        number, _ = lines[first]
        got = f"a value of column '{field.name}' that does not fit"
        raise _bad_line(file, number, got, str(field.type))
    return column


def _of_text(text: str, type_: pa.DataType) -> Any:
    """Convert a CSV value to JSON; None if it does not have the type."""
    types = pa.types
    is_quoted = types.is_string(type_) or types.is_temporal(type_) or types.is_binary(type_)
    if is_quoted:
        return text
    value = text.strip() or "null"
    try:
        parsed = parse_exactly(f'{{"value": {value}}}')
    except BadRecordError:
        return None
    return parsed["value"]


def _bad_line(file: str, number: int, got: str, allowed: str) -> ConfigError:
    return ConfigError.of(
        f"Line {number} of the file of keys '{file}' cannot be used.",
        got=got,
        allowed=allowed,
        next_step="Nothing was changed. Correct the line, and run it again.",
    )
