"""CREATE MATERIALIZED VIEW: a query over tables becomes a pipeline, a `defs.yaml`. Spark analyses the query without reading rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from ebbtide import MaterializedView
from ebbtide.ddl import ddl_of, is_exact
from ebbtide.delta import Log
from ebbtide.errors import ConfigError, SqlError, ViewQueryError
from ebbtide.runtime import Plan, ViewLineage, view_source
from ebbtide.sessions import spark_schema
from ebbtide.sql._catalog import (
    PIPELINE,
    Catalog,
    Entry,
    Filled,
    existing_kind,
    filled,
    queryable,
    remove_definition,
    write_pipeline,
    written,
)
from ebbtide.sql._options import explained, nested, refuse_unfit, texts
from ebbtide.sql._references import find_references
from ebbtide.sql._statements import CreateView, IfThere, ObjectKind
from ebbtide.sql._tokens import Statement
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


VIEW = "ebbtide.dagster.MaterializedView"
"""`type` in the file of a view."""
DROP_WAITS_S = 5.0
"""Time after the last heartbeat of a run on another machine until a view can be dropped."""


@dataclass(frozen=True)
class PlannedView:
    """The pipeline of a CREATE MATERIALIZED VIEW.

    Args:
        attributes: Attributes of the pipeline.
        analysis: Columns, key and lineage of the query.
    """

    attributes: dict[str, Any]
    analysis: ViewLineage

    @property
    def name(self) -> str:
        """Name of the view."""
        return str(self.attributes["name"])

    def text(self) -> str:
        """Return the definition, and for each input the rows that a change of it recomputes."""
        lines = []
        for table in sorted(self.analysis.tables):
            columns = self.analysis.common_columns([table])
            recomputed = "all rows: no column shows which it touches"
            if columns:
                recomputed = f"the rows of the same {', '.join(columns)}"
            lines.append(f"a change of {table} computes {recomputed}")
        return written(self.attributes) + "\n".join(lines)


def plan_view(
    catalog: Catalog,
    asked: CreateView,
    spark: Callable[[], SparkSession],
) -> PlannedView | None:
    """Return the view of a statement; None if it exists and is kept. Writes nothing.

    Args:
        catalog: Catalog in use.
        asked: The statement.
        spark: Returns a Spark session; called only if no check without Spark refuses the statement.

    Raises:
        SqlError: the query cannot be kept as a view.
    """
    entries = catalog.entries()
    name = asked.name.lower()
    existing = entries.get(name)
    kind = existing_kind(entries, name, ObjectKind.MATERIALIZED_VIEW.lower(), asked.if_there)
    if kind is not None and asked.if_there is IfThere.KEEP:
        return None
    refuse_unfit(asked.options, "view")
    tables = _tables(entries, asked.query)
    _refuse_cycle(entries, name, list(tables))
    analysis = _analysed(spark(), asked.query, tables)
    inputs = {name: tables[name] for name in sorted(analysis.tables)}
    attributes = _attributes(asked, analysis, _key(asked, analysis), inputs)
    try:
        view = MaterializedView.model_validate(attributes)
    except (ValidationError, ConfigError) as error:
        raise explained(error, asked.options) from error
    if isinstance(existing, Filled):
        _refuse_other_columns(catalog, existing, view)
    return PlannedView(attributes, analysis)


def write_view(catalog: Catalog, planned: PlannedView) -> Path:
    """Write a view's definition; return its folder."""
    existing = catalog.pipelines().get(planned.name)
    folder = existing.location if existing else None
    return write_pipeline(catalog, planned.attributes, VIEW, folder)


def drop_view(catalog: Catalog, entry: Filled) -> None:
    """Drop a view and delete its tables, which can be computed again.

    Raises:
        EbbtideError: the view is being run.
    """
    plan = Plan.under(catalog.root, entry.spec)
    if Log(plan.ledger.location).is_there():
        with plan.ledger.lease(DROP_WAITS_S):
            pass  # raises if a run has the lease
    Location(plan.root).delete()
    remove_definition(entry.location / PIPELINE)


def users_of(entries: Mapping[str, Entry], name: str) -> list[str]:
    """Return the views that read a table."""
    return [view for view, inputs in _inputs_of_views(entries).items() if name in inputs]


def _inputs_of_views(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    inputs = {}
    for name, entry in entries.items():
        if isinstance(entry, Filled) and entry.spec.is_view:
            inputs[name] = cast("MaterializedView", entry.spec).inputs
    return inputs


def _tables(entries: Mapping[str, Entry], query: Statement) -> dict[str, Filled]:
    """Return the tables that a query names."""
    names = queryable(entries)
    found = find_references(query, names).references
    tables = {}
    for reference in sorted(found, key=lambda reference: reference.view):
        if reference.part is not None or reference.pin is not None:
            raise SqlError.of(
                f"A view cannot read '{reference.view}'.",
                allowed="tables as they are, without a part, a version or a step",
            )
        tables[reference.table] = filled(entries, reference.table)
    if not tables:
        allowed = [name for name in names if isinstance(entries[name], Filled)]
        raise SqlError.of(
            f"The query at {query.place} reads no table of a pipeline.",
            allowed=", ".join(allowed) or "none: there is none yet",
            next_step="SHOW TABLES lists them.",
        )
    return tables


def _refuse_cycle(entries: Mapping[str, Entry], name: str, inputs: list[str]) -> None:
    """Refuse a view that reads itself, directly or through other views."""
    # Depth first from the inputs; a path ends at a table that is not a view, or is already on the path.
    inputs_of = _inputs_of_views(entries)
    paths = [[table] for table in inputs]
    while paths:
        path = paths.pop()
        last = path[-1]
        if last == name:
            circle = [name, *path]
            raise SqlError.of(
                f"The view '{name}' would read itself.",
                got=" of ".join(reversed(circle)),
                allowed="no circle",
            )
        following = [table for table in inputs_of.get(last, []) if table not in path]
        paths += [[*path, table] for table in following]


def _analysed(
    spark: SparkSession,
    query: Statement,
    tables: Mapping[str, Filled],
) -> ViewLineage:
    schemas = {}
    keys = {}
    for name, entry in tables.items():
        schemas[name] = spark_schema(entry.spec.sink_table.columns, nullable=True)
        keys[name] = entry.spec.sink_key
    try:
        return view_source().analyse(spark, query.text, schemas, keys)
    except ViewQueryError as error:
        raise SqlError(f"{error} The query begins at {query.place}.") from error


def _key(asked: CreateView, analysis: ViewLineage) -> list[str]:
    names = analysis.columns.names
    key = list(asked.key) or analysis.key
    if key is None:
        raise SqlError.of(
            f"The query at {asked.query.place} does not show which columns identify a row.",
            allowed="GROUP BY or DISTINCT; keys of tables that all are selected",
            next_step=f"Declare it: CREATE MATERIALIZED VIEW {asked.name} (PRIMARY KEY (..)) AS ..",
        )
    strangers = [name for name in key if name not in names]
    if strangers:
        raise SqlError.of(
            f"The key of '{asked.name}' has columns that the query lacks.",
            got=", ".join(strangers),
            allowed=", ".join(names),
        )
    inexact = [name for name in key if not is_exact(analysis.columns.field(name).type)]
    if inexact:
        raise SqlError.of(
            f"The key of '{asked.name}' has columns whose values are not exact.",
            got=", ".join(inexact),
            allowed="columns without FLOAT, DOUBLE, ARRAY, STRUCT; a CAST to DECIMAL",
        )
    return key


def _attributes(
    asked: CreateView,
    analysis: ViewLineage,
    key: list[str],
    inputs: Mapping[str, Filled],
) -> dict[str, Any]:
    fields = [field.with_nullable(field.name not in key) for field in analysis.columns]
    personal = {name: {"personal": True} for name in analysis.columns.names if _is_personal(name, analysis, inputs)}
    own = {
        "name": asked.name.lower(),
        "description": asked.comment,
        "query": asked.query.text,
        "inputs": list(inputs),
        "schema": ddl_of(fields),
        "key": key,
        "refresh": refresh_of(asked.refresh),
    }
    given = nested(texts(asked.options))
    columns = {**personal, **given.pop("columns", {})}
    attributes = {name: value for name, value in own.items() if value}
    return {**attributes, **({"columns": columns} if columns else {}), **given}


def _is_personal(name: str, analysis: ViewLineage, inputs: Mapping[str, Filled]) -> bool:
    """Return whether a column is derived from a personal one."""
    origins = analysis.origins(name)
    return any(column in inputs[table].spec.personal for table, column in origins)


def refresh_of(text: str) -> str | dict[str, str]:
    """Return the interval of REFRESH as a value of the spec.

    Example:
        >>> refresh_of("ON CHANGE"), refresh_of("5m")
        ('on_change', {'every': '5m'})
    """
    is_word = text in ("ON CHANGE", "MANUAL")
    return text.lower().replace(" ", "_") if is_word else {"every": text}


def _refuse_other_columns(
    catalog: Catalog,
    existing: Filled,
    view: MaterializedView,
) -> None:
    """Refuse to replace a view that has rows by a view with other columns or another key."""
    plan = Plan.under(catalog.root, existing.spec)
    if not Log(plan.at("state")).is_there():
        return
    stored = existing.spec.identity
    different = [name for name, value in view.identity.items() if stored.get(name) != value]
    if different:
        raise SqlError.of(
            f"The view '{view.name}' has rows with another {', '.join(different)}.",
            got=ddl_of(view.table.columns),
            allowed=ddl_of(existing.spec.table.columns),
            next_step=f"DROP MATERIALIZED VIEW {view.name}, then create it.",
        )
