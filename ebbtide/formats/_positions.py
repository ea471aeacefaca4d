"""Positions in a source's log: converts fields of a record's envelope to numbers in the log's order.

A format names the fields of its records (`ebbtide.spec._parts.FormatPart.position_field`) and finds their values:
`log_position` in `Format.changes`, `PositionField.scanned` in a scan. Only this module interprets values. Each field becomes
one 64-bit number, or two if it needs more:

| type | values | numbers |
|---|---|---|
| number | an integer from 0 to 2^63 - 1, its digits as text, or below 2^53 a float without a fraction | 1 |
| decimal | an integer from 0 to 10^36 - 1, or its digits as text (Oracle's SCN) | 2 |
| lsn | hexadecimal text with parts of fixed width separated by `:` or `.` (SQL Server, Db2); Postgres' `0/16B3748`; an integer | 2 |
| gtid | text that ends in a number: `uuid:23`, MariaDB's `0-1-23`; only the number counts | 1 |
| binlog_file | text that ends in a point and a number: `binlog.000003` | 1 |
| binlog_position | such a text, a colon and a number: `binlog.000003:154` (Maxwell) | 2 |
| hlc | a hybrid logical clock: nanoseconds, a point and ten digits, `1767225600000000000.0000000002` (CockroachDB's `updated`) | 2 |
| timestamp | ISO 8601 text with a zone or in UTC, from 1970 to 2262, to the nanosecond | 1 |

A snapshot row may lack a field. It then ranks below all changes that have it. Such rows are ordered by their time of reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.columns import Long, Mask
from ebbtide.formats._columns import INEXACT_FROM
from ebbtide.formats._format import BadRecordError, shortened
from ebbtide.formats._forms import LogPosition
from ebbtide.formats._scan import Cells, Scanned, marked
from ebbtide.formats._scan_loops import ABSENT, ESCAPED, INTEGER, NULL, TEXT

PositionType = Literal["number", "decimal", "lsn", "gtid", "binlog_file", "binlog_position", "hlc", "timestamp"]
"""The meaning of a field's value."""
_SPLIT = 10**18
_LOW_BITS = 62
_MOST_HEX_DIGITS = 31
_SHORT_DIGITS = 18
"""Every number with so many decimal digits fits 64 bits."""
_NO_HEX = 255
_HEX_VALUES = np.full(256, _NO_HEX, np.uint8)
"""The value of each character as a hexadecimal digit."""
for _digits in ("0123456789abcdef", "0123456789ABCDEF"):
    _HEX_VALUES[np.frombuffer(_digits.encode(), np.uint8)] = np.arange(16)
_LSN_PARTS = re.compile(r"(?:0x)?([0-9a-fA-F]+(?:[:.][0-9a-fA-F]+)*)")
_POSTGRES_LSN = re.compile(r"([0-9a-fA-F]{1,8})/([0-9a-fA-F]{1,8})")
_ENDS_IN_NUMBER = re.compile(r".*[:-]([0-9]{1,18})")
_FILE = re.compile(r".*\.([0-9]{1,18})", re.DOTALL)
_FILE_AND_PLACE = re.compile(r".*\.([0-9]{1,18}):([0-9]{1,18})", re.DOTALL)
_HYBRID_CLOCK = re.compile(r"([0-9]{1,18}|[1-8][0-9]{18})\.([0-9]{10})")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _number(value: Any) -> tuple[int, ...] | None:
    number = _natural(value, digits=19)
    return None if number is None or number > Long.MAX else (number,)


def _decimal(value: Any) -> tuple[int, ...] | None:
    number = _natural(value, digits=36)
    return None if number is None else divmod(number, _SPLIT)


def _natural(value: Any, digits: int) -> int | None:
    """Return a non-negative integer with a maximum of digits, given as number or text; None for anything else."""
    if isinstance(value, float | Decimal) and 0 <= value < INEXACT_FROM and value == int(value):
        value = int(value)  # as Airbyte and programs in JavaScript write integers
    if type(value) is int:
        return value if 0 <= value < 10**digits else None
    is_text = isinstance(value, str) and value.isascii() and value.isdigit()
    significant = value.lstrip("0") if is_text else ""  # GoldenGate writes 20 digits
    return int(significant or "0") if is_text and len(significant) <= digits else None


def _lsn(value: Any) -> tuple[int, ...] | None:
    number = _lsn_number(value)
    if number is None or number >= 16**_MOST_HEX_DIGITS:
        return None
    return number >> _LOW_BITS, number & (2**_LOW_BITS - 1)


def _lsn_number(value: Any) -> int | None:
    if type(value) is int:
        return value if value >= 0 else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    in_postgres = _POSTGRES_LSN.fullmatch(text)
    if in_postgres:
        segment, offset = in_postgres.groups()
        return int(segment, 16) << 32 | int(offset, 16)
    parts = _LSN_PARTS.fullmatch(text)
    return None if parts is None else int(re.sub("[:.]", "", parts[1]), 16)


def _last_numbers(pattern: re.Pattern[str]) -> Callable[[Any], tuple[int, ...] | None]:
    def read(value: Any) -> tuple[int, ...] | None:
        found = pattern.fullmatch(value) if isinstance(value, str) else None
        return tuple(map(int, found.groups())) if found else None

    return read


def _timestamp(value: Any) -> tuple[int, ...] | None:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if not found:
        return None
    day, time, fraction, zone = found.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{time}{zone or '+00:00'}")
    except ValueError:
        return None
    seconds = round((at - _EPOCH).total_seconds())
    nanoseconds = seconds * 10**9 + int((fraction or "").ljust(9, "0"))
    return (nanoseconds,) if 0 <= nanoseconds <= Long.MAX else None


@dataclass(frozen=True)
class _Reading:
    """The reading of a type's values.

    Args:
        read: Returns a value's numbers; None if it does not have the type.
        n_numbers: Count of the numbers.
        allowed: Allowed values, for messages.
    """

    read: Callable[[Any], tuple[int, ...] | None]
    n_numbers: int
    allowed: str


_READINGS: dict[PositionType, _Reading] = {
    "number": _Reading(_number, 1, "an integer from 0 to 2^63 - 1"),
    "decimal": _Reading(_decimal, 2, "an integer from 0 of at most 36 digits"),
    "lsn": _Reading(_lsn, 2, "hexadecimal text such as 00000027:00000ac0:0002 or 0/16B3748"),
    "gtid": _Reading(_last_numbers(_ENDS_IN_NUMBER), 1, "a text that ends in : or - and a number"),
    "binlog_file": _Reading(_last_numbers(_FILE), 1, "a name that ends in . and a number"),
    "binlog_position": _Reading(_last_numbers(_FILE_AND_PLACE), 2, "a name that ends in ., a number, : and a number"),
    "hlc": _Reading(_last_numbers(_HYBRID_CLOCK), 2, "nanoseconds, a point and ten digits"),
    "timestamp": _Reading(_timestamp, 1, "a time such as 2026-01-31T12:00:00.123456Z, from 1970 to 2262"),
}


@dataclass(frozen=True)
class PositionField:
    """An envelope field that orders changes, alone or with further fields.

    Args:
        path: Path in a record, separated by points: `source.commit_lsn`.
        type: Type of its values.
    """

    path: str
    type: PositionType = "number"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its numbers in a stored sequence, without the prefix `source`.

        Example:
            >>> PositionField("source.commit_lsn", "lsn").columns
            ('_commit_lsn', '_commit_lsn_2')
        """
        name = "_" + re.sub(r"\W", "_", self.path.removeprefix("source."))
        further = range(2, self.n_numbers + 1)
        return (name, *(f"{name}_{number}" for number in further))

    @property
    def n_numbers(self) -> int:
        """Number of its numbers."""
        return _READINGS[self.type].n_numbers

    def read(self, value: Any, label: str | None = None) -> tuple[int, ...]:
        """Return the numbers of a value.

        Args:
            value: The field's JSON value, not null.
            label: Its name in messages. Default: its path.

        Raises:
            BadRecordError: The value is not of the type.

        Example:
            >>> PositionField("source.scn", "decimal").read("18446744073709551616")
            (18, 446744073709551616)
        """
        reading = _READINGS[self.type]
        numbers = reading.read(value)
        if numbers is None:
            raise BadRecordError.of(
                "bad_sequence",
                label or self.path,
                got=shortened(value),
                allowed=reading.allowed,
            )
        return numbers

    def scanned(
        self,
        scanned: Scanned,
        cells: Cells,
        instead: pa.Int64Array,
    ) -> list[pa.Int64Array]:
        """Return the (n,) numbers of scanned values; null: the exact path must read the record.

        Args:
            scanned: The records.
            cells: The field's cells.
            instead: (n,) the first number of records that lack the field; null: the exact path must read such a record.
        """
        is_text = cells.has(TEXT, ESCAPED)
        if self.type == "number" and not is_text.any():
            columns = [scanned.integers(cells)]
            is_negative = pc.less(columns[0], 0)
            if pc.any(is_negative).as_py():
                columns = [pc.if_else(is_negative, None, columns[0])]
        else:
            columns = self._of_texts(scanned, cells, is_text)
        lacks = cells.has(NULL, ABSENT) | is_text & (cells.start == cells.stop)
        if not lacks.any() or instead.null_count == len(instead):
            return columns
        is_lacking = pa.array(lacks)
        first, *rest = columns
        zero = pc.if_else(instead.is_valid(), 0, instead)
        return [pc.if_else(is_lacking, instead, first), *(pc.if_else(is_lacking, zero, column) for column in rest)]

    def _of_texts(self, scanned: Scanned, cells: Cells, is_text: Mask) -> list[pa.Int64Array]:
        is_read = is_text
        if self.type in ("number", "decimal"):  # digits mean the same with and without quotes
            is_read = is_text | cells.has(INTEGER)
        texts = scanned.texts(cells.filled(~is_read, NULL)).dictionary_encode()
        numbers = _read_all(self, texts.dictionary)
        return [column.take(texts.indices) for column in numbers]


def _read_all(field: PositionField, values: pa.StringArray) -> list[pa.Int64Array]:
    """Return the numbers of distinct values; null for a value of another type.

    Nearly all values have the usual form and are read as columns. The rest is read one by one, at 10 to 20 times the cost.
    """
    columns = _read_as_columns(field, values)
    is_left = pa.array(~marked(columns[0].is_valid()))
    left = values.filter(is_left).to_pylist()
    if not left:
        return columns
    read = _READINGS[field.type].read
    nothing = (None,) * field.n_numbers
    rows = [read(value) or nothing for value in left]
    read_here = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    return [pc.replace_with_mask(column, is_left, own) for column, own in zip(columns, read_here, strict=True)]


def _read_as_columns(field: PositionField, values: pa.StringArray) -> list[pa.Int64Array]:
    """Return the numbers of the values in the usual form of a type; null for any other value."""
    columns = None
    if field.type in ("number", "decimal"):
        columns = _of_short_digits(values, field.n_numbers)
    elif field.type == "lsn" and len(values):
        columns = _of_hex_parts(values)
    return columns or [pa.nulls(len(values), pa.int64())] * field.n_numbers


def _of_short_digits(values: pa.StringArray, n_numbers: int) -> list[pa.Int64Array]:
    """Return the numbers of digit texts that fit 64 bits; the number before it is then 0."""
    is_short = pc.and_(pc.ascii_is_decimal(values), pc.less_equal(pc.binary_length(values), _SHORT_DIGITS))
    numbers = pc.if_else(is_short, values, None).cast(pa.int64())
    before = pc.if_else(numbers.is_valid(), 0, numbers)
    return [*[before] * (n_numbers - 1), numbers]


def _of_hex_parts(values: pa.StringArray) -> list[pa.Int64Array] | None:
    """Return the numbers of hexadecimal texts with the form of the first: same length and separators.

    Args:
        values: The texts, at least one.

    Returns:
        The numbers; None if the first text does not have this form.
    """
    first = values[0].as_py()
    if first.startswith("0x") or not _LSN_PARTS.fullmatch(first):
        return None
    n_values, width = len(values), len(first)
    is_as_long = pc.equal(pc.binary_length(values), width)
    texts = pc.if_else(is_as_long, values, first).cast(pa.binary(width))
    _, content = texts.buffers()
    characters = np.frombuffer(content, np.uint8, n_values * width, texts.offset * width).reshape(n_values, width)
    digits = _HEX_VALUES[characters]
    is_digit = digits[0] != _NO_HEX
    if is_digit.sum() > _MOST_HEX_DIGITS:
        return None
    has_digits = ((digits != _NO_HEX) == is_digit).all(axis=1)
    has_separators = (characters[:, ~is_digit] == characters[0, ~is_digit]).all(axis=1)
    is_of_form = has_digits & has_separators & marked(is_as_long)
    # Four bits a digit: the last 16 digits are one word, those before them another. The first number has the bits above the 62nd.
    high, low = (_word(digits[:, is_digit][:, part]) for part in (slice(0, -16), slice(-16, None)))
    numbers = (high << np.uint64(2) | low >> np.uint64(_LOW_BITS), low & np.uint64(2**_LOW_BITS - 1))
    return [pa.array(number.astype(np.int64), mask=~is_of_form) for number in numbers]


def _word(digits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the numbers for rows of at most 16 hexadecimal digits."""
    word = np.zeros(len(digits), np.uint64)
    for digit in digits.T:
        word = word << np.uint64(4) | digit
    return word


def log_position(
    fields: Sequence[PositionField],
    values: Iterable[Any],
    labels: Iterable[str],
    snapshot_ms: int | None,
) -> LogPosition:
    """Return the position of a change: the numbers of all fields; None for a field that a change lacks.

    Args:
        fields: The fields.
        values: Their JSON values; None if the record has none. Flink CDC writes an empty text for a snapshot row.
        labels: Their names in the record, for messages.
        snapshot_ms: Time of reading of a snapshot row, epoch ms; None: it is a change.

    Raises:
        BadRecordError: A value does not have its field's type.
    """
    position: list[int | None] = []
    for field, value, label in zip(fields, values, labels, strict=True):
        if type(value) is int and field.type == "number" and 0 <= value <= Long.MAX:
            position.append(value)  # the common case, without a call
        elif value is not None and not (value == "" and snapshot_ms is not None):
            position += field.read(value, label)
        else:
            position += lacking(field, snapshot_ms)
    return tuple(position)


def lacking(field: PositionField, snapshot_ms: int | None) -> list[int | None]:
    """Return the numbers of a missing field: for a snapshot row below all existing ones, by its time; none for a change."""
    further = field.n_numbers - 1
    if snapshot_ms is None:
        return [None] * (1 + further)
    lowest = Long.MIN + max(snapshot_ms, 0)
    return [lowest, *[0] * further]


def snapshot_numbers(is_snapshot: Mask, event_ms: pa.Int64Array) -> pa.Int64Array:
    """Return (n,) the first number of a field that a snapshot row lacks, as `lacking` does; null for changes."""
    times = event_ms.fill_null(0).to_numpy()
    numbers = Long.MIN + np.maximum(times, 0)
    return pa.array(numbers, mask=~is_snapshot)


def are_known(columns: Sequence[pa.Int64Array]) -> Mask:
    """Mark the records whose numbers are all known."""
    is_known = marked(columns[0].is_valid())
    for column in columns[1:]:
        is_known = is_known & marked(column.is_valid())
    return is_known
