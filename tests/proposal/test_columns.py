"""Types of columns by their values."""

import json
import re
from typing import NamedTuple

import pytest
from local.support import UNAVAILABLE, envelope

from ebbtide.proposal import Proposal, Sample


class Proposed(NamedTuple):
    """What is proposed for a column; its unit, if it is another one than microseconds."""

    type: str | None
    unit: str | None
    note: str


def proposed(name, *values, schema=None):
    """Propose a column for its values; beside it is the key `k`."""
    rows = [{"k": number} | ({} if value is ... else {name: value}) for number, value in enumerate(values)]
    events = [envelope("c", number, after=row) for number, row in enumerate(rows)]
    if schema is not None:
        events = [{"schema": schema, "payload": event} for event in events]
    sample = Sample.take([json.dumps(event).encode() for event in events], 1000, topic=None, table=None)
    found = Proposal.of(sample, key=["k"])
    column = re.search(
        rf"^\s*`?{name}`? (.+?)(?: NOT NULL)?(?: DEFAULT .+?)?,?$", found.attributes["schema"], re.MULTILINE
    )
    note = next((note.partition(": ")[2] for note in found.notes if note.startswith(f"{name}: ")), "")
    return Proposed(column and column[1], found.attributes["format"].get("time_units", {}).get(name), note)


@pytest.mark.parametrize(
    ("name", "values", "type_"),
    [
        ("vip", [True, None, False], "BOOLEAN"),
        ("id", [1, -7], "BIGINT"),
        ("id", [2**63], "DECIMAL(38,0)"),
        ("score", [1, 2.5], "DOUBLE"),
        ("day", ["2026-01-31"], "DATE"),
        ("placed", ["2026-01-31T10:00:00.123Z", "2026-01-31T10:00:00+02:00"], "TIMESTAMP"),
        ("placed", ["2026-01-31T10:00:00"], "TIMESTAMP_NTZ"),
        ("placed", ["2026-01-31T10:00:00", "soon"], "STRING"),
        ("price", ["1.50", "-20.00"], "DECIMAL(38,2)"),
        ("version", ["1.5", "1.25"], "STRING"),
        ("phone", ["0049"], "STRING"),
        ("notes", [UNAVAILABLE, "x"], "STRING"),
        ("tags", [["a"], []], "ARRAY<STRING>"),
        (
            "place",
            [{"lat": 1.5, "my name": "x"}, {"lat": 2, "my name": None}],
            "STRUCT<lat: DOUBLE, `my name`: STRING>",
        ),
        ("mixed", ["a", 1], None),
        ("mixed", [{"a": 1}, {"a": "x"}], None),
        ("empty", [{}], None),
    ],
)
def test_type_by_values(name, values, type_):
    assert proposed(name, *values).type == type_


@pytest.mark.parametrize(
    ("name", "value", "type_", "unit"),
    [
        ("updated_at", 1_767_226_955_183_000, "TIMESTAMP_NTZ", None),
        ("valid_from", 1_767_226_955_183, "TIMESTAMP_NTZ", "ms"),
        ("created_at", 1_767_226_955_183_000_000, "TIMESTAMP_NTZ", "ns"),
        ("ship_on", 20_500, "DATE", None),
        ("account", 1_767_226_955_183, "BIGINT", None),
        ("ship_on", 1_000_000, "BIGINT", None),
        ("format", 20_500, "BIGINT", None),
    ],
)
def test_integers_are_times_by_name_and_range_only(name, value, type_, unit):
    column = proposed(name, value)
    assert (column.type, column.unit) == (type_, unit)
    assert bool(column.note) == (type_ != "BIGINT")


def test_a_column_that_is_null_everywhere_is_text_and_says_so():
    column = proposed("x", None, None)
    assert column.type == "STRING"
    assert "null in all" in column.note


def test_kinds_of_values_are_named_where_they_differ():
    assert (
        proposed("x", "a", True, 1.5).note == "left out: its values are of several kinds (number, text, true or false)"
    )


def test_the_records_own_schema_goes_first():
    fields = [{"field": "k", "type": "int64"}, {"field": "n", "type": "int32"}]
    schema = {"fields": [{"field": "after", "type": "struct", "fields": fields}]}
    assert proposed("n", 1, ..., schema=schema) == ("INT", None, "")
