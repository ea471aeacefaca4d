"""What SHOW and DESCRIBE tell, from files and logs alone: no JVM."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

import pyarrow as pa

from ebbtide.errors import SqlError
from ebbtide.inspect.status import status
from ebbtide.model.durations import format_duration
from ebbtide.runtime.plan import Plan
from ebbtide.spec.ddl import ddl_of, parse_ddl, type_ddl
from ebbtide.spec.pipeline import Pipeline, read_document
from ebbtide.spec.view import MaterializedView
from ebbtide.sql.catalog import Catalog, DeclaredKind, Entry, Filled
from ebbtide.sql.options import flattened
from ebbtide.sql.results import ResultColumn, Row
from ebbtide.sql.statements import Show, Shown

MOST_STEPS = 1_000
"""Steps that SHOW STEPS lists, the newest first."""
STEP_COLUMNS = (
    ResultColumn("step", "bigint"),
    ResultColumn("kind"),
    ResultColumn("at"),
    ResultColumn("records", "bigint"),
    ResultColumn("quarantined", "bigint"),
    ResultColumn("state_version", "bigint"),
)
PIPELINE_COLUMNS = (
    ResultColumn("name"),
    ResultColumn("step", "bigint"),
    ResultColumn("kind"),
    ResultColumn("at"),
    ResultColumn("records", "bigint"),
    ResultColumn("quarantined", "bigint"),
    ResultColumn("in_quarantine", "bigint"),
)
FIELD_COLUMNS = (
    ResultColumn("column"),
    ResultColumn("type"),
    ResultColumn("nullable", "boolean"),
    ResultColumn("key", "boolean"),
    ResultColumn("comment"),
)

_OF_VIEW = ("name", "description", "query", "inputs", "schema", "key", "refresh")
"""Fields of a view's spec that stand in its statement outside of WITH."""


Listed = tuple[tuple[ResultColumn, ...], list[Row]]
"""Columns and rows."""


def show(catalog: Catalog, asked: Show) -> Listed:
    """List what the catalog holds, or the steps of a pipeline."""
    match asked.what:
        case Shown.STEPS:
            return _steps(catalog, asked)
        case Shown.PIPELINES:
            return _pipelines(catalog, asked.pattern)
        case Shown.TABLES:
            return _tables(catalog, asked.pattern)
        case Shown.SOURCES:
            return _declared(catalog, DeclaredKind.SOURCE, asked.pattern)
        case Shown.FUNCTIONS:
            return _functions(catalog, asked.pattern)
        case Shown.JOBS | Shown.CATALOGS:
            raise LookupError("these are listed by the session, which has them")


def catalogs(known: Mapping[str, Catalog], in_use: str, pattern: str | None) -> Listed:
    """List what USE takes."""
    rows: list[Row] = []
    for name, catalog in known.items():
        if fits(name, pattern):
            row = [name, str(catalog.folder), catalog.root, name == in_use]
            rows.append(row)
    shown = columns("name", "definitions", "root")
    is_in_use = ResultColumn("in_use", "boolean")
    return (*shown, is_in_use), rows


def _tables(catalog: Catalog, pattern: str | None) -> Listed:
    rows: list[Row] = []
    for entry in catalog.entries().values():
        if not fits(entry.name, pattern):
            continue
        if isinstance(entry, Filled):
            kind = "materialized view" if isinstance(entry.spec, MaterializedView) else "table"
            rows.append([entry.name, kind, entry.spec.description])
        elif entry.kind is DeclaredKind.TABLE:
            rows.append([entry.name, "table, not filled yet", entry.comment])
    return columns("name", "kind", "comment"), rows


def _declared(catalog: Catalog, kind: DeclaredKind, pattern: str | None) -> Listed:
    rows: list[Row] = []
    for entry in catalog.declared(kind).values():
        if fits(entry.name, pattern):
            row = [entry.name, entry.comment]
            rows.append(row)
    return columns("name", "comment"), rows


def _functions(catalog: Catalog, pattern: str | None) -> Listed:
    rows: list[Row] = []
    for entry in catalog.declared(DeclaredKind.FUNCTION).values():
        if fits(entry.name, pattern):
            row = [entry.name, entry.target, entry.is_deterministic]
            rows.append(row)
    shown = columns("name", "target")
    is_deterministic = ResultColumn("deterministic", "boolean")
    return (*shown, is_deterministic), rows


def _pipelines(catalog: Catalog, pattern: str | None) -> Listed:
    rows: list[Row] = []
    for name, entry in catalog.pipelines().items():
        if fits(name, pattern):
            rows.append(_pipeline_row(entry, catalog.root))
    return PIPELINE_COLUMNS, rows


def _pipeline_row(entry: Filled, root: str) -> Row:
    last = status(entry.spec, root)
    return [
        entry.name,
        last.step,
        None if last.kind is None else str(last.kind),
        None if last.now is None else _text(last.now),
        last.records,
        last.quarantined,
        last.in_quarantine,
    ]


def _steps(catalog: Catalog, asked: Show) -> Listed:
    if asked.of is None:
        raise SqlError.of("SHOW STEPS lists the steps of one pipeline.", next_step="SHOW STEPS FROM name")
    entry = catalog.pipeline(asked.of)
    return steps(Plan.under(catalog.root, entry.spec))


def steps(plan: Plan) -> Listed:
    """List the newest steps of a pipeline, the newest first."""
    rows: list[Row] = []
    for version, facts in islice(plan.state.steps(), MOST_STEPS):
        at = datetime.fromtimestamp(facts.now_ms / 1000, UTC)
        kind = facts.cause.what
        row = [facts.step, kind, _text(at), facts.read.records, facts.read.quarantined, version]
        rows.append(row)
    return STEP_COLUMNS, rows


def describe(entries: Mapping[str, Entry], name: str) -> Listed | None:
    """Tell the columns of a source, a table or a part of a pipeline (`NAME$steps`); None if that takes Spark.

    Raises:
        SqlError: there is nothing of this name.
    """
    base, _, part = name.partition("$")
    entry = entries.get(base)
    if entry is None or part:
        return None
    fields, key, comments = _fields(entry)
    rows: list[Row] = []
    for field in fields:
        row = [
            field.name,
            type_ddl(field.type),
            field.nullable,
            field.name in key,
            comments.get(field.name, ""),
        ]
        rows.append(row)
    return FIELD_COLUMNS, rows


def _fields(entry: Entry) -> tuple[Iterable[pa.Field], Sequence[str], dict[str, str]]:
    if isinstance(entry, Filled):
        table = entry.spec.sink_table
        return table.columns, entry.spec.sink_key, table.comments
    if entry.kind is DeclaredKind.FUNCTION:
        raise SqlError.of(
            f"'{entry.name}' is a function.",
            got=entry.target,
            allowed="a source, a table, a view",
        )
    table = parse_ddl(entry.columns)
    return table.columns, entry.key, table.comments


def show_create(entry: Entry) -> str:
    """Write the statement that declares something."""
    if isinstance(entry, Filled):
        spec = entry.spec
        return _create_view(entry, spec) if isinstance(spec, MaterializedView) else _create_table(spec)
    if entry.kind is DeclaredKind.FUNCTION:
        declared = " DETERMINISTIC" if entry.is_deterministic else ""
        return f"CREATE FUNCTION {quoted(entry.name)} AS {text(entry.target)}{declared};"
    key = ", ".join(map(quoted, entry.key))
    what = entry.kind.upper()
    return _create(what, entry.name, entry.columns, key, entry.comment, entry.options)


def _create_table(spec: Pipeline) -> str:
    key = ", ".join(map(quoted, spec.sink_key))
    return _create(
        "TABLE",
        spec.name,
        ddl_of(spec.sink_table.columns),
        key,
        spec.description,
        {},
    )


def _create_view(entry: Filled, view: MaterializedView) -> str:
    _, document = read_document(entry.location)
    attributes = document["attributes"].items()
    further = {name: value for name, value in attributes if name not in _OF_VIEW}
    options = dict(flattened(further))
    key = ", ".join(map(quoted, view.key))
    lines = [
        f"CREATE MATERIALIZED VIEW {quoted(view.name)} (",
        f"  PRIMARY KEY ({key})",
        ")",
        *_comment_and_options(view.description, options),
        f"REFRESH {_refresh(view)}",
        "AS",
        f"{view.query.strip()};",
    ]
    return "\n".join(lines)


def _refresh(view: MaterializedView) -> str:
    if isinstance(view.refresh, str):
        return view.refresh.replace("_", " ").upper()
    return f"EVERY {text(format_duration(view.refresh.every))}"


def _create(
    what: str,
    name: str,
    body: str,
    key: str,
    comment: str,
    options: Mapping[str, str],
) -> str:
    lines = [
        f"CREATE {what} {quoted(name)} (",
        f"  {body.strip()},",
        f"  PRIMARY KEY ({key})",
        ")",
    ]
    lines += _comment_and_options(comment, options)
    return "\n".join(lines) + ";"


def _comment_and_options(comment: str, options: Mapping[str, str]) -> list[str]:
    lines = [f"COMMENT {text(comment)}"] if comment else []
    if options:
        pairs = [f"  {text(option)} = {text(value)}" for option, value in options.items()]
        listed = ",\n".join(pairs)
        lines += ["WITH (", listed, ")"]
    return lines


def fits(name: str, pattern: str | None) -> bool:
    """Return whether a name fits what stands after LIKE: `%` any characters, `_` one; `*` as Spark has it."""
    if pattern is None:
        return True
    glob = pattern.replace("%", "*").replace("_", "?")
    return fnmatch.fnmatchcase(name, glob)


def columns(*names: str) -> tuple[ResultColumn, ...]:
    """Return columns of texts."""
    return tuple(map(ResultColumn, names))


def quoted(name: str) -> str:
    """Write a name."""
    is_plain = name.isidentifier() and name.islower()
    escaped = name.replace("`", "``")
    return name if is_plain else f"`{escaped}`"


def text(value: str) -> str:
    """Write a text."""
    doubled = value.replace("\\", "\\\\")
    escaped = doubled.replace("'", "\\'")
    return f"'{escaped}'"


def _text(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"
