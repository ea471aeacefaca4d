"""Functions of a project that a transform's expressions call: found, typed and distinguished by their code, without a JVM."""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlglot import exp

from ebbtide.redaction import printable
from ebbtide.spec._changing import CHANGING
from ebbtide.spec._expressions import GENERATORS
from ebbtide.tables._state.project_sources import project_sources

TARGET = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
"""Pattern of a function's name: `module:name`."""
ALLOWED = "a function with the type that it returns, def f(v: str) -> str, or one made by pyspark's udf, pandas_udf, arrow_udf"
SPARK_TYPES: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BINARY",
    Decimal: "DECIMAL(38,18)",
    date: "DATE",
    datetime: "TIMESTAMP",
}
"""The annotated return type of a function to the type of its values in SQL. Lists and dicts of these are arrays and maps."""
ROWS, ROWS_BY_ARROW, PANDAS, ARROW = 100, 101, 200, 250
"""PySpark's numbers of functions that give a value for each row: `PythonEvalType`."""


class UnfitFunctionError(ValueError):
    """Raised for what cannot be called in SQL; the message says why."""


@dataclass(frozen=True)
class RowFunction:
    """A function that gives a value for each row.

    Args:
        target: Where it is, `module:name`.
        call: It; of PySpark's the one that was decorated.
        returns: Type of its values, as DDL or as PySpark's type.
        eval_type: What it is called with: values of a row, or columns of many.
        annotation: The Python type that its values have; None: PySpark converts them.
        is_deterministic: False: it says of itself that one row may give several values.
    """

    target: str
    call: Callable[..., Any]
    returns: Any
    eval_type: int = ROWS
    annotation: Any = None
    is_deterministic: bool = True

    @classmethod
    def load(cls, target: str) -> RowFunction:
        """Import a function.

        Raises:
            UnfitFunctionError: there is none, or nothing says what it returns.
        """
        module, _, name = target.partition(":")
        try:
            found = getattr(import_module(module), name)
        except Exception as error:  # a module may raise anything
            raise UnfitFunctionError(
                f"got {target}, {printable(str(error))}; allowed: 'module:name' that can be imported, with types as "
                "objects, udf(StringType()), that need no Spark session"
            ) from error
        if hasattr(found, "evalType"):
            return _of_pyspark(target, found)
        if not inspect.isfunction(found):
            raise UnfitFunctionError(f"got {target}, {type(found).__name__}; allowed: {ALLOWED}")
        annotation = _returned(target, found)
        return cls(target, found, _spark_type(target, annotation), annotation=annotation)

    def refuse_arguments(self, n_arguments: int) -> None:
        """Refuse a call with a number of arguments that it does not take.

        Raises:
            UnfitFunctionError: it does not.
        """
        signature = inspect.signature(self.call)
        try:
            signature.bind(*range(n_arguments))
        except TypeError as error:
            raise UnfitFunctionError(f"got {n_arguments} arguments ({error}); allowed: those of {signature}") from error


def _of_pyspark(target: str, found: Any) -> RowFunction:
    if found.evalType not in (ROWS, ROWS_BY_ARROW, PANDAS, ARROW):
        raise UnfitFunctionError(f"got {target}, which gives no value for each row; allowed: {ALLOWED}")
    return RowFunction(
        target,
        found.func,
        found.returnType,
        found.evalType,
        is_deterministic=found.deterministic,
    )


def _returned(target: str, function: Callable[..., Any]) -> Any:
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:  # an annotation may be any expression
        raise UnfitFunctionError(f"got {target}, its types cannot be read ({error}); allowed: {ALLOWED}") from error
    if "return" not in hints:
        raise UnfitFunctionError(f"got {target}, which has no type; allowed: {ALLOWED}")
    return _without_none(hints["return"])


def _without_none(annotation: Any) -> Any:
    """Return the type of a value that may be missing: NULL is a value of all types."""
    origin = typing.get_origin(annotation)
    if origin not in (typing.Union, types.UnionType):
        return annotation
    members = typing.get_args(annotation)
    types_given = [member for member in members if member is not types.NoneType]
    return types_given[0] if len(types_given) == 1 else annotation


def _spark_type(target: str, annotation: Any) -> str:
    if annotation in SPARK_TYPES:
        return SPARK_TYPES[annotation]
    inner = [_spark_type(target, _without_none(each)) for each in typing.get_args(annotation)]
    match typing.get_origin(annotation), inner:
        case (origin, [element]) if origin is list:
            return f"ARRAY<{element}>"
        case (origin, [key, value]) if origin is dict:
            return f"MAP<{key}, {value}>"
    known = ", ".join(type_.__name__ for type_ in SPARK_TYPES)
    raise UnfitFunctionError(
        f"got {target} that returns {annotation}; allowed: {known}, list and dict of these, or None"
    )


def refuse_own_name(name: str) -> None:
    """Refuse a name that is Spark's own: what it means would depend on who reads it.

    Raises:
        UnfitFunctionError: it is.
    """
    upper = name.upper()
    if upper in exp.FUNCTION_BY_NAME or upper in CHANGING | GENERATORS:
        raise UnfitFunctionError(f"got {name}, a function of Spark; allowed: another name")


def make_importable(folder: Path) -> None:
    """Let functions be imported from a project's folder, and from the current one."""
    for each in (str(folder), str(Path.cwd())):
        if each not in sys.path:
            sys.path.append(each)


def digest(target: str) -> str:
    """Return what identifies a function's code: of its module, and of what that imports of its project, in turn.

    Empty where there is no code to read: the module is gone, or was typed.
    """
    module, _, _ = target.partition(":")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return ""
    found = project_sources(module, Path(file))
    texts = [f"{name}\0{source.text}\0" for name, source in sorted(found.items())]
    if not texts:  # an installed one
        texts = [Path(file).read_text(encoding="utf-8")]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


def plain_types(annotation: Any) -> Iterator[type]:
    """Yield the Python types that a value of an annotation may have."""
    yield typing.get_origin(annotation) or annotation
    if annotation is float:
        yield int
