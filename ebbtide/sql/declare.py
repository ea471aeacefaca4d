"""CREATE and DROP of sources, tables and functions: checked whole before a file is written; functions imported, and registered with Spark."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ebbtide import UpsertPipeline
from ebbtide.delta import log
from ebbtide.errors import ConfigError, SqlError
from ebbtide.runtime.plan import Plan
from ebbtide.spec.ddl import parse_ddl
from ebbtide.spec.reading import project_of
from ebbtide.spec.row_functions import TARGET, RowFunction, UnfitFunctionError, make_importable, refuse_own_name
from ebbtide.sql import statements as ast
from ebbtide.sql.catalog import (
    PIPELINE,
    Catalog,
    Declared,
    DeclaredKind,
    Filled,
    existing_kind,
    remove_definition,
    write_declared,
)
from ebbtide.sql.options import attributes_of, explained, refuse_unfit, texts
from ebbtide.sql.statements import IfThere, ObjectKind
from ebbtide.sql.tokens import Statement
from ebbtide.sql.views import drop_view, users_of
from ebbtide.storage.paths import resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def imported(catalog: Catalog, declared: Declared) -> RowFunction:
    """Import a function, from the definitions' project, the current folder, or what is installed.

    Raises:
        SqlError: it cannot be called in SQL.
    """
    make_importable(project_of(catalog.folder))
    try:
        refuse_own_name(declared.name)
        return RowFunction.load(declared.target)
    except UnfitFunctionError as error:
        raise SqlError(f"The function '{declared.name}' cannot be called: {error}.") from error


def refuse_standard_library(target: str) -> None:
    """Refuse a module of Python's own without importing it: what it does when imported is none of a project's functions.

    Args:
        target: `module:name`.

    Raises:
        SqlError: it is one.
    """
    package = target.partition(":")[0].partition(".")[0]
    if package not in sys.stdlib_module_names:
        return
    raise SqlError.of(
        "A function of Python's standard library cannot be declared.",
        got=target,
        allowed="modules of the project, of the current folder, and installed ones",
        next_step="Write a function in a module of the project that calls it.",
    )


def refuse_indeterministic(declared: Declared) -> None:
    """Refuse a function in what is evaluated more than once.

    Raises:
        SqlError: it was not declared deterministic.
    """
    if declared.deterministic:
        return
    raise SqlError.of(
        f"The function '{declared.name}' is not declared deterministic, and rows are evaluated more than once.",
        allowed="functions whose value follows from their arguments alone",
        next_step=f"If it is so: CREATE OR REPLACE FUNCTION {declared.name} AS '{declared.target}' DETERMINISTIC.",
    )


def called(statement: Statement, functions: Mapping[str, Declared]) -> list[Declared]:
    """Return the functions that a statement calls."""
    names = {name.text.lower() for name, after in pairwise(statement.tokens) if after.text == "("}
    return [function for name, function in functions.items() if name in names]


def register(spark: SparkSession, catalog: Catalog, statement: Statement) -> None:
    """Make the functions that a statement calls known to a session.

    Raises:
        SqlError: one cannot be called.
    """
    functions = called(statement, catalog.declared(DeclaredKind.FUNCTION))
    if not functions:
        return
    from ebbtide.runtime.row_functions import session_function

    for declared in functions:
        function = session_function(declared.name, imported(catalog, declared))
        spark.udf.register(declared.name, function)


def create_source(catalog: Catalog, asked: ast.CreateSource) -> str:
    """Declare a source; return what was done.

    Raises:
        SqlError: it is not usable as a changelog, or the name is taken.
    """
    refuse_unfit(asked.options, "source")
    declared = _declared(DeclaredKind.SOURCE, asked)
    try:
        UpsertPipeline.model_validate(pipeline_of_source(declared))
    except (ValidationError, ConfigError) as error:
        raise explained(error, asked.options) from error
    lasting = replace(declared, options=_with_lasting_path(catalog, declared.options))
    return _write(catalog, lasting, asked.if_there)


def create_table(catalog: Catalog, asked: ast.CreateTable) -> str:
    """Declare a table; INSERT INTO makes a pipeline of it. Return what was done.

    Raises:
        SqlError: its columns, key or options are not usable, or the name is taken.
    """
    refuse_unfit(asked.options, "table")
    try:
        names = parse_ddl(asked.columns).columns.names
    except ConfigError as error:
        raise explained(error, asked.options) from error
    strangers = ", ".join(name for name in asked.key if name not in names)
    if strangers:
        what = f"The key of '{asked.name}' has columns that it lacks."
        raise SqlError.of(what, got=strangers, allowed=", ".join(names))
    return _write(catalog, _declared(DeclaredKind.TABLE, asked), asked.if_there)


def create_function(catalog: Catalog, asked: ast.CreateFunction) -> str:
    """Declare a function; return what was done.

    Raises:
        SqlError: it cannot be imported, nothing says what it returns, or the name is taken or Spark's own.
    """
    if not re.fullmatch(TARGET, asked.target):
        raise SqlError.of(f"'{asked.name}' stands for no function.", got=asked.target, allowed="'module:name'")
    refuse_standard_library(asked.target)
    name = asked.name.lower()
    declared = Declared(DeclaredKind.FUNCTION, name, target=asked.target, deterministic=asked.is_deterministic)
    existing_kind(catalog.entries(), declared.name, declared.kind.value, asked.if_there)
    function = imported(catalog, declared)  # runs the module: all that can be refused without is refused before
    if asked.is_deterministic and not function.is_deterministic:
        raise SqlError.of(
            f"'{asked.target}' says that it is not deterministic.",
            got="DETERMINISTIC",
            allowed="CREATE FUNCTION without that word: it can then be called in queries alone",
        )
    return _write(catalog, declared, asked.if_there)


def drop(catalog: Catalog, asked: ast.Drop) -> str:
    """Forget a source, a table or a function; return what was done.

    Raises:
        SqlError: there is none, it is of another kind, or it is in use.
    """
    name = asked.name.lower()
    what = asked.kind.lower()
    entries = catalog.entries()
    if asked.if_exists and name not in entries:
        return f"There is no {what} '{name}'."
    entry = catalog.entry(asked.kind, name)
    users = users_of(entries, name)
    if users:
        what = f"'{name}' is read by materialized views."
        raise SqlError.of(what, got=", ".join(users), next_step="Drop these first.")
    if isinstance(entry, Declared):
        _drop_declared(catalog, entry)
    elif asked.kind is ObjectKind.MATERIALIZED_VIEW:
        drop_view(catalog, entry)
    else:
        _drop_pipeline(catalog, entry)
    return f"Dropped {what} '{name}'."


DECLARING: Mapping[type, Callable[[Catalog, Any], str]] = {
    ast.CreateSource: create_source,
    ast.CreateTable: create_table,
    ast.CreateFunction: create_function,
    ast.Drop: drop,
}
"""Kinds of statements that only change files of the catalog, each with the function that does so."""


def pipeline_of_source(source: Declared) -> dict[str, Any]:
    """Return the attributes of the pipeline that would keep a source's rows as they are; it shows whether the source is usable."""
    own = {"name": source.name, "schema": source.columns, "key": list(source.key)}
    return {**own, **attributes_of(source.options)}


def _declared(kind: DeclaredKind, asked: ast.Declaration) -> Declared:
    return Declared(
        kind,
        name=asked.name.lower(),
        columns=asked.columns,
        key=asked.key,
        options=texts(asked.options),
        comment=asked.comment,
    )


def _with_lasting_path(catalog: Catalog, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return a source's options with a path that means the same tomorrow.

    In a project a relative one belongs to its folder. Where there is no project it is the current folder's, and is made absolute.
    """
    path = options.get("path", "")
    has_project = (project_of(catalog.folder) / "pyproject.toml").exists()
    if not path or has_project:
        return options
    return {**options, "path": resolve(path, Path.cwd())}


def _drop_declared(catalog: Catalog, entry: Declared) -> None:
    file = catalog.file_of(entry.kind, entry.name)
    if not file.exists():
        raise SqlError.of(
            f"'{entry.name}' is declared by the environment's file.",
            next_step="Take it out there.",
        )
    remove_definition(file)


def _drop_pipeline(catalog: Catalog, entry: Filled) -> None:
    """Drop a pipeline that has not run; refuse one that has tables: they are deleted by hand, knowingly."""
    home = Plan.under(catalog.root, entry.spec)
    has_tables = log.versions(home.at("state")) or log.versions(home.at("sink"))
    if has_tables:
        raise SqlError.of(
            f"'{entry.name}' has tables.",
            got=home.root,
            allowed="a table that was never filled",
            next_step=f"Stop its jobs, then delete '{entry.location}' and '{home.root}' by hand.",
        )
    entry.refuse_shared_file()
    remove_definition(entry.location / PIPELINE)


def _write(catalog: Catalog, declared: Declared, if_there: IfThere) -> str:
    existing = existing_kind(catalog.entries(), declared.name, declared.kind.value, if_there)
    if existing is not None and if_there is IfThere.KEEP:
        return f"There is a {existing} '{declared.name}' already."
    write_declared(catalog, declared)
    return f"Created {declared.kind.value} '{declared.name}'."
