"""Functions that CREATE FUNCTION declared: imported, and made known to Spark's session where a query calls them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from ebbtide.errors import SqlError
from ebbtide.spec.pipeline import project_of
from ebbtide.spec.row_functions import RowFunction, UnfitFunctionError, make_importable, refuse_own_name
from ebbtide.sql.catalog import Catalog, Declared, DeclaredKind
from ebbtide.sql.tokens import Statement

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
    if declared.is_deterministic:
        return
    raise SqlError.of(
        f"The function '{declared.name}' is not declared deterministic, and rows are evaluated more than once.",
        allowed="functions whose value follows from their arguments alone",
        next_step=f"If it is so: CREATE OR REPLACE FUNCTION {declared.name} AS '{declared.target}' DETERMINISTIC.",
    )


def called(statement: Statement, functions: Mapping[str, Declared]) -> list[Declared]:
    """Return the functions that a statement calls."""
    found = {}
    for name, after in pairwise(statement.tokens):
        function = functions.get(name.text.lower())
        if function is not None and after.text == "(":
            found[function.name] = function
    return list(found.values())


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
