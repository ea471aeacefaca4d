"""The transform of an upsert pipeline: a projection and a filter of the source's rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field

from ebbtide import sqltext
from ebbtide.ddl import TableSchema, ddl_of, is_exact, parse_ddl, type_ddl
from ebbtide.errors import ConfigError
from ebbtide.spec._parts import SpecPart, refuse
from ebbtide.spec._row_functions import UnfitFunctionError, UserFunction, digest


class Transform(SpecPart):
    """The sink's rows as a query over the source's rows: `SELECT select FROM source WHERE where`, evaluated by Spark SQL (ANSI, UTC).

    By sequence it is applied to the reconciled row, after the decision: the state keeps the whole source row, and a row
    that no longer fits `where` leaves the sink. In order of arrival it is applied to every change, retractions too, before the
    histories: the state keeps the selected rows. A row whose expression fails is quarantined (`transform_failed`). See
    [transform](transform.md).
    """

    ALLOWED: ClassVar = "a Spark SQL expression over one row: no aggregate, window, subquery, generator, nor a function whose result changes"
    """The expressions that are allowed, in words."""

    schema_: str = Field(
        alias="schema",
        description="The sink's columns as Spark DDL. A value is cast to its column as INSERT casts it; null in a NOT NULL column fails. Required.",
    )
    select: dict[str, str] = Field(
        min_length=1,
        description="Each column of the sink to a Spark SQL expression over the columns of the pipeline's schema. Required.",
    )
    where: str | None = Field(
        default=None,
        description="A condition over the columns of the pipeline's schema; only rows for which it is true are shown. Default: none; all rows.",
    )
    key: list[str] = Field(
        min_length=1,
        description="The sink's primary key. By sequence: the columns that select the pipeline's key; in order of arrival: any with an exact type. Required.",
    )

    functions: dict[str, str] = Field(
        default_factory=dict,
        description="Functions of the project that the expressions call: name to 'module:name', with a declared return type (`def f(v: str) -> str`, or PySpark's udf, pandas_udf, arrow_udf). Listing a function declares that the same arguments always give the same value. Default: none.",
    )

    @cached_property
    def table(self) -> TableSchema:
        """The sink's columns."""
        try:
            return parse_ddl(self.schema_)
        except ConfigError as error:
            raise ValueError(f"transform.schema: {error}") from error

    def refuse_unfit(self, source: TableSchema) -> None:
        """Refuse errors that can be found without Spark.

        Args:
            source: The columns that the expressions may read.

        Raises:
            ValueError: the selected columns differ from the sink's, or an expression does not use only one row.
        """
        self._refuse_columns()
        self._refuse_key()
        for field, text in self.expressions.items():
            _columns_of(field, text, source)
        self._refuse_unfit_functions()

    def _refuse_unfit_functions(self) -> None:
        called: set[str] = set()
        for text in self.expressions.values():
            called |= sqltext.SqlText(text).functions_called(self.functions)
        refuse(
            "transform.functions",
            sorted(self.functions.keys() - called),
            "functions that an expression calls, in lower case",
        )
        for name in self.functions:
            try:
                UserFunction.refuse_name(name)
                function = self.row_function(name)
                function.refuse_unless_of_rows()
            except UnfitFunctionError as error:
                raise ValueError(f"transform.functions.{name}: {error}") from error
            if not function.is_deterministic:
                got = f"{function.target}, which declares that it is not deterministic"
                refuse(f"transform.functions.{name}", [got], "a function whose value depends only on its arguments")

    def row_function(self, name: str) -> UserFunction:
        """Import one of the functions.

        Args:
            name: Its name in expressions.

        Raises:
            UnfitFunctionError: there is none, or nothing says what it returns.
        """
        return UserFunction.load(self.functions[name])

    def _refuse_columns(self) -> None:
        names = self.table.columns.names
        shown = ", ".join(names)
        unknown = [name for name in self.select if name not in names]
        missing = [f"none for {name}" for name in names if name not in self.select]
        defaults = list(self.table.defaults)
        refuse("transform.schema", defaults, "columns without DEFAULT: each is selected")
        refuse("transform.select", unknown, f"columns of transform.schema: {shown}")
        refuse("transform.select", missing, f"an expression for each of: {shown}")

    def _refuse_key(self) -> None:
        columns = self.table.columns
        shown = ", ".join(columns.names)
        unknown = [name for name in self.key if name not in columns.names]
        repeated = [name for name in self.key if self.key.count(name) > 1]
        refuse("transform.key", unknown, f"columns of transform.schema: {shown}")
        refuse("transform.key", repeated, "each column once")
        inexact = []
        for name in self.key:
            type_ = columns.field(name).type
            if not is_exact(type_):
                inexact.append(name)
        refuse("transform.key", inexact, "columns with an exact type: no FLOAT, DOUBLE, ARRAY, MAP, STRUCT")

    def refuse_other_key(self, source: TableSchema, key: list[str]) -> None:
        """Refuse a sink key that is not the source's key, apart from new names.

        Args:
            source: The source's columns.

        Raises:
            ValueError: it is another one.
        """
        names = source.columns.names
        columns = [sqltext.SqlText(self.select[name]).single_column(names) for name in self.key]
        way_out = f"by sequence, the columns that the key ({', '.join(key)}) is selected as, by name alone; another key needs order: arrival"
        is_renamed_at_most = set(columns) == set(key) and len(columns) == len(key)
        if not is_renamed_at_most:
            refuse("transform.key", [self._key_text()], way_out)
        retyped = []
        for name, column in zip(self.key, columns, strict=True):
            own = self.table.columns.field(name).type
            given = source.columns.field(column).type
            if own != given:
                retyped.append(f"{name} {type_ddl(own)} of {column} {type_ddl(given)}")
        refuse("transform.schema", retyped, "the types that the key has")

    def _key_text(self) -> str:
        return ", ".join(f"{name}: {self.select[name]}" for name in self.key)

    @property
    def expressions(self) -> dict[str, str]:
        """Field of the spec to the expression in it."""
        fields = {f"transform.select.{name}": text for name, text in self.select.items()}
        return fields if self.where is None else fields | {"transform.where": self.where}

    def source_keys(self, source: TableSchema) -> dict[str, str]:
        """Return the sink's key columns to their source columns, for a key that passes `refuse_other_key`."""
        names = source.columns.names
        found = {}
        for name in self.key:
            column = sqltext.SqlText(self.select[name]).single_column(names)
            if column is not None:
                found[name] = column
        return found

    def columns_read(self, source: TableSchema) -> list[str]:
        """Return the source's columns that the expressions read, in the source's order."""
        read: set[str] = set()
        for field, text in self.expressions.items():
            read.update(_columns_of(field, text, source))
        return [name for name in source.columns.names if name in read]

    def personal(self, source: TableSchema, personal: frozenset[str]) -> frozenset[str]:
        """Return the sink's columns whose values come from personal ones.

        Args:
            source: The source's columns.
            personal: Names of the personal ones among them.
        """
        sources = self.column_sources(source)
        return frozenset(name for name, read in sources.items() if not personal.isdisjoint(read))

    def column_sources(self, source: TableSchema) -> dict[str, list[str]]:
        """Return the sink's columns to the source columns that they are computed from; without constants."""
        sources = {}
        for name, text in self.select.items():
            read = _columns_of(f"transform.select.{name}", text, source)
            if read:
                sources[name] = read
        return sources

    def copied_columns(self, source: TableSchema) -> frozenset[str]:
        """Return the sink's columns that select a source column unchanged."""
        names = source.columns.names
        return frozenset(
            name for name, text in self.select.items() if sqltext.SqlText(text).single_column(names) is not None
        )

    def filter_columns(self, source: TableSchema) -> list[str]:
        """Return the source's columns that decide which rows are shown."""
        return [] if self.where is None else _columns_of("transform.where", self.where, source)

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that selected rows depend on."""
        selected = {name: self.select[name] for name in self.table.columns.names}
        identity: dict[str, Any] = {
            "schema": ddl_of(self.table.columns),
            "select": selected,
            "where": self.where,
            "key": self.key,
        }
        if self.functions:
            identity["functions"] = {name: [target, digest(target)] for name, target in self.functions.items()}
        return identity


def _columns_of(field: str, text: str, source: TableSchema) -> list[str]:
    names = source.columns.names
    try:
        return sqltext.SqlText(text).columns_read(names)
    except sqltext.UnfitExpressionError as error:
        raise ValueError(
            f"{field}: got {text}: {error}; allowed: {Transform.ALLOWED}; columns: {', '.join(names)}"
        ) from error
