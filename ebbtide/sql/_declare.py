"""CREATE and DROP of sources, tables and functions, and the import of functions. A declaration is checked whole before it is written."""

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
from ebbtide.ddl import parse_ddl
from ebbtide.delta import Log
from ebbtide.errors import ConfigError, SqlError
from ebbtide.expressions import register_function
from ebbtide.runtime import Plan
from ebbtide.spec import Project, UnfitFunctionError, UserFunction
from ebbtide.sql import _statements as ast
from ebbtide.sql._catalog import (
    PIPELINE,
    Catalog,
    Declared,
    DeclaredKind,
    Filled,
    existing_kind,
    remove_definition,
    write_declared,
)
from ebbtide.sql._options import attributes_of, explained, parameters, refuse_unfit, texts
from ebbtide.sql._statements import IfThere, ObjectKind
from ebbtide.sql._tokens import Statement
from ebbtide.sql._views import drop_view, users_of
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def imported(catalog: Catalog, declared: Declared) -> UserFunction:
    """Import a function from the definitions' project, the current folder, or an installed package.

    Raises:
        SqlError: it cannot be called in SQL.
    """
    Project.around(catalog.folder).make_importable()
    try:
        UserFunction.refuse_name(declared.name)
        return UserFunction.load(declared.target, declared.constructor)
    except UnfitFunctionError as error:
        raise SqlError(f"The function '{declared.name}' cannot be called: {error}.") from error


def refuse_beyond_rows(declared: Declared, function: UserFunction) -> None:
    """Refuse a function in a transform, which evaluates each row by itself, again after a crash, from the spec alone.

    Raises:
        SqlError: it is no function of rows, or has parameters.
    """
    try:
        function.refuse_unless_of_rows()
    except UnfitFunctionError as error:
        raise SqlError.of(
            f"The function '{declared.name}' is one of queries: INSERT INTO evaluates each row by itself.",
            got=f"{declared.target}, of the kind {function.kind}",
            allowed="functions that return one value per row",
            next_step="Query a table with it, or keep such a query by a program of Spark.",
        ) from error
    if declared.constructor:
        raise SqlError.of(
            f"The function '{declared.name}' has parameters, which a spec does not keep.",
            got=", ".join(declared.constructor),
            allowed="functions without WITH (..)",
            next_step="Write a function in a module of the project that has the values, and declare that.",
        )


def refuse_standard_library(target: str) -> None:
    """Refuse a function of Python's standard library, without importing it: some of its modules act when they are imported.

    Args:
        target: `module:name` of the function.

    Raises:
        SqlError: the module is of the standard library.
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
    """Refuse a function in an expression that is evaluated more than once, unless it is declared deterministic.

    Raises:
        SqlError: the function is not.
    """
    if declared.deterministic:
        return
    raise SqlError.of(
        f"The function '{declared.name}' is not declared deterministic, and rows are evaluated more than once.",
        allowed="functions whose value depends only on their arguments",
        next_step=f"If it is so: CREATE OR REPLACE FUNCTION {declared.name} AS '{declared.target}' DETERMINISTIC.",
    )


def called(statement: Statement, functions: Mapping[str, Declared]) -> list[Declared]:
    """Return the functions that a statement calls."""
    names = {name.text.lower() for name, after in pairwise(statement.tokens) if after.text == "("}
    return [function for name, function in functions.items() if name in names]


def register(spark: SparkSession, catalog: Catalog, statement: Statement) -> None:
    """Register the functions that a statement calls with a session of Spark.

    Raises:
        SqlError: a function cannot be called.
    """
    functions = called(statement, catalog.declared(DeclaredKind.FUNCTION))
    if not functions:
        return
    for declared in functions:
        function = imported(catalog, declared)
        register_function(spark, declared.name, function)


def create_source(catalog: Catalog, asked: ast.CreateSource) -> str:
    """Declare a source; return a message.

    Raises:
        SqlError: the source is not usable as a changelog, or the name is taken.
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
    """Declare a table, which INSERT INTO turns into a pipeline; return a message.

    Raises:
        SqlError: the columns, the key or an option is not usable, or the name is taken.
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
    """Declare a function; return a message.

    Raises:
        SqlError: the function cannot be imported, has no type, or the name is taken or Spark's own.
    """
    if not re.fullmatch(UserFunction.TARGET, asked.target):
        raise SqlError.of(
            f"'{asked.name}' is not declared by a function.",
            got=asked.target,
            allowed="'module:name'",
        )
    refuse_standard_library(asked.target)
    name = asked.name.lower()
    declared = Declared(
        DeclaredKind.FUNCTION,
        name,
        target=asked.target,
        constructor=parameters(asked.constructor),
        deterministic=asked.is_deterministic,
    )
    existing_kind(catalog.entries(), declared.name, declared.kind.value, asked.if_there)
    function = imported(catalog, declared)  # runs the module, so it comes after all other checks
    if asked.is_deterministic and not function.is_deterministic:
        raise SqlError.of(
            f"'{asked.target}' declares that it is not deterministic.",
            got="DETERMINISTIC",
            allowed="CREATE FUNCTION without that word: it can then be called in queries alone",
        )
    return _write(catalog, declared, asked.if_there)


def drop(catalog: Catalog, asked: ast.Drop) -> str:
    """Drop a source, a table, a view or a function; return a message.

    Raises:
        SqlError: there is none of the kind, or it is in use.
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
    """Return the attributes of the pipeline that stores a source's rows as they are; it is usable if the source is."""
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
    """Return a source's options with a path that does not depend on the current folder of later sessions.

    In a project a relative path belongs to the project's folder. Without a project it belongs to the current folder, and is made absolute.
    """
    path = options.get("path", "")
    project_file = Project.around(catalog.folder).folder / "pyproject.toml"
    if not path or project_file.exists():
        return options
    absolute = Location(path).resolved(Path.cwd())
    return {**options, "path": absolute}


def _drop_declared(catalog: Catalog, entry: Declared) -> None:
    file = catalog.file_of(entry.kind, entry.name)
    if not file.exists():
        raise SqlError.of(
            f"'{entry.name}' is declared by the environment's file.",
            next_step="Remove it there.",
        )
    remove_definition(file)


def _drop_pipeline(catalog: Catalog, entry: Filled) -> None:
    """Drop a pipeline that has not run; refuse one with tables, which only the user may delete."""
    home = Plan.under(catalog.root, entry.spec)
    has_tables = Log(home.at("state")).is_there() or Log(home.at("sink")).is_there()
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
    name = declared.name
    kind = declared.kind.value
    existing = existing_kind(catalog.entries(), name, kind, if_there)
    if existing is not None and if_there is IfThere.KEEP:
        return f"There is a {existing} '{name}' already."
    write_declared(catalog, declared)
    return f"Created {kind} '{name}'."
