"""What the lineage says of random queries, held against Spark: rows with some values are the same over tables cut to what is bound."""

import os
import random

import pyarrow as pa
import pytest
from oracles.random_plans import TABLES, RandomQueries

from ebbtide.errors import ViewQueryError
from ebbtide.views.query import analyse, evaluate, new_session

N_RANDOM = int(os.environ.get("EBBTIDE_RANDOM_VIEWS", "1000"))
TYPES = {"id": pa.int64(), "x": pa.int32(), "k": pa.int32(), "seq": pa.int64(), "sc": pa.int64()}


class Claims:
    """Small tables, and what is claimed of queries over them."""

    def __init__(self, spark, seed):
        self.session = new_session(spark)
        self.draw = random.Random(seed)
        self.rows = {name: self._drawn(columns) for name, columns in TABLES.items()}
        self.tables = {name: self._frame(name, rows) for name, rows in self.rows.items()}
        self.schemas = {name: frame.schema for name, frame in self.tables.items()}
        self.n_bound = 0

    def _drawn(self, columns):
        n = self.draw.randint(4, 9)
        key = {"id": self.draw.sample(range(9), n)}
        return [
            {name: key["id"][number] if name == "id" else self._value(name) for name in columns} for number in range(n)
        ]

    def _value(self, name):
        return self.draw.choice(
            [None, "p", "q"] if name in ("y", "w") else [0, 1, 2] if name == "k" else [None, 0, 1, 2]
        )

    def _frame(self, name, rows):
        schema = pa.schema([(column, TYPES.get(column, pa.string())) for column in TABLES[name]])
        return self.session.createDataFrame(pa.Table.from_pylist(rows, schema)).coalesce(1)

    def evaluated(self, query, tables):
        return evaluate(self.session, query, tables).toArrow().to_pylist()

    def hold(self, query, n_cuts):
        """Assert what the lineage claims of a query, for some values of the tables that are bound; return whether Spark takes it."""
        try:
            analysis = analyse(self.session, query, self.schemas, keys={"a": ["id"], "b": ["id"]})
        except ViewQueryError as error:
            if "SUBQUERY" not in str(error) and "CORRELATED" not in str(error):
                raise
            return False
        found = analysis
        whole = self.evaluated(query, self.tables)
        for key in found.keys:
            keys = [tuple(row[name] for name in key) for row in whole]
            assert len(keys) == len(set(keys)), f"{query}: two rows of a key {key}"
        for _ in range(n_cuts):
            self._hold_cut(query, found, whole)
        return True

    def _hold_cut(self, query, found, whole):
        changed = self.draw.sample(sorted(found.tables), self.draw.randint(1, len(found.tables)))
        columns = found.common_columns(changed)
        if not columns:
            return
        self.n_bound += 1
        values = set()
        for name in changed:
            cuts = found.cut(name, columns)
            values |= {tuple(row[own] for own in cut) for row in self.draw.sample(self.rows[name], 2) for cut in cuts}
        tables = dict(self.tables)
        for name in found.tables:
            cuts = found.cut(name, columns)
            if cuts:
                left = [row for row in self.rows[name] if any(tuple(row[own] for own in cut) in values for cut in cuts)]
                tables[name] = self._frame(name, left)
        has_value = lambda row: tuple(row[name] for name in columns) in values  # noqa: E731
        cut = self.evaluated(query, tables)
        said = f"{query}\nchanged {changed}, {columns} in {values}\n{self.rows}"
        assert sorted(map(repr, filter(has_value, cut))) == sorted(map(repr, filter(has_value, whole))), said


def test_random_queries_are_right_over_cut_tables(spark):
    claims = Claims(spark, seed=5)
    taken = [claims.hold(RandomQueries(seed).query(depth=2).sql, n_cuts=1) for seed in range(5)]
    assert sum(taken) > len(taken) // 2
    assert claims.n_bound > 1


@pytest.mark.grid
@pytest.mark.parametrize("part", range(20))
def test_many_random_queries_are_right_over_cut_tables(spark, part):
    claims = Claims(spark, seed=part)
    n = N_RANDOM // 20
    taken = [claims.hold(RandomQueries(part * n + number).query().sql, n_cuts=4) for number in range(n)]
    assert sum(taken) > n // 2
    assert claims.n_bound > n // 2
