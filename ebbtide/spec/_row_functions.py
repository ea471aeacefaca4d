"""Functions of a project that SQL calls: found, typed and distinguished by their code, without a JVM. Those of a transform return a value per row."""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal
from zipfile import ZipFile

from sqlglot import exp

from ebbtide import sqltext
from ebbtide.redaction import printable
from ebbtide.user_code import Shipped

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
"""PySpark's `PythonEvalType` numbers of functions that return one value per row."""


class FunctionKind(StrEnum):
    """Kind of a function, by its arguments and its value."""

    ROW = "row"
    """A value for a row."""
    AGGREGATE = "aggregate"
    """A value for a group of rows."""
    TABLE = "table"
    """Rows."""


_KINDS = {
    **dict.fromkeys((ROWS, ROWS_BY_ARROW, PANDAS, ARROW), FunctionKind.ROW),
    **dict.fromkeys((202, 216, 252, 254), FunctionKind.AGGREGATE),
    **dict.fromkeys((300, 301, 302), FunctionKind.TABLE),
}
"""PySpark's `PythonEvalType` numbers of the functions that SQL can call."""


class UnfitFunctionError(ValueError):
    """Raised for a function that cannot be called in SQL; the message says why."""


@dataclass(frozen=True)
class UserFunction:
    """A function of a project.

    Args:
        target: Its name, `module:name`.
        call: The function; for PySpark's the decorated one; for a table function the decorated class.
        returns: Type of its values, as DDL or as PySpark's type; for a table function PySpark's object, whose type may need Spark.
        eval_type: PySpark's way of calling it: with values of a row, or with columns.
        annotation: The Python type that its values have; None: PySpark converts them.
        is_deterministic: False: it declares that it may return different values for one row.
    """

    TARGET: ClassVar = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
    """Pattern of a function's name."""

    target: str
    call: Callable[..., Any]
    returns: Any
    eval_type: int = ROWS
    annotation: Any = None
    is_deterministic: bool = True

    @classmethod
    def load(cls, target: str, constructor: Mapping[str, Any] | None = None) -> UserFunction:
        """Import a function.

        Args:
            target: Its name, `module:name`; or that of a class, or with parameters of a function, which is called and returns it.
            constructor: Parameters of that call.

        Raises:
            UnfitFunctionError: there is none, or its return type is unknown.
        """
        module, _, name = target.partition(":")
        try:
            found = getattr(import_module(module), name)
        except Exception as error:  # a module may raise anything
            raise UnfitFunctionError(
                f"got {target}, {printable(str(error))}; allowed: 'module:name' that can be imported, with types as "
                "objects, udf(StringType()), that need no Spark session"
            ) from error
        if inspect.isclass(found) or constructor:
            found = _constructed(target, found, constructor or {})
        if hasattr(found, "evalType"):
            return _of_pyspark(target, found)
        if not callable(found) or inspect.isbuiltin(found):
            raise UnfitFunctionError(f"got {target}, {type(found).__name__}; allowed: {ALLOWED}")
        annotation = _returned(target, found)
        return cls(target, found, _spark_type(target, annotation), annotation=annotation)

    @property
    def kind(self) -> FunctionKind:
        """Kind of the function."""
        return _KINDS[self.eval_type]

    def refuse_unless_of_rows(self) -> None:
        """Refuse a function that does not return one value per row, which a transform evaluates.

        Raises:
            UnfitFunctionError: it does not.
        """
        if self.kind is not FunctionKind.ROW:
            raise UnfitFunctionError(
                f"got {self.target}, which does not return one value per row but is of the kind {self.kind}; allowed: {ALLOWED}"
            )

    @property
    def takes(self) -> Literal["rows", "pandas", "arrow"]:
        """The form of its arguments: values of one row, or columns of pandas or Arrow."""
        if self.eval_type == PANDAS:
            return "pandas"
        return "arrow" if self.eval_type == ARROW else "rows"

    @property
    def python_types(self) -> tuple[type, ...]:
        """The Python types that its values may have; none: PySpark converts them."""
        if self.annotation is None:
            return ()
        own = typing.get_origin(self.annotation) or self.annotation
        return (own, int) if own is float else (own,)

    @staticmethod
    def refuse_name(name: str) -> None:
        """Refuse the name of a Spark function: its meaning would be ambiguous.

        Raises:
            UnfitFunctionError: it is.
        """
        # sqlglot reads further names as functions, such as those of other dialects.
        is_of_spark = name.lower() in sqltext.SqlText.SPARK.NAMES
        if is_of_spark or name.upper() in exp.FUNCTION_BY_NAME:
            raise UnfitFunctionError(f"got {name}, a function of Spark; allowed: another name")

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


def _constructed(target: str, found: Any, constructor: Mapping[str, Any]) -> Any:
    """Return what a class, or a function that makes functions, returns for its parameters."""
    try:
        return found(**constructor)
    except Exception as error:  # a constructor may raise anything
        given = ", ".join(constructor) or "none"
        raise UnfitFunctionError(
            f"got {target} with the parameters {given}, {type(error).__name__}: {printable(str(error))}; allowed: a class, "
            "or a function, that takes these and returns the function"
        ) from error


def _of_pyspark(target: str, found: Any) -> UserFunction:
    if found.evalType not in _KINDS:
        raise UnfitFunctionError(f"got {target}, which SQL cannot call; allowed: {ALLOWED}")
    is_of_table = _KINDS[found.evalType] is FunctionKind.TABLE
    return UserFunction(
        target,
        found.func,
        found if is_of_table else found.returnType,
        found.evalType,
        is_deterministic=found.deterministic,
    )


def _returned(target: str, function: Callable[..., Any]) -> Any:
    try:
        hints = typing.get_type_hints(function if inspect.isfunction(function) else type(function).__call__)
    except Exception as error:  # an annotation may be any expression
        raise UnfitFunctionError(f"got {target}, its types cannot be read ({error}); allowed: {ALLOWED}") from error
    if "return" not in hints:
        raise UnfitFunctionError(f"got {target}, which has no type; allowed: {ALLOWED}")
    return _without_none(hints["return"])


def _without_none(annotation: Any) -> Any:
    """Return the type of an optional value: NULL is a value of all types."""
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


def _texts_in(archive: Path) -> list[str]:
    """Return the modules of an archive: any of them may be imported by another."""
    with ZipFile(archive) as opened:
        names = sorted(name for name in opened.namelist() if name.endswith(".py"))
        return [f"{name}\0{opened.read(name).decode()}\0" for name in names]


def digest(target: str) -> str:
    """Return a digest of a function's code: its module, and the project's modules that it imports, recursively.

    Empty if there is no code to read: the module is gone or was typed interactively.
    """
    module, _, _ = target.partition(":")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return ""
    found = Shipped.project_sources(module, Path(file))
    texts = [f"{name}\0{source.text}\0" for name, source in sorted(found.items())]
    archive = getattr(sys.modules[module].__loader__, "archive", None)
    if not texts and archive is not None:
        texts = _texts_in(Path(archive))
    if not texts:  # an installed module
        texts = [Path(file).read_text(encoding="utf-8")]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]
