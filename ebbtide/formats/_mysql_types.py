"""MySQL's types as records name them, `decimal(12,2)`, and the columns that hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ebbtide.formats._format import under_new_names

_TYPE = re.compile(
    r"\s*([a-z ]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)|\(.*\))?\s*(unsigned)?(?:\s+zerofill)?\s*", re.IGNORECASE
)
_TYPES = {
    "tinyint": "SMALLINT",
    "smallint": "INT",
    "mediumint": "INT",
    "int": "BIGINT",
    "integer": "BIGINT",
    "year": "INT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP_NTZ",
    "timestamp": "TIMESTAMP_NTZ",
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "BINARY"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "STRING"),
    **dict.fromkeys(("enum", "set", "json", "time"), "STRING"),
}
"""Column types that also hold the unsigned type; BIGINT and DECIMAL are handled separately."""
_MOST_PRECISE = 38


@dataclass(frozen=True)
class MysqlSchema:
    """The `RecordSchema` of a record that names the MySQL type of each column.

    Args:
        types: Column to type.
    """

    types: Mapping[str, object]

    def type_of(self, column: str) -> str | None:
        """See `RecordSchema`."""
        if column not in self.types:
            return None
        return column_type(str(self.types[column]))

    def reads_wrongly(self, column: str, type_: pa.DataType, *, is_coded: bool) -> bool:
        """See `RecordSchema`: values are text, which columns do not misread."""
        return False

    def has_bytes(self, column: str) -> bool:
        """See `RecordSchema`: values are text."""
        return False

    def described(self, column: str) -> str:
        """See `RecordSchema`."""
        if column not in self.types:
            return ""
        return f"; the record says {self.types[column]}"

    def renamed(self, new_names: Mapping[str, str]) -> MysqlSchema:
        """See `RecordSchema`."""
        return MysqlSchema(under_new_names(self.types, new_names))


def column_type(mysql_type: str) -> str:
    """Return the column type for a MySQL type, as DDL; empty if uncertain.

    Example:
        >>> column_type("decimal(12,2)"), column_type("bigint unsigned"), column_type("VARCHAR(20)"), column_type("point")
        ('DECIMAL(12,2)', 'DECIMAL(20,0)', 'STRING', '')
    """
    found = _TYPE.fullmatch(mysql_type)
    if found is None:
        return ""
    name, precision, scale, unsigned = found.groups()
    name = name.lower().removesuffix(" unsigned")
    is_unsigned = unsigned is not None or "unsigned" in mysql_type.lower()
    if name == "bigint":
        return "DECIMAL(20,0)" if is_unsigned else "BIGINT"
    if name in ("decimal", "numeric"):
        # Without its digits, as TiCDC names it, a decimal's scale is unknown.
        is_known = precision is not None and int(precision) <= _MOST_PRECISE
        return f"DECIMAL({precision},{scale or 0})" if is_known else ""
    return _TYPES.get(name, "")
