"""Rows that break a rule as JSON values, the same for each engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ebbtide.columns import json_text

ROWS_AS_TEXT = ("_decided", "_shown")
"""Columns of samples that hold a row, which is shown as JSON."""


def sample_of(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as JSON values, nulls left out.

    Example:
        >>> sample_of(pa.table({"id": [1], "at": [None], "_shown": [{"id": 1, "v": None}]}))
        [{'id': 1, '_shown': '{"id":1,"v":null}'}]
    """
    sample = []
    for row in rows.to_pylist():
        values = {}
        for column in rows.schema:
            name = column.name
            value = row[name]
            if value is None:
                continue
            write = json_text if name in ROWS_AS_TEXT else _value
            values[name] = write(value, column.type)
        sample.append(values)
    return sample


def _value(value: Any, type_: pa.DataType) -> Any:
    """Return a value as a JSON value; for a struct, the fields that are not null."""
    if isinstance(value, Mapping):
        fields = {name: each for name, each in value.items() if each is not None}
        return {name: _value(each, type_.field(name).type) for name, each in fields.items()}
    return json.loads(json_text(value, type_))
