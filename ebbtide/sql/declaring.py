"""CREATE and DROP of sources, tables and functions: checked whole before a file is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ebbtide.delta import log
from ebbtide.errors import ConfigError, SqlError
from ebbtide.paths import resolve
from ebbtide.runtime.plan import Plan
from ebbtide.spec.ddl import parse_ddl
from ebbtide.spec.pipeline import NAME, project_of
from ebbtide.spec.row_functions import TARGET
from ebbtide.spec.upsert import UpsertPipeline
from ebbtide.spec.view import MaterializedView
from ebbtide.sql import statements as ast
from ebbtide.sql.catalog import (
    PIPELINE,
    Catalog,
    Declared,
    DeclaredKind,
    Entry,
    Filled,
    remove_definition,
    write_declared,
)
from ebbtide.sql.functions import imported, refuse_standard_library
from ebbtide.sql.options import attributes_of, explained, refuse_unfit, texts
from ebbtide.sql.statements import IfThere, ObjectKind
from ebbtide.sql.views import drop_view, users_of


def create_source(catalog: Catalog, asked: ast.CreateSource) -> str:
    """Declare a source; return what was done.

    Raises:
        SqlError: it is not usable as a changelog, or the name is taken.
    """
    refuse_unfit(asked.options, of_source=True)
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
    refuse_unfit(asked.options, of_source=False)
    try:
        names = parse_ddl(asked.columns).columns.names
    except ConfigError as error:
        raise explained(error, asked.options) from error
    strangers = [name for name in asked.key if name not in names]
    if strangers:
        raise SqlError.of(
            f"The key of '{asked.name}' has columns that it lacks.",
            got=", ".join(strangers),
            allowed=", ".join(names),
        )
    declared = _declared(DeclaredKind.TABLE, asked)
    return _write(catalog, declared, asked.if_there)


def create_function(catalog: Catalog, asked: ast.CreateFunction) -> str:
    """Declare a function; return what was done.

    Raises:
        SqlError: it cannot be imported, nothing says what it returns, or the name is taken or Spark's own.
    """
    if not re.fullmatch(TARGET, asked.target):
        raise SqlError.of(
            f"'{asked.name}' stands for no function.",
            got=asked.target,
            allowed="'module:name'",
        )
    refuse_standard_library(asked.target)
    declared = Declared(
        DeclaredKind.FUNCTION,
        asked.name.lower(),
        target=asked.target,
        is_deterministic=asked.is_deterministic,
    )
    _existing(catalog, declared, asked.if_there)
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
    entry = entries.get(name)
    if entry is None and asked.if_exists:
        return f"There is no {what} '{name}'."
    if entry is None or kind_of(entry) is not asked.kind:
        raise SqlError.of(f"There is no {what} '{name}'.", got=kind_in_words(entry))
    users = users_of(entries, name)
    if users:
        raise SqlError.of(
            f"'{name}' is read by materialized views.",
            got=", ".join(users),
            next_step="Drop these first.",
        )
    if isinstance(entry, Declared):
        _drop_declared(catalog, entry)
    elif asked.kind is ObjectKind.MATERIALIZED_VIEW:
        drop_view(catalog, entry)
    else:
        _drop_pipeline(catalog, entry)
    return f"Dropped {what} '{name}'."


def kind_of(entry: Entry) -> ObjectKind:
    """Return what statements call an entry."""
    if isinstance(entry, Filled):
        is_view = isinstance(entry.spec, MaterializedView)
        return ObjectKind.MATERIALIZED_VIEW if is_view else ObjectKind.TABLE
    return ObjectKind(entry.kind.upper())


def kind_in_words(entry: Entry | None) -> str:
    """Say what there is of a name, for an error."""
    if entry is None:
        return "nothing of this name"
    kind = kind_of(entry).lower()
    return f"a {kind}"


def pipeline_of_source(source: Declared) -> dict[str, Any]:
    """Return the attributes of the pipeline that would keep a source's rows as they are; it shows whether the source is usable."""
    attributes = attributes_of(source.options)
    own = {
        "name": source.name,
        "schema": source.columns,
        "key": list(source.key),
    }
    return {**own, **attributes}


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
    existing = _existing(catalog, declared, if_there)
    if existing is not None and if_there is IfThere.KEEP:
        return f"There is a {existing} '{declared.name}' already."
    write_declared(catalog, declared)
    return f"Created {declared.kind.value} '{declared.name}'."


def _existing(catalog: Catalog, declared: Declared, if_there: IfThere) -> str | None:
    """Return what there is of a declaration's name; None if nothing is.

    Raises:
        SqlError: it is no name, or what there is may neither stay nor be replaced.
    """
    name = declared.name
    what = declared.kind.value
    if not re.fullmatch(NAME, name):
        raise SqlError.of(
            f"This is no name of a {what}.",
            got=name,
            allowed="lower-case letters, digits and underscores, 63 at most",
        )
    entry = catalog.entries().get(name)
    if entry is None:
        return None
    kind = kind_of(entry).lower()
    replaces = if_there is IfThere.REPLACE and kind == what
    if if_there is not IfThere.KEEP and not replaces:
        raise SqlError.of(
            f"There is a {kind} '{name}' already.",
            next_step="Take another name, or IF NOT EXISTS, or drop it first.",
        )
    return kind
