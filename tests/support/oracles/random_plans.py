"""Random queries over the tables of `view_inputs`, of nearly all that Spark SQL has; none leaves an order of rows open.

A query is put together from its leaves upwards. Each step has columns with names of its own, numbers or texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

TABLES = {
    "a": {"id": "n", "x": "n", "y": "t", "seq": "n"},
    "b": {"id": "n", "x": "n", "y": "t", "seq": "n"},
    "c": {"id": "n", "k": "n", "w": "t", "sc": "n"},
}
"""Columns of the tables: `n` for numbers, `t` for texts."""
JOINS = ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
SETS = ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
GROUPINGS = ["{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"]


@dataclass(frozen=True)
class Query:
    """A query, and its columns: name to `n` or `t`."""

    sql: str
    columns: dict[str, str]


class RandomQueries:
    """Makes queries.

    Args:
        seed: Of all that is drawn.
        tables: Columns of the tables, see `TABLES`; those beside `a`, `b` and `c` are of any names.
        first: The names that it gives are numbered from here: they must not be those of the tables' columns.
    """

    def __init__(self, seed: int, tables: Mapping[str, Mapping[str, str]] = TABLES, first: int = 1) -> None:
        self.draw = random.Random(seed)
        self.tables = tables
        self._n_names = first - 1

    def query(self, depth: int = 3) -> Query:
        """Return a query of no more than some steps, one above the other."""
        if depth == 0 or self.draw.random() < 0.1:
            return self._table()
        kinds: list[Callable[[int], Query]] = [
            self._projection,
            self._projection,
            self._join,
            self._join,
            self._join,
            self._combination,
            self._combination,
            self._group,
            self._group,
            self._window,
            self._window,
            self._distinct,
            self._membership,
            self._membership,
            self._scalar,
            self._lateral,
            self._limit,
            self._pivot,
            self._explosion,
            self._named,
            self._pipe,
        ]
        make = self.draw.choice(kinds)
        return make(depth - 1)

    def _name(self, prefix: str = "k") -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def _table(self) -> Query:
        table = self.draw.choice(sorted(self.tables))
        columns = dict(self.tables[table])
        if self.draw.random() < 0.3:
            return Query(f"TABLE {table}", columns)
        return self._shown(table, columns)

    def _shown(self, rows: str, columns: dict[str, str], rest: str = "") -> Query:
        """Select some columns of rows, in any order, by new names."""
        some = self.draw.sample(sorted(columns), self.draw.randint(min(2, len(columns)), len(columns)))
        named = {self._name(): column for column in some}
        shown = ", ".join(f"{column} AS {name}" for name, column in named.items())
        return Query(f"SELECT {shown} FROM {rows} {rest}", {name: columns[column] for name, column in named.items()})

    def _below(self, depth: int) -> tuple[str, dict[str, str]]:
        """Return a query in parentheses, with a name, and its columns by that name."""
        inner = self.query(depth)
        alias = self._name("r")
        return f"({inner.sql}) {alias}", {f"{alias}.{name}": kind for name, kind in inner.columns.items()}

    def _one(self, columns: dict[str, str], kind: str = "n") -> str:
        """Return a column of a kind, or what makes one of another."""
        fitting = sorted(name for name, own in columns.items() if own == kind)
        if fitting:
            return self.draw.choice(fitting)
        other = self.draw.choice(sorted(columns))
        return f"length({other})" if kind == "n" else f"CAST({other} AS STRING)"

    def _pair(self, left: dict[str, str], right: dict[str, str]) -> str:
        """Compare columns of two sides."""
        kind = self.draw.choice("nnt")
        sign = self.draw.choice(["=", "=", "=", "=", "<=>", "<"])
        first, second = self._one(left, kind), self._one(right, kind)
        if self.draw.random() < 0.3:
            first, second = second, first
        return f"{first} {sign} {second}"

    def _condition(self, columns: dict[str, str]) -> str:
        draw = self.draw
        number, text = self._one(columns), self._one(columns, "t")
        return draw.choice(
            [
                f"{number} > {draw.randint(0, 3)}",
                f"{number} = {self._one(columns)}",
                f"{number} = {self._one(columns)} AND {self._one(columns)} <=> {self._one(columns)}",
                f"{text} = 'p' OR {number} = 1",
                f"{text} <=> 'q'",
                f"NOT ({text} = {self._one(columns, 't')})",
                f"{number} IS NOT NULL",
            ]
        )

    def _projection(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        where = f"WHERE {self._condition(columns)}" if self.draw.random() < 0.6 else ""
        shown = self._shown(rows, columns, where)
        if self.draw.random() < 0.5:
            return shown
        computed = self._name()
        expression = self.draw.choice([f"{self._one(columns)} + 1", f"coalesce({self._one(columns)}, 0)", "7"])
        sql = shown.sql.replace("SELECT ", f"SELECT {expression} AS {computed}, ", 1)
        return Query(sql, {computed: "n", **shown.columns})

    def _join(self, depth: int) -> Query:
        left, own = self._below(depth)
        right, other = self._below(depth - 1 if depth else 0)
        how = self.draw.choice(JOINS)
        condition = self._pair(own, other)
        if self.draw.random() < 0.4:
            further = self.draw.choice([self._pair(own, other), self._condition(own), self._condition(other)])
            condition += f" AND {further}"
        shown = own if how in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else own | other
        where = f"WHERE {self._condition(shown)}" if self.draw.random() < 0.3 else ""
        return self._shown(f"{left} {how} {right} ON {condition}", shown, where)

    def _alike(self, depth: int, kinds: Sequence[str]) -> str:
        """Select columns of some kinds; a number may be cast to another type."""
        rows, columns = self._below(depth)
        shown = []
        for kind in kinds:
            value = self._one(columns, kind)
            is_cast = kind == "n" and self.draw.random() < 0.2
            shown.append(f"{f'CAST({value} AS BIGINT)' if is_cast else value} AS {self._name()}")
        return f"SELECT {', '.join(shown)} FROM {rows}"

    def _combination(self, depth: int) -> Query:
        sign = self.draw.choice(SETS)
        if self.draw.random() < 0.3:
            columns = dict(self.tables["a"])
            rows = f"(TABLE a {sign} TABLE b) {self._name('r')}"
            return self._shown(rows, columns) if self.draw.random() < 0.5 else Query(f"TABLE a {sign} TABLE b", columns)
        kinds = [self.draw.choice("nnt") for _ in range(self.draw.randint(1, 3))]
        parts = [self._alike(depth, kinds), self._alike(0, kinds)]
        names = {self._name(): kind for kind in kinds}
        rows = f"(({parts[0]}) {sign} ({parts[1]})) {self._name('r')}({', '.join(names)})"
        return Query(f"SELECT * FROM {rows}", names)

    def _group(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        by = {self._name(): self._one(columns, kind) for kind in self.draw.choice(["n", "t", "nt", "nn"])}
        kinds = {name: "t" if columns.get(of) == "t" or of.startswith("CAST") else "n" for name, of in by.items()}
        computed = {
            self._name(): self.draw.choice(["count(*)", f"sum({self._one(columns)})", f"max({self._one(columns)})"])
        }
        shown = [*by] if self.draw.random() < 0.8 else [*by][:1]
        selected = ", ".join(f"{value} AS {name}" for name, value in {**{n: by[n] for n in shown}, **computed}.items())
        grouping = self.draw.choice(GROUPINGS).format(", ".join(by.values()))
        having = "HAVING count(*) > 1" if self.draw.random() < 0.2 else ""
        found = {**{name: kinds[name] for name in shown}, **dict.fromkeys(computed, "n")}
        return Query(f"SELECT {selected} FROM {rows} GROUP BY {grouping} {having}", found)

    def _window(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        every = ", ".join(columns)
        computed = {}
        for _ in range(self.draw.randint(1, 2)):
            by = self.draw.choice(["", f"PARTITION BY {self._one(columns)}", f"PARTITION BY {self._one(columns, 't')}"])
            call = self.draw.choice(
                ["row_number()", "rank()", f"sum({self._one(columns)})", f"lag({self._one(columns)})"]
            )
            computed[self._name()] = f"{call} OVER ({by} ORDER BY {every})"
        shown = self._shown(rows, columns)
        windows = ", ".join(f"{value} AS {name}" for name, value in computed.items())
        all_columns = {**dict.fromkeys(computed, "n"), **shown.columns}
        sql = shown.sql.replace("SELECT ", f"SELECT {windows}, ", 1)
        if self.draw.random() < 0.3:
            return Query(f"SELECT * FROM ({sql}) WHERE {next(iter(computed))} = 1", all_columns)
        return Query(sql, all_columns)

    def _distinct(self, depth: int) -> Query:
        shown = self._shown(*self._below(depth))
        return Query(shown.sql.replace("SELECT ", "SELECT DISTINCT ", 1), shown.columns)

    def _membership(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        inner, own = self._below(0)
        column = self._one(own)
        nothing = self.draw.choice(["", "NOT "])
        is_in = f"{self._one(columns)} {nothing}IN (SELECT {column} FROM {inner})"
        exists = f"{nothing}EXISTS (SELECT 1 FROM {inner} WHERE {self._pair(own, columns)})"
        condition = self.draw.choice([is_in, exists])
        if self.draw.random() < 0.3:
            condition += f" {self.draw.choice(['AND', 'OR'])} {self._condition(columns)}"
        return self._shown(rows, columns, f"WHERE {condition}")

    def _scalar(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        inner, own = self._below(0)
        where = self.draw.choice(["", f"WHERE {self._one(own)} = {self._one(columns)}"])
        value = f"(SELECT max({self._one(own)}) FROM {inner} {where})"
        if self.draw.random() < 0.5:
            return self._shown(rows, columns, f"WHERE {self._one(columns)} = {value}")
        shown = self._shown(rows, columns)
        name = self._name()
        return Query(shown.sql.replace("SELECT ", f"SELECT {value} AS {name}, ", 1), {name: "n", **shown.columns})

    def _lateral(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        inner, own = self._below(0)
        alias, name = self._name("r"), self._name()
        value = self.draw.choice([f"max({self._one(own)})", "count(*)"])
        joined = f"{rows}, LATERAL (SELECT {value} AS {name} FROM {inner} WHERE {self._pair(own, columns)}) {alias}"
        return self._shown(joined, {**columns, f"{alias}.{name}": "n"})

    def _limit(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        return self._shown(f"(SELECT * FROM {rows} ORDER BY {', '.join(columns)} LIMIT 3) q", _without_alias(columns))

    def _pivot(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        by, names = self._name(), (self._name(), self._name())
        given = f"SELECT {self._one(columns)} AS {by}, {self._one(columns)} AS v, {self._one(columns, 't')} AS p FROM {rows}"
        pivot = f"PIVOT (max(v) FOR p IN ('p' AS {names[0]}, 'q' AS {names[1]}))"
        return Query(f"SELECT * FROM ({given}) {pivot}", {by: "n", names[0]: "n", names[1]: "n"})

    def _explosion(self, depth: int) -> Query:
        rows, columns = self._below(depth)
        name = self._name()
        outer = self.draw.choice(["", "OUTER "])
        made = f"explode(array({self._one(columns)}, {self._one(columns)}))"
        return self._shown(f"{rows} LATERAL VIEW {outer}{made} e AS {name}", {**columns, name: "n"})

    def _named(self, depth: int) -> Query:
        inner = self.query(depth)
        name = self._name("w")
        left = {f"p.{column}": kind for column, kind in inner.columns.items()}
        right = {f"q.{column}": kind for column, kind in inner.columns.items()}
        rows = f"{name} p {self.draw.choice(JOINS[:4])} {name} q ON {self._pair(left, right)}"
        shown = self._shown(rows, left | right)
        return Query(f"WITH {name} AS ({inner.sql}) {shown.sql}", shown.columns)

    def _pipe(self, depth: int) -> Query:
        inner = self.query(depth)
        step = self.draw.choice(["where", "join", "aggregate", "extend", "set"])
        columns = inner.columns
        begin = f"FROM ({inner.sql}) {self._name('r')}"
        new = self._name()
        if step == "where":
            return Query(f"{begin} |> WHERE {self._condition(columns)}", columns)
        if step == "extend":
            return Query(f"{begin} |> EXTEND {self._one(columns)} + 1 AS {new}", {**columns, new: "n"})
        if step == "aggregate":
            by = self._name()
            return Query(
                f"{begin} |> AGGREGATE count(*) AS {new} GROUP BY {self._one(columns)} AS {by}", {by: "n", new: "n"}
            )
        if step == "set":
            value = next(iter(columns))
            changed = f"coalesce({value}, {'-1' if columns[value] == 'n' else repr('none')})"
            return Query(f"{begin} |> SET {value} = {changed}", columns)
        right, other = self._below(0)
        how = self.draw.choice(["JOIN", "LEFT JOIN"])
        joined = f"{begin} |> {how} {right} ON {self._pair(columns, other)}"
        shown = self._shown("x", columns | other)
        return Query(f"{joined} |> {shown.sql.replace(' FROM x ', '')}", shown.columns)


def _without_alias(columns: dict[str, str]) -> dict[str, str]:
    return {name.rpartition(".")[2]: kind for name, kind in columns.items()}
