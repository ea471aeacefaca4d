"""Which rows of a query's result a row of an input can touch. Pure: it knows neither SQL nor Spark.

A query is put together from the tables that it reads upwards, by `project`, `join`, `group` and the like. Of each column of
an intermediate result it is known to which columns of which tables it is **bound**. A column `a` is bound to the column `c` of
a table T if, for any set of values V, the rows with `a` in V stay the same when T is cut down to its rows with `c` in V. So a
change of rows of T with `c` = v touches no row but those with `a` = v, and these are computed right from the cut table. Null
counts as a value.

Several bonds of a column hold together: each of them holds for any contents of the other tables, so also for cut ones.
A table that is read twice is two readings here, each bound by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

Column = int
"""Id of a column of an intermediate result."""
Reading = int
"""Number of a place where the query reads a table."""
Bonds = Mapping[Reading, str]
"""Readings to a column of their tables."""
Equality = tuple[Column, Column]
"""Two columns of one type that a condition wants to be equal."""
Origin = tuple[str, str]
"""A table and a column of it."""


class Joining(StrEnum):
    """How two results are joined: which side's rows stay without a match, and whether the right side's columns are shown."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True)
class Relation:
    """An intermediate result of a query.

    Args:
        columns: Its columns, in order.
        readings: The tables that it is computed from, by reading.
        bonds: Column to what it is bound to.
        origins: Column to the columns of tables that its values are made of.
        key: Columns that identify its rows; None if that is not known.
        equal: Columns that are equal in each row.
        losses: Why a reading is bound to no column any more.
    """

    columns: tuple[Column, ...]
    readings: Mapping[Reading, str] = field(default_factory=dict)
    bonds: Mapping[Column, Bonds] = field(default_factory=dict)
    origins: Mapping[Column, frozenset[Origin]] = field(default_factory=dict)
    key: frozenset[Column] | None = None
    equal: frozenset[Equality] = frozenset()
    losses: Mapping[Reading, str] = field(default_factory=dict)

    def bonds_of(self, column: Column) -> Bonds:
        """Return what a column is bound to."""
        return self.bonds.get(column, {})

    def origins_of(self, columns: Iterable[Column]) -> frozenset[Origin]:
        """Return what some columns are made of."""
        found = [self.origins.get(column, frozenset()) for column in columns]
        return frozenset().union(*found)


def read(
    reading: Reading,
    table: str,
    names: Mapping[Column, str],
    key: Iterable[Column] = (),
) -> Relation:
    """Return the rows of a table.

    Args:
        reading: A number of its own.
        table: The table's name.
        names: Its columns, in order, with their names.
        key: Those of its key.
    """
    bonds: dict[Column, Bonds] = {}
    origins: dict[Column, frozenset[Origin]] = {}
    for column, name in names.items():
        origin = (table, name)
        bonds[column] = {reading: name}
        origins[column] = frozenset({origin})
    return Relation(
        columns=tuple(names),
        readings={reading: table},
        bonds=bonds,
        origins=origins,
        key=frozenset(key) or None,
    )


def constants(columns: Sequence[Column]) -> Relation:
    """Return rows that no table is read for."""
    return Relation(tuple(columns))


@dataclass(frozen=True)
class Output:
    """A column of a projection.

    Args:
        column: It.
        of: The column that it is, by another name perhaps; None: it is computed.
        reads: The columns that its expression reads.
        within: What the subqueries in its expression give.
    """

    column: Column
    of: Column | None
    reads: tuple[Column, ...]
    within: frozenset[Origin] = frozenset()


def project(below: Relation, outputs: Sequence[Output]) -> Relation:
    """Return a projection: a column that is taken as it is keeps its bonds."""
    shown = _shown(outputs)
    bonds = {column: below.bonds_of(of) for of, column in _taken(outputs)}
    projected = replace(
        below,
        columns=_columns(outputs),
        bonds=bonds,
        origins=_made(below, outputs),
        key=_key_shown(below.key, shown),
        equal=_equal_shown(below.equal, shown),
    )
    return _with_losses(projected, [below], "no column that identifies its rows is selected")


def _columns(outputs: Sequence[Output]) -> tuple[Column, ...]:
    return tuple(output.column for output in outputs)


def _made(below: Relation, outputs: Sequence[Output]) -> dict[Column, frozenset[Origin]]:
    """Return what the columns of a projection are made of."""
    origins = {}
    for output in outputs:
        read_there = below.origins_of(output.reads)
        origins[output.column] = read_there | output.within
    return origins


def _taken(outputs: Sequence[Output]) -> Iterator[tuple[Column, Column]]:
    """Yield the columns that a projection takes as they are, each with what it is called there."""
    for output in outputs:
        if output.of is not None:
            yield output.of, output.column


def _shown(outputs: Sequence[Output]) -> dict[Column, Column]:
    """Return a column of a projection for each that it takes as it is."""
    return dict(_taken(outputs))


def _equal_shown(
    equal: Iterable[Equality],
    shown: Mapping[Column, Column],
) -> frozenset[Equality]:
    """Return which columns of a projection are equal."""
    found = set()
    for one, other in equal:
        if one in shown and other in shown:
            pair = (shown[one], shown[other])
            found.add(pair)
    return frozenset(found)


def _key_shown(
    key: frozenset[Column] | None,
    shown: Mapping[Column, Column],
) -> frozenset[Column] | None:
    """Return a key in the columns of a projection; None if one of them is not shown."""
    if key is None:
        return None
    if not key <= shown.keys():
        return None
    return frozenset(shown[column] for column in key)


def restrict(below: Relation, equalities: Iterable[Equality]) -> Relation:
    """Return the rows that fit a condition: columns that must be equal share their bonds."""
    equal = below.equal.union(equalities)
    bonds = _shared(below.bonds, equal)
    return replace(below, bonds=bonds, equal=equal)


def join(
    left: Relation,
    right: Relation,
    how: Joining,
    equalities: Sequence[Equality],
) -> Relation:
    """Return a join.

    The side whose rows stay without a match keeps its bonds, and is bound to the other by the equalities. Columns of the other
    side are null where there is no match: any of its rows may touch those.

    Args:
        left: The left side.
        right: The right side.
        how: Which join.
        equalities: What its condition wants, of columns of both sides.
    """
    columns = left.columns
    if how not in (Joining.SEMI, Joining.ANTI):
        columns += right.columns
    equal = _equal_joined(left, right, how, equalities)
    bonds = _bonds_joined(left, right, how, equalities)
    joined = Relation(
        columns=columns,
        readings={**left.readings, **right.readings},
        bonds=_shared(bonds, equal),
        origins={**left.origins, **right.origins},
        key=_key_of_join(left, right, how, equalities),
        equal=equal,
        losses={**left.losses, **right.losses},
    )
    return _with_losses(joined, [left, right], f"a {how} join")


def _equal_joined(
    left: Relation,
    right: Relation,
    how: Joining,
    equalities: Sequence[Equality],
) -> frozenset[Equality]:
    """Return which columns are equal in each row of a join, also in one without a match."""
    if how is Joining.INNER:
        return left.equal.union(right.equal, equalities)
    if how is Joining.FULL:
        return frozenset()
    kept = right if how is Joining.RIGHT else left
    return kept.equal


def _bonds_joined(
    left: Relation,
    right: Relation,
    how: Joining,
    equalities: Sequence[Equality],
) -> dict[Column, Bonds]:
    """Return the bonds that the sides of a join keep, and those that its condition gives them."""
    if how is Joining.INNER:
        return {**left.bonds, **right.bonds}
    if how is Joining.FULL:
        return {}
    kept, other = (right, left) if how is Joining.RIGHT else (left, right)
    bonds = {column: kept.bonds_of(column) for column in kept.columns}
    for first, second in equalities:
        own, others = (first, second) if first in bonds else (second, first)
        if own in bonds:
            bonds[own] = {**other.bonds_of(others), **bonds[own]}
    return bonds


def _key_of_join(
    left: Relation,
    right: Relation,
    how: Joining,
    equalities: Sequence[Equality],
) -> frozenset[Column] | None:
    """Return the key of a side for each of whose rows there is no more than one of the other."""
    if how in (Joining.SEMI, Joining.ANTI):
        return left.key
    if left.key is None or right.key is None:
        return None
    equated: set[Column] = set()
    for pair in equalities:
        if _is_across(pair, left):
            equated.update(pair)
    if how in (Joining.INNER, Joining.LEFT) and right.key <= equated:
        return left.key
    if how in (Joining.INNER, Joining.RIGHT) and left.key <= equated:
        return right.key
    return None


def _is_across(pair: Equality, left: Relation) -> bool:
    first, second = pair
    is_first_left = first in left.columns
    is_second_left = second in left.columns
    return is_first_left != is_second_left


def _shared(
    bonds: Mapping[Column, Bonds],
    equalities: Iterable[Equality],
) -> dict[Column, Bonds]:
    """Give columns that are equal the bonds of each other, until there are no more to give."""
    shared = dict(bonds)
    pairs = list(equalities)
    is_changing = True
    while is_changing:
        is_changing = False
        for first, second in pairs:
            one = shared.get(first, {})
            other = shared.get(second, {})
            if one.keys() != other.keys():
                together = {**one, **other}
                shared[first] = {**together, **one}
                shared[second] = {**together, **other}
                is_changing = True
    return shared


def group(
    below: Relation,
    by: Iterable[Column],
    outputs: Sequence[Output],
    key: frozenset[Column] | None = None,
) -> Relation:
    """Return one row a group: only columns that it is grouped by keep their bonds.

    Args:
        below: What is grouped.
        by: The columns by which; of a computed expression there is none.
        outputs: What is shown of a group.
        key: Those of the outputs that show all that it is grouped by; None: not all of it is shown.
    """
    kept_bonds = _only(below.bonds, set(by))
    kept = replace(below, bonds=kept_bonds)
    projected = project(kept, outputs)
    shown = replace(projected, key=key)
    return _with_losses(shown, [below], "an aggregate that is not grouped by a column of it")


def window(
    below: Relation,
    by: Iterable[Column],
    outputs: Sequence[Output],
) -> Relation:
    """Return rows with what is computed over the others of their partition: only columns that partition keep their bonds."""
    kept_bonds = _only(below.bonds, set(by))
    extended = _extended(below, outputs)
    kept = replace(extended, bonds=kept_bonds)
    return _with_losses(kept, [below], "a window that is not partitioned by a column of it")


def generate(below: Relation, outputs: Sequence[Output]) -> Relation:
    """Return several rows for each row, with further columns."""
    extended = _extended(below, outputs)
    return replace(extended, key=None)


def _extended(below: Relation, outputs: Sequence[Output]) -> Relation:
    """Return rows with further columns."""
    made = _made(below, outputs)
    return replace(
        below,
        columns=(*below.columns, *_columns(outputs)),
        origins={**below.origins, **made},
    )


def distinct(below: Relation) -> Relation:
    """Return each row once."""
    key = below.key or frozenset(below.columns)
    return replace(below, key=key)


def combine(branches: Sequence[Relation]) -> Relation:
    """Return a UNION, INTERSECT or EXCEPT: its columns are the first one's, bound as those in their places."""
    columns = branches[0].columns
    bonds: dict[Column, dict[Reading, str]] = {column: {} for column in columns}
    origins: dict[Column, frozenset[Origin]] = dict.fromkeys(columns, frozenset())
    for branch in branches:
        for column, own in zip(columns, branch.columns, strict=True):
            bonds[column] |= branch.bonds_of(own)
            origins[column] |= branch.origins_of([own])
    combined = Relation(
        columns=columns,
        readings=_readings(branches),
        bonds=bonds,
        origins=origins,
        losses=_losses(branches),
    )
    return _with_losses(combined, branches, "a branch of a UNION, INTERSECT or EXCEPT")


def unknown(
    parts: Sequence[Relation],
    made: Iterable[Column],
    why: str,
) -> Relation:
    """Return what is done to some results in a way that is not known: any row of theirs may touch any row of it.

    Args:
        parts: The results.
        made: The columns that come with it: they may be made of all that there is below.
        why: What is done.
    """
    columns: list[Column] = []
    origins: dict[Column, frozenset[Origin]] = {}
    for part in parts:
        columns += part.columns
        origins |= part.origins
    all_origins = frozenset().union(*origins.values())
    for column in made:
        origins.setdefault(column, all_origins)
    readings = _readings(parts)
    lost = dict.fromkeys(readings, why)
    return Relation(
        columns=tuple(columns),
        readings=readings,
        origins=origins,
        losses={**lost, **_losses(parts)},
    )


def _readings(parts: Sequence[Relation]) -> dict[Reading, str]:
    readings: dict[Reading, str] = {}
    for part in parts:
        readings |= part.readings
    return readings


def _losses(parts: Sequence[Relation]) -> dict[Reading, str]:
    losses: dict[Reading, str] = {}
    for part in parts:
        losses |= part.losses
    return losses


def renumbered(below: Relation, columns: Sequence[Column]) -> Relation:
    """Return a result under other ids of its columns."""
    outputs = []
    for column, of in zip(columns, below.columns, strict=True):
        output = Output(column, of, reads=(of,))
        outputs.append(output)
    return project(below, outputs)


def beside(
    below: Relation,
    inner: Iterable[Relation],
    outer: Sequence[Column] = (),
) -> Relation:
    """Return a result whose expressions read further tables: any row of these may touch any row of it.

    Args:
        below: The result.
        inner: What the subqueries of an expression give.
        outer: The columns of `below` that the expression reads, also within these.
    """
    readings = dict(below.readings)
    losses = dict(below.losses)
    origins = dict(below.origins)
    outer_origins = below.origins_of(outer)
    for relation in inner:
        readings |= relation.readings
        losses |= dict.fromkeys(relation.readings, "it is read in a subquery of an expression")
        for column in relation.columns:
            own = relation.origins_of([column])
            origins.setdefault(column, own | outer_origins)
    return replace(
        below,
        readings=readings,
        losses=losses,
        origins=origins,
    )


def unbound(below: Relation, why: str) -> Relation:
    """Return a result of which nothing is known but what it reads."""
    freed = replace(
        below,
        bonds={},
        key=None,
        equal=frozenset(),
    )
    return _with_losses(freed, [below], why)


def _only(
    bonds: Mapping[Column, Bonds],
    columns: set[Column],
) -> dict[Column, Bonds]:
    return {column: own for column, own in bonds.items() if column in columns}


def _with_losses(
    after: Relation,
    before: Sequence[Relation],
    why: str,
) -> Relation:
    """Note why readings that were bound before are not any more."""
    was_bound: set[Reading] = set()
    for part in before:
        was_bound |= _bound(part)
    lost = was_bound - _bound(after)
    reasons = dict.fromkeys(lost, why)
    return replace(after, losses={**reasons, **after.losses})


def _bound(relation: Relation) -> set[Reading]:
    bound: set[Reading] = set()
    for column in relation.columns:
        bound.update(relation.bonds_of(column))
    return bound


Cut = tuple[tuple[str, ...], ...]
"""For each reading of an input the columns of it that hold the values of some columns of the view."""


@dataclass(frozen=True)
class Lineage:
    """What a view's columns tell about its inputs.

    Args:
        names: Names of the view's columns, in order.
        result: What its query gives.
    """

    names: tuple[str, ...]
    result: Relation

    def columns_of(self, table: str) -> list[str]:
        """Return the columns of the view that are bound in every reading of an input; none: it has to be computed whole."""
        readings = self._readings(table)
        found = []
        for name, column in self._named():
            bonds = self.result.bonds_of(column)
            is_bound = all(reading in bonds for reading in readings)
            if readings and is_bound:
                found.append(name)
        return found

    def common_columns(self, tables: Iterable[str]) -> list[str]:
        """Return the columns of the view that are bound in every reading of several inputs."""
        common = list(self.names)
        for table in tables:
            own = self.columns_of(table)
            common = [name for name in common if name in own]
        return common

    def cut(self, table: str, columns: Sequence[str]) -> Cut:
        """Return for each reading of an input what columns of the view are called there.

        Args:
            table: The input.
            columns: Of the view, some of `columns_of`.
        """
        column_named = dict(self._named())
        cuts = set()
        for reading in self._readings(table):
            own = []
            for name in columns:
                bonds = self.result.bonds_of(column_named[name])
                own.append(bonds[reading])
            cuts.add(tuple(own))
        return tuple(sorted(cuts))

    def reason(self, table: str) -> str:
        """Say why an input has to be computed whole."""
        for reading in self._readings(table):
            if reading in self.result.losses:
                return self.result.losses[reading]
        return "no column of the view is bound to one column in all places where it is read"

    @property
    def key(self) -> list[str] | None:
        """The columns by which the query tells its rows apart; None if that is not known."""
        key = self.result.key
        if key is None or not key <= set(self.result.columns):
            return None
        return [name for name, column in self._named() if column in key]

    def origins(self, name: str) -> frozenset[Origin]:
        """Return what a column of the view is made of."""
        column_named = dict(self._named())
        return self.result.origins_of([column_named[name]])

    @property
    def tables(self) -> set[str]:
        """The inputs that are read."""
        return set(self.result.readings.values())

    def _named(self) -> Iterator[tuple[str, Column]]:
        return zip(self.names, self.result.columns, strict=True)

    def _readings(self, table: str) -> list[Reading]:
        readings = self.result.readings
        return [reading for reading, name in readings.items() if name == table]
