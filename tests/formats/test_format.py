"""A format is a module of its own: the generic decoder takes any, and knows none."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from inputs.lines import staged

import ebbtide.formats
from ebbtide.changelog import RowKind
from ebbtide.formats import BadRecordError, DecodedChange, Decoding, Format

ROOM = Path(ebbtide.formats.__file__).parent
FORMATS = {
    "debezium",
    "debezium_events",
    "debezium_rules",
    "debezium_scan",
    "plain",
    "mapped",
    "connect",
    "connect_scan",
}
OF_CONNECT = {"tombstones"}  # Avro, and keys, are read as what Kafka Connect would have written
GENERIC = sorted(path for path in ROOM.glob("*.py") if path.stem not in FORMATS | OF_CONNECT)


@dataclass(frozen=True)
class Readings:
    """`{"sensor": 1, "value": 2.5}`; a value below 0 is bad."""

    def scanned(self, row):
        return ()

    def changes(self, value: dict, key: str | None, old_key: str | None = None) -> list[DecodedChange]:
        if value["value"] < 0:
            raise BadRecordError("negative", f"value: got {value['value']}; allowed: 0 and more")
        return [DecodedChange(RowKind.INSERT, value, "reading")]


def test_format_of_ones_own_is_decoded_and_its_bad_records_are_named():
    format_: Format = Readings()
    columns = pa.schema([pa.field("sensor", pa.int64(), nullable=False), ("value", pa.float64())])
    decoding = Decoding(columns, ("sensor",), format_)
    lines = [b'{"sensor": 1, "value": 2.5}', b'{"sensor": 2, "value": -1}', b'{"sensor": "x", "value": 1}']
    found = staged(decoding, lines).select(["_kind", "_op", "sensor", "value", "_reason"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("+I", "reading", 1, 2.5, None),
        (None, None, None, None, "negative"),
        (None, None, None, None, "wrong_type"),
    ]


@pytest.mark.parametrize("path", GENERIC, ids=lambda path: path.stem)
def test_module_that_all_formats_share_imports_none_of_them(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {f"ebbtide.formats.{name}" for name in FORMATS}
