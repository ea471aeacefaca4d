"""The SQL that rules are written in, where DuckDB's and Spark's differ: quoting, structs, lists, and rows as texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ebbtide.columns import Long


class Dialect(ABC):
    """Writes the parts of a query that two engines spell differently, and those that several rules share."""

    QUOTE: str

    def name(self, column: str, side: str = "") -> str:
        """Quote a column's name; `side` is a table's alias, or a struct that has the column as a field."""
        quote = self.QUOTE
        escaped = column.replace(quote, quote * 2)
        quoted = f"{quote}{escaped}{quote}"
        return f"{side}.{quoted}" if side else quoted

    def names(self, columns: Iterable[str]) -> str:
        """Quote the names of columns, with commas between them."""
        return ", ".join(map(self.name, columns))

    def string(self, value: str) -> str:
        """Write a text as a literal."""
        escaped = value.replace("'", "''")
        return f"'{escaped}'"

    @abstractmethod
    def struct(self, fields: Mapping[str, str]) -> str:
        """Make a struct of expressions by the names of its fields."""

    @abstractmethod
    def nested_text(self, value: str) -> str:
        """Write a list, a struct or a map as a text: only equal values have equal texts."""

    @abstractmethod
    def keys_of_nulls(self, value: str) -> str:
        """List the keys of a map that have no value."""

    @abstractmethod
    def length(self, value: str) -> str:
        """Count the elements of a list; null of none."""

    def equal(self, left: str, right: str, type_: pa.DataType) -> str:
        """Return the condition that two values of a type are equal; null is a value.

        Like `ebbtide.columns._equality`, all NaN are equal; but unlike in both engines -0.0 is not 0.0.
        """
        if pa.types.is_nested(type_):
            left = self.nested_text(left)
            right = self.nested_text(right)
        elif pa.types.is_floating(type_):
            left = f"CAST({left} AS STRING)"
            right = f"CAST({right} AS STRING)"
        return f"{left} IS NOT DISTINCT FROM {right}"

    def ranks(self, struct: str, fields: Sequence[str]) -> list[str]:
        """Return the fields of a struct of integers to compare by, null as the least."""
        least = f"CAST({Long.MIN} AS BIGINT)"
        ranks = []
        for field in fields:
            value = self.name(field, struct)
            ranks.append(f"coalesce(CAST({value} AS BIGINT), {least})")
        return ranks

    def is_before(self, left: Sequence[str], right: Sequence[str]) -> str:
        """Return the condition that values precede other values; the first difference decides.

        Engines compare structs with nulls differently.
        """
        condition = "false"
        pairs = list(zip(left, right, strict=True))
        # From the last value back: if equal so far, the rest decides.
        for one, other in reversed(pairs):
            is_equal = f"{one} = {other}"
            condition = f"({one} < {other} OR ({is_equal} AND {condition}))"
        return condition


class DuckDbSql(Dialect):
    """DuckDB's SQL."""

    QUOTE = '"'

    def struct(self, fields: Mapping[str, str]) -> str:
        """See `Dialect`."""
        given = [f"{self.name(name)} := {value}" for name, value in fields.items()]
        listed = ", ".join(given)
        return f"struct_pack({listed})"

    def nested_text(self, value: str) -> str:
        """See `Dialect`."""
        return f"CAST(to_json({value}) AS STRING)"

    def keys_of_nulls(self, value: str) -> str:
        """See `Dialect`."""
        nulls = f"list_filter(map_entries({value}), lambda entry: entry.value IS NULL)"
        return f"list_transform({nulls}, lambda entry: entry.key)"

    def length(self, value: str) -> str:
        """See `Dialect`."""
        return f"len({value})"


class SparkSql(Dialect):
    """Spark's SQL."""

    QUOTE = "`"

    def string(self, value: str) -> str:
        """See `Dialect`; a backslash escapes here."""
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"

    def struct(self, fields: Mapping[str, str]) -> str:
        """See `Dialect`."""
        given = [f"{self.string(name)}, {value}" for name, value in fields.items()]
        listed = ", ".join(given)
        return f"named_struct({listed})"

    def nested_text(self, value: str) -> str:
        """See `Dialect`. Times are written to the microsecond: by default Spark cuts them after the millisecond."""
        options = (
            "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', "
            "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
        )
        return f"to_json({value}, {options})"

    def keys_of_nulls(self, value: str) -> str:
        """See `Dialect`."""
        return f"map_keys(map_filter({value}, (k, v) -> v IS NULL))"

    def length(self, value: str) -> str:
        """See `Dialect`."""
        return f"size({value})"
