"""Judges the functions that SQL calls, by the plan that Spark's parser makes of it: nothing is resolved or evaluated before.

Analysis evaluates some calls: the schema of `from_xml(v, schema_of_xml(..))`. So a query of a view and an expression of a transform
are judged here before Spark's analyzer sees them, as the statements of SQL sessions are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ebbtide.expressions._plans import Node, Parser
from ebbtide.sqltext import SqlText

_BUILT_IN: tuple[list[str], ...] = (
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


@dataclass(frozen=True)
class Call:
    """A call of a function in a plan.

    Args:
        node: The node that calls it.
        qualifier: Parts of its name before the last one, in lower case.
        name: The last part of its name, in lower case.

    Attributes:
        CALLING_JAVA: See `SqlText.SPARK`.
        NAMING_PLACES: See `SqlText.SPARK`.
    """

    CALLING_JAVA: ClassVar = SqlText.SPARK.CALLING_JAVA
    NAMING_PLACES: ClassVar = SqlText.SPARK.NAMING_PLACES

    node: Node
    qualifier: list[str]
    name: str

    @classmethod
    def of_node(cls, node: Node) -> Self | None:
        """Return the call that a node is; None for a node that calls nothing."""
        if node.name in {"UnresolvedFunction", "UnresolvedTableValuedFunction"}:
            parts = list(node.fields.get("nameParts") or node.fields["name"])
        elif node.name == "FunctionIdentifier":
            parts = node.given_parts("funcName")
        else:
            return None
        *qualifier, name = (part.lower() for part in parts)
        return cls(node, qualifier, name)

    @classmethod
    def all_in(cls, node: Node) -> Iterator[Self]:
        """Yield the calls at and below a node."""
        for below in node.nodes():
            call = cls.of_node(below)
            if call is not None:
                yield call

    @classmethod
    def first_fault(cls, parser: Parser, tree: Node) -> Fault | None:
        """Return the first reason to refuse the calls in a query or an expression; None: all are allowed."""
        faults = (call.fault(parser) for call in cls.all_in(tree))
        return next((fault for fault in faults if fault is not None), None)

    @property
    def is_of_table(self) -> bool:
        """The function returns a table."""
        return self.node.name == "UnresolvedTableValuedFunction"

    @property
    def is_built_in(self) -> bool:
        """The name may be that of a function of Spark or of the session: no other catalog qualifies it."""
        return self.qualifier in _BUILT_IN

    @property
    def is_listed(self) -> bool:
        """The function is in the list of those that only compute values."""
        return self.name in (SqlText.SPARK.OF_TABLES if self.is_of_table else SqlText.SPARK.OF_VALUES)

    @property
    def calls_java(self) -> bool:
        """The function calls a method of a Java class."""
        return self.name in SqlText.SPARK.CALLING_JAVA

    def refusal(self) -> Fault:
        """Return the reason to refuse the function."""
        full_name = ".".join([*self.qualifier, self.name])
        return Fault(
            f"{full_name}(..)",
            "Spark's built-in functions that compute values, and those that CREATE FUNCTION has declared",
        )

    def fault(self, parser: Parser) -> Fault | None:
        """Return the reason to refuse a call where functions of users are allowed; None: it is allowed.

        Args:
            parser: Knows Spark's functions: one that is not listed is refused.
        """
        if self.is_listed:
            return self.option_fault()
        is_of_spark = self.name in parser.built_in_functions or any(
            self.name in names for names in SqlText.SPARK.REFUSED.values()
        )
        return self.refusal() if is_of_spark else None

    def option_fault(self) -> Fault | None:
        """Return the reason to refuse the options of a listed function: they are not literals, or name a file or host."""
        known = SqlText.SPARK.OPTIONS.get(self.name)
        arguments = self.node.fields.get("arguments")
        if known is None or arguments is None:
            return None
        if any(argument.name == "NamedArgumentExpression" for argument in arguments):
            return Fault(f"{self.name}(.. => ..)", "its arguments by position")
        for argument in arguments[known.position :]:
            names = _option_names(argument)
            if names is None:
                return Fault(
                    f"options of {self.name}(..) that are not literals", f"{self.name}(.., map('name', 'value'))"
                )
            for option in names:
                if option.lower() not in known.names:
                    return Fault(f"the option '{option}' of {self.name}(..)", ", ".join(sorted(known.names)))
        return None


def _option_names(argument: Node) -> list[str] | None:
    """Return the names in `map('name', 'value', ..)`; None for anything else: a computed name would hide what it is."""
    call = Call.of_node(argument)
    if call is None or call.name != "map" or not call.is_built_in:
        return None
    texts: list[Any] = [inner.fields.get("value") for inner in argument.fields["arguments"] if inner.name == "Literal"]
    is_literal = len(texts) == len(argument.fields["arguments"]) and all(isinstance(text, str) for text in texts)
    return texts[::2] if is_literal else None
