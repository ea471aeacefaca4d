"""Judges the functions that SQL calls, by the plan that Spark's parser makes of it: nothing is resolved or evaluated before.

Analysis evaluates some calls: the schema of `from_xml(v, schema_of_xml(..))`. So a query of a view and an expression of a transform
are judged here before Spark's analyzer sees them, as the statements of SQL sessions are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ebbtide.runtime._spark_plans import Node, Parser
from ebbtide.spec import OPTIONS
from ebbtide.spec._allowed_functions import FUNCTIONS, REFUSED, TABLE_FUNCTIONS

BUILT_IN: tuple[list[str], ...] = (
    [],
    ["builtin"],
    ["system", "builtin"],
    ["session"],
    ["system", "session"],
    ["default"],
    ["spark_catalog", "default"],
)
"""Qualifiers of functions that are allowed."""


@dataclass(frozen=True)
class Fault:
    """A reason to refuse a statement.

    Args:
        got: Refused part of the statement, in a few words.
        allowed: Allowed parts.
    """

    got: str
    allowed: str


def calls_in(node: Node) -> Iterator[tuple[Node, list[str]]]:
    """Yield the nodes at and below a node that call a function, each with the parts of the function's name in lower case."""
    for below in node.nodes():
        parts = _called(below)
        if parts is not None:
            yield below, [part.lower() for part in parts]


def _called(node: Node) -> list[str] | None:
    if node.name in {"UnresolvedFunction", "UnresolvedTableValuedFunction"}:
        parts = node.fields.get("nameParts") or node.fields["name"]
        return list(parts)
    if node.name == "FunctionIdentifier":
        return parts_of(node, "funcName")
    return None


def parts_of(identifier: Node, last: str) -> list[str]:
    """Return the parts of an identifier of Spark's catalog that are given."""
    parts = []
    for field in ("catalog", "database", last):
        part = identifier.fields[field]
        if part is not None:
            parts.append(part)
    return parts


def function_fault(name: str) -> Fault:
    """Return the reason to refuse a function."""
    return Fault(
        f"{name}(..)", "Spark's built-in functions that compute values, and those that CREATE FUNCTION has declared"
    )


def is_listed(node: Node, name: str) -> bool:
    """Return whether a called function is in the list."""
    return name in (TABLE_FUNCTIONS if node.name == "UnresolvedTableValuedFunction" else FUNCTIONS)


def unlisted_call(parser: Parser, node: Node, name: str) -> Fault | None:
    """Return the reason to refuse a call where functions of users are allowed: a function of Spark's that is not listed, or its options."""
    if is_listed(node, name):
        return option_fault(node, name)
    is_of_spark = name in parser.built_in_functions or any(name in refused for refused in REFUSED.values())
    return function_fault(name) if is_of_spark else None


def option_fault(call: Node, name: str) -> Fault | None:
    """Return the reason to refuse the options of a listed function: they are no literals, or name a place."""
    known = OPTIONS.get(name)
    arguments = call.fields.get("arguments")
    if known is None or arguments is None:
        return None
    if any(argument.name == "NamedArgumentExpression" for argument in arguments):
        return Fault(f"{name}(.. => ..)", "its arguments by position")
    for argument in arguments[known.position :]:
        names = _option_names(argument)
        if names is None:
            return Fault(f"options of {name}(..) that are not literals", f"{name}(.., map('name', 'value'))")
        for option in names:
            if option.lower() not in known.names:
                return Fault(f"the option '{option}' of {name}(..)", ", ".join(sorted(known.names)))
    return None


def _option_names(argument: Node) -> list[str] | None:
    """Return the names in `map('name', 'value', ..)`; None for anything else: a computed name would hide what it is."""
    parts = _called(argument) or [""]
    *qualifier, function = (part.lower() for part in parts)
    if function != "map" or qualifier not in BUILT_IN:
        return None
    texts: list[Any] = [inner.fields.get("value") for inner in argument.fields["arguments"] if inner.name == "Literal"]
    is_literal = len(texts) == len(argument.fields["arguments"]) and all(isinstance(text, str) for text in texts)
    return texts[::2] if is_literal else None


def first_fault(parser: Parser, tree: Node) -> Fault | None:
    """Return the first reason to refuse the calls in a query or an expression; None: all are allowed."""
    for node, parts in calls_in(tree):
        fault = unlisted_call(parser, node, parts[-1])
        if fault is not None:
            return fault
    return None
