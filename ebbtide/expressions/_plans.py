"""Plans of Spark's parser as plain Python nodes, and the names of Spark's catalog. Nothing is resolved, read or executed.

A plan of Spark is a tree of Scala case classes. All fields are walked, not only the children of the tree: a subquery is part of an
expression, the query of a command is a field, and the CTEs of a WITH are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

from ebbtide.sessions import SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALYST = "org.apache.spark.sql.catalyst."
_TEXTS = frozenset({"org.apache.spark.unsafe.types.UTF8String", "java.net.URI", "org.apache.hadoop.fs.Path"})
"""Classes whose objects are read as text; for other leaves a call for each value would be slow."""

_TYPE_OF_LITERAL = (f"{CATALYST}expressions.Literal", "dataType")
"""A field that is not walked: no rule needs it, and it would double the time for a long list of values."""


@dataclass(frozen=True)
class Node:
    """A plan, an expression, or another case class within one.

    Args:
        type: Full name of the class.
        fields: Values by field: a node, a text, a number, a truth value, None, or a list of such.
        is_plan: Whether the node is a query, a command or a part of one, not an expression.
        is_tree: Whether the node is a plan or an expression.

    Attributes:
        CATALYST: Package of Catalyst's classes, with a dot at the end.
    """

    CATALYST: ClassVar[str] = CATALYST

    type: str
    fields: Mapping[str, Any]
    is_plan: bool = False
    is_tree: bool = False

    @cached_property
    def name(self) -> str:
        """Name of the class, without the package and the `$` of an object."""
        return self.type.rpartition(".")[2].removesuffix("$")

    def given_parts(self, last: str) -> list[str]:
        """Return the parts that are given of an identifier of Spark's catalog: catalog, database and the field `last`."""
        parts = [self.fields[field] for field in ("catalog", "database", last)]
        return [part for part in parts if part is not None]

    def below(self) -> Iterator[tuple[str, Any]]:
        """Yield each value with the name of its field, the values of lists one by one."""
        for name, value in self.fields.items():
            for item in _flat(value):
                yield name, item

    def nodes(self) -> Iterator[Node]:
        """Yield this node and all below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            for _, value in node.below():
                if isinstance(value, Node):
                    waiting.append(value)


@dataclass(frozen=True)
class Leaf:
    """An object whose class only is known."""

    type: str


class _Shape(Enum):
    """Manner of walking the objects of a class."""

    PLAN = auto()
    TREE = auto()
    PRODUCT = auto()
    OPTION = auto()
    ITERABLE = auto()
    MAP = auto()
    TEXT = auto()
    LEAF = auto()


@dataclass(frozen=True)
class Target:
    """A table or a view of Spark's catalog.

    Args:
        is_view: Whether it is a view.
        location: Folder of the files of a table that has one.
    """

    is_view: bool
    location: str | None = None


class Parser:
    """The parser of a session.

    Args:
        spark: Session; its settings and extensions define the grammar.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session = spark._jsparkSession.sessionState()
        self._parser = self._session.sqlParser()
        jvm: Any = spark._jvm
        analysis = jvm.org.apache.spark.sql.catalyst.analysis
        self._registries = (analysis.FunctionRegistry, analysis.TableFunctionRegistry)
        self._is_instance = jvm.py4j.reflection.TypeUtil.isInstanceOf
        self._shapes: dict[str, tuple[_Shape, tuple[str, ...]]] = {}

    def plan(self, text: str) -> Node:
        """Return the plan of a statement.

        Raises:
            ParseException: Spark cannot read it.
        """
        plan = self._value(self._parser.parsePlan(text))
        assert isinstance(plan, Node)  # noqa: S101 - parsePlan returns a LogicalPlan
        return plan

    def expression(self, text: str) -> Node:
        """Return the tree of an expression.

        Raises:
            ParseException: Spark cannot read it.
        """
        expression = self._value(self._parser.parseExpression(text))
        assert isinstance(expression, Node)  # noqa: S101 - parseExpression returns an Expression
        return expression

    def name_parts(self, text: str) -> list[str]:
        """Return the parts of a dotted name.

        Raises:
            ParseException: the text is not a name.
        """
        return list(_strings(self._parser.parseMultipartIdentifier(text)))

    def databases(self) -> set[str]:
        """Return the databases of Spark's own catalog, in lower case."""
        return {name.lower() for name in _strings(self._session.catalog().listDatabases())}

    @cached_property
    def catalogs(self) -> set[str]:
        """Catalogs in the settings, other than Spark's."""
        prefix = "spark.sql.catalog."
        found = set()
        for key in self._spark.conf.getAll:
            if key.startswith(prefix):
                name, _, _ = key.removeprefix(prefix).partition(".")
                found.add(name.lower())
        return found - {"spark_catalog"}

    @cached_property
    def built_in_functions(self) -> frozenset[str]:
        """Functions of Spark itself, in lower case; those of users and of the session are not among them."""
        names: set[str] = set()
        for registry in self._registries:
            names.update(str(name.funcName()).lower() for name in _items(registry.builtin().listFunction()))
        return frozenset(names)

    def target(self, parts: Sequence[str]) -> Target | None:
        """Look a name up in Spark's catalog; None if there is no such table or view."""
        escaped = [part.replace("`", "``") for part in parts[-2:]]
        name = ".".join(f"`{part}`" for part in escaped)
        try:
            identifier = self._parser.parseTableIdentifier(name)
            table = self._session.catalog().getTempViewOrPermanentTableMetadata(identifier)
            if str(table.tableType().name()) == "VIEW":
                return Target(is_view=True)
            has_location = table.storage().locationUri().isDefined()
            location = str(table.location().toString()) if has_location else None
            return Target(is_view=False, location=location)
        except Py4JJavaError:
            return None
        except Exception as error:
            if type(error).__module__.startswith("pyspark.errors"):
                return None  # there is no such table
            raise

    def _value(self, found: Any) -> Any:
        """Return an object of the JVM as plain Python; values that py4j converts itself are returned as they are."""
        # Recursion over the fields of case classes. Each call over py4j costs some 0.1 ms, so the shape of a class is read once, and a
        # literal's type not at all.
        if not isinstance(found, JavaObject):
            return found
        type_ = str(found.getClass().getName())
        shape, names = self._shape(type_, found)
        if shape in _SIMPLE:
            return _SIMPLE[shape](found, type_)
        if shape is _Shape.OPTION:
            return self._value(found.get()) if found.isDefined() else None
        if shape is _Shape.ITERABLE:
            return [self._value(item) for item in _items(found)]
        fields = {}
        for number, name in enumerate(names):
            if (type_, name) != _TYPE_OF_LITERAL:
                fields[name] = self._value(found.productElement(number))
        is_plan = shape is _Shape.PLAN
        return Node(type_, fields, is_plan=is_plan, is_tree=is_plan or shape is _Shape.TREE)

    def _shape(self, type_: str, found: JavaObject) -> tuple[_Shape, tuple[str, ...]]:
        """Return the shape of a class and the names of its fields, read from the JVM once for each class."""
        known = self._shapes.get(type_)
        if known is not None:
            return known
        shape = self._shape_of(type_, found)
        names: tuple[str, ...] = ()
        if shape in (_Shape.PLAN, _Shape.TREE, _Shape.PRODUCT):
            names = tuple(SparkVersion.installed().field_names(found))
        self._shapes[type_] = shape, names
        return shape, names

    def _shape_of(self, type_: str, found: JavaObject) -> _Shape:
        if type_ in _TEXTS:
            return _Shape.TEXT
        for parent, shape in _PARENTS.items():
            if self._is_instance(parent, found):
                return shape
        return _Shape.LEAF


_PARENTS = {
    f"{CATALYST}plans.logical.LogicalPlan": _Shape.PLAN,
    f"{CATALYST}trees.TreeNode": _Shape.TREE,
    f"{CATALYST}InternalRow": _Shape.LEAF,
    "org.apache.spark.sql.types.DataType": _Shape.LEAF,
    "org.apache.spark.sql.util.CaseInsensitiveStringMap": _Shape.MAP,
    "scala.Option": _Shape.OPTION,
    "scala.collection.Iterable": _Shape.ITERABLE,
    "scala.Product": _Shape.PRODUCT,
}
"""Shapes of classes and the classes derived from them; the first that fits is used."""


def _pairs(options: JavaObject, type_: str) -> list[Node]:
    """Return the options of a table as pairs, the form of a command's options."""
    pairs = []
    for item in options.asCaseSensitiveMap().entrySet():
        fields = {"_1": str(item.getKey()), "_2": str(item.getValue())}
        pairs.append(Node("scala.Tuple2", fields))
    return pairs


_SIMPLE: dict[_Shape, Callable[[JavaObject, str], Any]] = {
    _Shape.TEXT: lambda found, type_: str(found.toString()),
    _Shape.LEAF: lambda found, type_: Leaf(type_),
    _Shape.MAP: _pairs,
}


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _items(iterable: JavaObject) -> Iterator[Any]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _strings(sequence: JavaObject) -> Iterator[str]:
    return (str(item) for item in _items(sequence))
