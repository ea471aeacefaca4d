"""SHOW, DESCRIBE and completions, from the catalog's files and the logs of tables alone: no JVM."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import yaml
from sqlglot import exp

from ebbtide.errors import EbbtideError, SqlError
from ebbtide.spec import SpecFile
from ebbtide.sql._catalog import Catalog, Declared, DeclaredKind, Entry, Filled, Part, Summary
from ebbtide.sql._reference import KEYWORDS
from ebbtide.sql._results import Completion, CompletionKind, ResultColumn, Row
from ebbtide.sql._settings import SETTINGS
from ebbtide.sql._statements import ObjectKind, Show, Shown

if TYPE_CHECKING:
    import pyarrow as pa

    from ebbtide import MaterializedView
    from ebbtide.runtime import Plan

MOST_STEPS = 1_000
"""Maximum number of steps that SHOW STEPS lists, the newest first."""
Named = TypeVar("Named", Filled, Declared, Summary)
_OF_VIEW = ("name", "description", "query", "inputs", "schema", "key", "refresh")
"""Fields of a view's spec that its statement has outside of WITH."""
_TABLES = (ObjectKind.TABLE, ObjectKind.MATERIALIZED_VIEW)
Listed = tuple[tuple[ResultColumn, ...], list[Row]]
"""Columns and rows."""


def columns(*names: str) -> tuple[ResultColumn, ...]:
    """Return columns by their names; with `name:type`, of a type that is not text."""
    parts = [name.partition(":") for name in names]
    return tuple(ResultColumn(name, type_ or "string") for name, _, type_ in parts)


STEP_COLUMNS = columns(
    "step:bigint",
    "kind",
    "at",
    "records:bigint",
    "quarantined:bigint",
    "state_version:bigint",
)
PIPELINE_COLUMNS = columns(
    "name", "step:bigint", "kind", "at", "records:bigint", "quarantined:bigint", "in_quarantine:bigint"
)
FIELD_COLUMNS = columns("column", "type", "nullable:boolean", "key:boolean", "comment")


def show(catalog: Catalog, asked: Show) -> Listed:
    """List what the catalog holds, or the steps of a pipeline."""
    if asked.what is Shown.STEPS:
        return _steps(catalog, asked)
    names = columns("name", "comment")
    match asked.what:
        case Shown.PIPELINES:
            names = PIPELINE_COLUMNS
            rows = [_pipeline_row(entry, catalog.root) for entry in _fitting(catalog.pipelines(), asked)]
        case Shown.TABLES:
            names = columns("name", "kind", "comment")
            rows = [_table_row(table) for table in _fitting(catalog.summaries(), asked) if table.kind in _TABLES]
        case Shown.SOURCES:
            sources = catalog.declared(DeclaredKind.SOURCE)
            rows = [[source.name, source.comment] for source in _fitting(sources, asked)]
        case Shown.FUNCTIONS:
            names = columns("name", "target", "deterministic:boolean")
            functions = _fitting(catalog.declared(DeclaredKind.FUNCTION), asked)
            rows = [[function.name, function.target, function.deterministic] for function in functions]
        case _:
            raise LookupError("these are listed by the session, which has them")
    return names, rows


def catalogs(known: Mapping[str, Catalog], in_use: str, external: Mapping[str, str], pattern: str | None) -> Listed:
    """List the catalogs that USE takes, then Spark's, by their classes."""
    names = columns("name", "definitions", "root", "in_use:boolean")
    rows: list[Row] = []
    for name, catalog in known.items():
        if fits(name, pattern):
            row = [name, str(catalog.folder), catalog.root, name == in_use]
            rows.append(row)
    rows += [[name, class_, "", False] for name, class_ in external.items() if fits(name, pattern)]
    return names, rows


def _fitting(entries: Mapping[str, Named], asked: Show) -> list[Named]:
    return [entry for name, entry in entries.items() if fits(name, asked.pattern)]


def _table_row(table: Summary) -> Row:
    kind = table.kind.lower()
    return [table.name, kind if table.is_filled else f"{kind}, not filled yet", table.comment]


def _pipeline_row(entry: Filled, root: str) -> Row:
    from ebbtide import status

    found = status(entry.spec, root, asks_source=False)
    found.refuse_unread()
    last = found.last
    return [
        entry.name,
        last.step,
        None if last.kind is None else str(last.kind),
        None if last.now is None else _text(last.now),
        found.read.records,
        found.read.quarantined,
        found.read.in_quarantine,
    ]


def _steps(catalog: Catalog, asked: Show) -> Listed:
    if asked.of is None:
        raise SqlError.of(
            "SHOW STEPS lists the steps of one pipeline.",
            next_step="SHOW STEPS FROM name",
        )
    from ebbtide.runtime import Plan

    entry = catalog.pipeline(asked.of)
    plan = Plan.under(catalog.root, entry.spec)
    return steps(plan)


def steps(plan: Plan) -> Listed:
    """List the newest steps of a pipeline, the newest first."""
    rows: list[Row] = []
    newest = islice(plan.state.steps(), MOST_STEPS)
    for version, facts in newest:
        at = datetime.fromtimestamp(facts.now_ms / 1000, UTC)
        read = facts.read
        row = [facts.step, facts.cause.what, _text(at), read.records, read.quarantined, version]
        rows.append(row)
    return STEP_COLUMNS, rows


def describe(entries: Mapping[str, Entry], name: str) -> Listed | None:
    """Return the columns of a source, a table or a view; None for names that Spark describes, such as `NAME$steps`.

    Raises:
        SqlError: the name is a function's.
    """
    from ebbtide.ddl import type_ddl

    entry = entries.get(name)
    if entry is None:
        return None
    fields, key, comments = _fields(entry)
    rows: list[Row] = []
    for field in fields:
        is_key = field.name in key
        comment = comments.get(field.name, "")
        row = [field.name, type_ddl(field.type), field.nullable, is_key, comment]
        rows.append(row)
    return FIELD_COLUMNS, rows


def describe_function(entries: Mapping[str, Entry], name: str) -> Listed | None:
    """Return what a function was declared with; None for names that Spark describes."""
    entry = entries.get(name)
    if not isinstance(entry, Declared) or entry.kind is not DeclaredKind.FUNCTION:
        return None
    rows: list[Row] = [[field, _flow(value)] for field, value in {"name": name, **entry.document()}.items()]
    return columns("field", "value"), rows


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
    from ebbtide.ddl import parse_ddl

    declared = parse_ddl(entry.columns)
    return declared.columns, entry.key, declared.comments


def show_create(entry: Entry) -> str:
    """Return the statement that declares an entry."""
    if isinstance(entry, Filled):
        from ebbtide.ddl import ddl_of

        spec = entry.spec
        if spec.is_view:
            return _create_view(entry, cast("MaterializedView", spec))
        body = ddl_of(spec.sink_table.columns)
        return _create("TABLE", spec.name, body, spec.sink_key, spec.description, {})
    if entry.kind is DeclaredKind.FUNCTION:
        given = ", ".join(f"{quoted(name)} = {text(_flow(value))}" for name, value in entry.constructor.items())
        constructor = f" WITH ({given})" if given else ""
        declared = " DETERMINISTIC" if entry.deterministic else ""
        return f"CREATE FUNCTION {quoted(entry.name)} AS {text(entry.target)}{constructor}{declared};"
    return _create(
        entry.kind.upper(),
        entry.name,
        entry.columns,
        entry.key,
        entry.comment,
        entry.options,
    )


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    written = str(yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf")))
    return written.removesuffix("...\n").strip()


def _create_view(entry: Filled, view: MaterializedView) -> str:
    from ebbtide.sql._options import flattened

    attributes = SpecFile.read(entry.location).attributes
    further = {name: value for name, value in attributes.items() if name not in _OF_VIEW}
    if isinstance(view.refresh, str):
        refresh = view.refresh.replace("_", " ").upper()
    else:
        refresh = f"EVERY {text(attributes['refresh']['every'])}"
    lines = [
        f"CREATE MATERIALIZED VIEW {quoted(view.name)} (",
        f"  PRIMARY KEY ({', '.join(map(quoted, view.key))})",
        ")",
        *_comment_and_options(view.description, dict(flattened(further))),
        f"REFRESH {refresh}",
        "AS",
        f"{view.query.strip()};",
    ]
    return "\n".join(lines)


def _create(
    what: str,
    name: str,
    body: str,
    key: Sequence[str],
    comment: str,
    options: Mapping[str, str],
) -> str:
    lines = [
        f"CREATE {what} {quoted(name)} (",
        f"  {body.strip()},",
        f"  PRIMARY KEY ({', '.join(map(quoted, key))})",
        ")",
        *_comment_and_options(comment, options),
    ]
    return "\n".join(lines) + ";"


def _comment_and_options(comment: str, options: Mapping[str, str]) -> list[str]:
    lines = []
    if comment:
        lines.append(f"COMMENT {text(comment)}")
    pairs = [f"  {text(option)} = {text(value)}" for option, value in options.items()]
    if pairs:
        lines += ["WITH (", ",\n".join(pairs), ")"]
    return lines


def fits(name: str, pattern: str | None) -> bool:
    """Return whether a name fits a pattern of LIKE: `%` and `*` are any characters, `_` is one; None fits all names."""
    if pattern is None:
        return True
    glob = pattern.replace("%", "*").replace("_", "?")
    return fnmatch.fnmatchcase(name, glob)


def quoted(name: str) -> str:
    """Return a name as SQL, quoted if necessary."""
    is_plain = name.isidentifier() and name.islower()
    escaped = name.replace("`", "``")
    return name if is_plain else f"`{escaped}`"


def text(value: str) -> str:
    """Return a text as a literal of SQL."""
    doubled = value.replace("\\", "\\\\")
    escaped = doubled.replace("'", "\\'")
    return f"'{escaped}'"


def _text(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


_LAST_WORD = re.compile(r"[\w$.-]*$")
_SET = re.compile(r"^\s*(SET|RESET)\s+[\w.-]*$", re.IGNORECASE)
_TABLE_COMES = re.compile(
    r"\b(FROM|JOIN|INTO|TABLE|DESCRIBE|DESC|STEPS\s+IN|VIEW|SOURCE)\s+[\w$]*$",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?:FROM|JOIN)\s+([\w$]+)", re.IGNORECASE)


def completions(catalog: Catalog, text: str, offset: int) -> list[Completion]:
    """Return the completions of the word before an offset, each once, the likeliest first.

    Args:
        catalog: Catalog in use; if it cannot be read, only keywords and functions are offered.
        text: Text that was typed.
        offset: Offset of the cursor.
    """
    before = text[:offset]
    found = _LAST_WORD.search(before)
    word = found[0] if found else ""
    candidates = dict(_candidates(catalog, text, before))
    candidates.pop(word, None)
    start = offset - len(word)
    typed = word.lower()
    fitting = []
    for name, kind in candidates.items():
        if name.lower().startswith(typed):
            fitting.append(Completion(name, start, kind))
    return fitting


def _candidates(
    catalog: Catalog,
    text: str,
    before: str,
) -> Iterator[tuple[str, CompletionKind]]:
    # The order is that of likelihood: columns of the tables that the text names, tables, then keywords and functions, which cannot
    # follow a word such as FROM.
    if _SET.search(before):
        yield from ((name, CompletionKind.SETTING) for name in SETTINGS)
        return
    try:
        entries = catalog.entries()
        columns_named = _columns_of(entries, _NAMED.findall(text))
    except EbbtideError:  # the next statement raises it
        entries, columns_named = {}, []
    yield from ((name, CompletionKind.COLUMN) for name in columns_named)
    for name, entry in entries.items():
        yield name, CompletionKind.TABLE
        if isinstance(entry, Filled):
            yield from ((f"{name}${part}", CompletionKind.TABLE) for part in Part)
    if _TABLE_COMES.search(before):
        return
    yield from ((word, CompletionKind.KEYWORD) for word in KEYWORDS)
    yield from ((name, CompletionKind.FUNCTION) for name in sorted(exp.FUNCTION_BY_NAME))


def _columns_of(entries: Mapping[str, Entry], names: Iterable[str]) -> list[str]:
    """Return the columns of the tables that a text names."""
    found: list[str] = []
    for name in names:
        described = describe(entries, name.lower())
        if described is not None:
            _, rows = described
            found += [str(row[0]) for row in rows]
    return found
