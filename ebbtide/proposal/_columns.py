"""Types of columns from their values, with a note if these are ambiguous.

| values in the sample | type |
|---|---|
| as the record's own schema says | that |
| true, false | BOOLEAN |
| integers of 64 bits | BIGINT; a time, if they lie between 2000 and 2100 and the column's name speaks of one |
| other numbers | DOUBLE |
| ISO 8601 text | DATE, TIMESTAMP with a zone, TIMESTAMP_NTZ without |
| numbers as text, all with the same number of digits after the point | DECIMAL |
| other text | STRING; base64 is refused where no one says of what |
| arrays, objects | ARRAY, STRUCT of such types |
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from ebbtide.ddl import as_compared, as_written, is_column_name
from ebbtide.errors import ConfigError
from ebbtide.formats import Coding, DecodedChange, Unavailable, agreed, type_of_value
from ebbtide.spec import Pipeline

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?")
_ZONED_TIME = re.compile(_TIME.pattern + r"(Z|[+-]\d\d:?\d\d)")
_DECIMAL = re.compile(r"-?\d+\.(\d+)")
_HEX = re.compile("([0-9a-f]{2})+|([0-9A-F]{2})+")
"""Hex as connectors write it: letters of one case."""
_SHOWS_BASE64 = re.compile(r".*[=+/].*|(?![a-z]+$|[A-Z][a-z]+$|[A-Z]+$|\d+$).{4}")
"""Base64 by its characters, or as short as most amounts of money and no word and no number."""
_NAMES_A_TIME = re.compile(
    r"(^|_)(at|on|time|timestamp|ts|date|from|until|since|created|updated|modified|deleted)(_|$)",
)
_NAMES_A_DAY = re.compile(r"(^|_)(on|date|day|born|birthday)(_|$)")
_SECONDS = range(946_684_800, 4_102_444_800)
"""From 2000 up to 2100, since 1970."""
_DAYS = range(-36_525, 47_482)
"""From 1870 up to 2100, since 1970."""
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "number",
    float: "number",
    Decimal: "number",
    str: "text",
    list: "array",
    dict: "object",
}
"""Name of each type of values in a note."""
TextEncoding = Literal["hex", "base64", "base64url"]
_OF_TEXTS: tuple[TextEncoding, ...] = ("hex", "base64", "base64url")
_BASE64 = "base64"
"""In the place of the type of a column that holds base64."""
_MOST_DIGITS = 38
"""Greatest precision of a DECIMAL."""
_UNAVAILABLE = Unavailable()
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_UNITS: dict[str, int] = {
    "ms": 1_000,
    "us": 1_000_000,
    "ns": 1_000_000_000,
}
"""Unit to its number in a second."""


@dataclass(frozen=True)
class ProposedColumn:
    """A column as written in a spec.

    Args:
        name: Its name.
        type: As DDL; None if it does not follow from the values.
        is_in_all: Every row has it.
        unit: Of a timestamp of integers.
        note: What the sample leaves open; empty if nothing.
        encoding: How its numbers are coded.
    """

    name: str
    type: str | None
    is_in_all: bool
    unit: str | None = None
    note: str = ""
    encoding: str | None = None


def propose_columns(
    changes: Sequence[DecodedChange],
    given: Mapping[str, str] | None = None,
) -> list[ProposedColumn]:
    """Propose the columns of some changes, in order of appearance.

    Args:
        changes: Those with whole rows.
        given: Types that are known, by column, as DDL.

    Raises:
        ConfigError: Columns hold base64, and nothing says of what.
    """
    known = given or {}
    names: dict[str, None] = {}
    for change in changes:
        row = change.row or {}
        its_names = dict.fromkeys(row)
        names |= its_names
    unusable = _unusable(names)
    proposed = [_proposed(name, changes, known.get(name)) for name in names if name not in unusable]
    proposed += [ProposedColumn(name, None, is_in_all=False, note=note) for name, note in unusable.items()]
    unclear = [f"{column.name} ({column.note})" for column in proposed if column.type == _BASE64]
    if unclear:
        raise ConfigError.of(
            "Columns hold base64, and the records have no schema that says of what.",
            got=", ".join(unclear),
            allowed="the type in the database, by --column: 'total DECIMAL(12,2)' of decimal.handling.mode=precise, as no "
            "record has the scale; 'raw BINARY' of bytes; 'flags BIGINT' of BIT(n); 'code STRING' of text",
            next_step="Or set the connector's decimal.handling.mode=string.",
        )
    return proposed


def _unusable(names: Iterable[str]) -> dict[str, str]:
    """Return the names that no column of a spec can have, to notes that say why."""
    notes = {}
    taken: dict[str, str] = {}
    for name in names:
        compared = as_compared(name)
        if not is_column_name(name):
            notes[name] = "left out: it is not usable as a column's name (docs/explanation/security.md)"
        elif compared in Pipeline.RESERVED_COLUMNS:
            notes[name] = "left out: Ebbtide reserves the name"
        elif compared in taken:
            notes[name] = f"left out: readers of Delta take it for {taken[compared]}, which comes before it"
        else:
            taken[compared] = name
    return notes


def _proposed(name: str, changes: Sequence[DecodedChange], given: str | None) -> ProposedColumn:
    rows = [change.row or {} for change in changes]
    is_in_all = all(name in row for row in rows)
    # What says most goes first: the records' own schema, then the type that a user gives, then the values.
    stated = _stated_types(name, changes)
    if len(stated) == 1:
        [stated_type] = stated
        unit = _stated_unit(name, changes)
        return ProposedColumn(name, stated_type, is_in_all, unit)
    values: list[Any] = [row.get(name) for row in rows]
    sent = [value for value in values if _is_sent(value)]
    if given is not None:
        return _of_type(name, given, sent, is_in_all=is_in_all)
    if sent and all(type(value) is int for value in sent):
        return _of_integers(name, sent, is_in_all=is_in_all)
    type_, note = _by_values(sent)
    return ProposedColumn(name, type_, is_in_all, note=note)


def _of_type(name: str, type_: str, values: Sequence[Any], *, is_in_all: bool) -> ProposedColumn:
    """Propose a column with a known type, and further settings that its values need."""
    if type_.startswith("TIMESTAMP") and values and all(type(value) is int for value in values):
        return ProposedColumn(name, type_, is_in_all, _time_unit(values))
    if type_ == "BINARY":
        return _of_bytes(name, values, is_in_all=is_in_all)
    seen = next(filter(Coding.is_precise, values), None)
    is_decimal = type_.startswith("DECIMAL")
    is_integer = type_ in _INTEGERS
    if seen is None or not (is_decimal or is_integer):
        return ProposedColumn(name, type_, is_in_all)
    encoding = "precise" if is_decimal else "bits"
    note = f"base64 without a schema ({seen!r}): read as {encoding}"
    return ProposedColumn(name, type_, is_in_all, note=note, encoding=encoding)


def _of_bytes(name: str, values: Sequence[Any], *, is_in_all: bool) -> ProposedColumn:
    """Propose a column of bytes with the encoding of its texts, which no record states without a schema."""
    texts = [value for value in values if isinstance(value, str) and value]
    if not texts:
        return ProposedColumn(name, "BINARY", is_in_all)
    # The first that all values fit: base64 of any length has values that hex never has, and hex none that are not base64's letters.
    fitting = [encoding for encoding in _OF_TEXTS if all(_is_in(encoding, text) for text in texts)]
    if not fitting:
        return ProposedColumn(name, "BINARY", is_in_all, note=f"its values are neither base64 nor hex ({texts[0]!r})")
    encoding, *further = fitting
    note = f"{encoding} without a schema ({texts[0]!r}): read as {encoding}"
    if encoding == "hex" and further:
        note += f"; all of the sample is base64, too: 'encodings: {{{name}: base64}}' if the connector's binary.handling.mode says so"
    return ProposedColumn(name, "BINARY", is_in_all, note=note, encoding=encoding)


def _is_in(encoding: TextEncoding, text: str) -> bool:
    if encoding == "hex":
        return _HEX.fullmatch(text) is not None
    try:
        Coding.of(encoding).read_bytes(text)
    except ValueError:
        return False
    return True


def _are_base64(values: Sequence[Any]) -> bool:
    """Return whether values are base64 rather than text, or decimals with their scales; words of four letters are base64 too."""
    if any(isinstance(value, dict) for value in values):
        return all(map(Coding.is_precise, values))
    are_encoded = all(isinstance(value, str) and _is_base64(value) for value in values)
    # One value that no word could be is wanted: `door` and `time` decode as well.
    return are_encoded and any(map(_SHOWS_BASE64.fullmatch, values))


def _is_base64(text: str) -> bool:
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    # Many texts decode: those that no encoder writes, with bits left over in the last letter, do not come back the same.
    return base64.b64encode(raw).decode() == text


def _by_values(values: Sequence[Any]) -> tuple[str | None, str]:
    """Return the type of values other than integers, None if there is none, and a note."""
    if not values:
        return "STRING", "null in all of the sample: STRING until you know better"
    if _are_base64(values):
        return _BASE64, repr(values[0])
    if all(isinstance(value, str) for value in values):
        return _of_texts(values)
    type_ = _type_of(values)
    if type_ is None:
        kinds = _kinds(values)
        return None, f"left out: its values are of several kinds ({kinds})"
    return type_, ""


def _stated_types(name: str, changes: Sequence[DecodedChange]) -> set[str]:
    """Return the types that records' own schemas give a column."""
    stated: set[str] = set()
    for change in changes:
        type_ = change.schema.type_of(name) if change.schema else None
        if type_:  # empty: the schema is uncertain
            stated.add(type_)
    return stated


def _stated_unit(name: str, changes: Sequence[DecodedChange]) -> str | None:
    """Return what records' own schemas say that the integers of a column are; None if they do not agree."""
    units = set()
    for change in changes:
        known = change.units or {}
        unit = known.get(name)
        units.add(unit)
    if len(units) != 1:
        return None
    return units.pop()


def _is_sent(value: Any) -> bool:
    return value is not None and not _UNAVAILABLE.is_mark(value)


def _of_integers(name: str, values: Sequence[int], *, is_in_all: bool) -> ProposedColumn:
    """Propose a time where values and name speak for it: an integer does not say what it counts."""
    if _are_within(values, _DAYS) and _NAMES_A_DAY.search(name):
        note = "guessed by its name and range: days since 1970; BIGINT if it is a number"
        return ProposedColumn(name, "DATE", is_in_all, note=note)
    unit = _time_unit(values)
    if unit is not None and _NAMES_A_TIME.search(name):
        note = f"guessed by its name and range: {unit} since 1970; BIGINT if it is a number"
        return ProposedColumn(name, "TIMESTAMP_NTZ", is_in_all, unit, note)
    types = {type_of_value(value) or "" for value in values}
    type_ = agreed(types)
    if type_ is None:
        note = "some values have more than 64 bits"
        return ProposedColumn(name, "DECIMAL(38,0)", is_in_all, note=note)
    return ProposedColumn(name, type_, is_in_all)


def _time_unit(values: Sequence[int]) -> str | None:
    """Return the unit in which values are times between 2000 and 2100; None if there is none."""
    # No more than one unit fits: a unit is a thousand of the next, and the years' ends lie a factor of four apart.
    for unit, per_second in _UNITS.items():
        seconds = [value // per_second for value in values]
        if _are_within(seconds, _SECONDS):
            return unit
    return None


def _are_within(values: Iterable[int], bounds: range) -> bool:
    return all(value in bounds for value in values)


def _of_texts(values: Sequence[str]) -> tuple[str, str]:
    """Return the type of texts, and a note."""
    if _all_match(values, _DATE):
        return "DATE", ""
    if _all_match(values, _ZONED_TIME):
        return "TIMESTAMP", ""
    if _all_match(values, _TIME):
        return "TIMESTAMP_NTZ", ""
    # Digits after the point of each text, 0 for other texts: if all have one scale above 0, they are amounts.
    matches = [_DECIMAL.fullmatch(value) for value in values]
    scales = {len(match[1]) if match else 0 for match in matches}
    scale = max(scales)
    if len(scales) == 1 and 0 < scale < _MOST_DIGITS:
        note = "guessed: numbers as text; take the precision of the source, or STRING if it is text"
        return f"DECIMAL({_MOST_DIGITS},{scale})", note
    return "STRING", ""


def _all_match(values: Sequence[str], form: re.Pattern[str]) -> bool:
    return all(form.fullmatch(value) for value in values)


def _type_of(values: Sequence[Any]) -> str | None:
    """Return the one type that values have, also of those within arrays and objects; None if there is none."""
    sent = [value for value in values if _is_sent(value)]
    if not sent:
        return "STRING"
    if all(isinstance(value, list) for value in sent):
        return _array_of(sent)
    if all(isinstance(value, dict) for value in sent):
        return _struct_of(sent)
    types = {type_of_value(value) or "" for value in sent}
    return agreed(types)


def _array_of(values: Sequence[list[Any]]) -> str | None:
    elements: list[Any] = []
    for value in values:
        elements += value
    type_ = _type_of(elements)
    if type_ is None:
        return None
    return f"ARRAY<{type_}>"


def _struct_of(values: Sequence[dict[str, Any]]) -> str | None:
    names: dict[str, None] = {}
    for value in values:
        its_names = dict.fromkeys(value)
        names |= its_names
    if len({as_compared(name) for name in names}) < len(names) or not all(map(is_column_name, names)):
        return None
    fields = []
    for name in names:
        of_field = [value.get(name) for value in values]
        type_ = _type_of(of_field)
        if type_ is None:
            return None
        fields.append(f"{as_written(name)}: {type_}")
    if not fields:
        return None
    listed = ", ".join(fields)
    return f"STRUCT<{listed}>"


def _kinds(values: Sequence[Any]) -> str:
    kinds = {_KINDS[type(value)] for value in values}
    return ", ".join(sorted(kinds))
