"""A column of every type that a pipeline's schema takes, in views: as a value, joined by, grouped by, and as a key."""

import os

import pytest
from frame.limits import set_limits
from oracles.view_inputs import Followed, Input, Oracle
from pydantic import ValidationError

from ebbtide import MaterializedView

TYPES = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 1],
    "INT": [-(2**31), 1],
    "BIGINT": [2**62, -(2**62)],
    "FLOAT": ["NaN", -0.0, 0.0, 0.1],
    "DOUBLE": ["NaN", -0.0, 0.0, 0.1, "Infinity"],
    "DECIMAL(4,2)": ["1.50", "-0.01"],
    "DECIMAL(38,18)": ["12345678901234567890.000000000000000001", "0"],
    "STRING": ["", "é", "e\u0301"],
    "BINARY": ["AAE=", ""],
    "DATE": ["1582-10-04", "9999-12-31"],
    "TIMESTAMP": ["2026-03-29T00:59:59.999999Z", "1890-01-01T00:00:00Z"],
    "TIMESTAMP_NTZ": ["2026-03-29T02:30:00", "0001-01-01T00:00:00"],
    "ARRAY<INT>": [[1, None], []],
    "STRUCT<a: INT, b: STRING>": [{"a": 1, "b": None}, {"a": None, "b": "y"}],
    "ARRAY<STRUCT<d: DATE>>": [[{"d": "2026-01-01"}], [None]],
}
"""Types, and values of them as records hold them."""
INEXACT = ["FLOAT", "DOUBLE", "ARRAY<INT>", "STRUCT<a: INT, b: STRING>", "ARRAY<STRUCT<d: DATE>>"]
SOME = ["DECIMAL(38,18)", "BINARY", "TIMESTAMP"]
"""Exact types of the fast suite, which has DOUBLE with them; the grid has them all."""
NAMES = {type_: f"v{number}" for number, type_ in enumerate(TYPES)}
COLUMNS = ", ".join(f"{name} {type_}" for type_, name in NAMES.items())
GROUPED = "SELECT {0}, count(*) AS n FROM t GROUP BY {0}"
SHAPES = {
    "value": ("SELECT id, {0} FROM t WHERE {0} IS NOT NULL", ["id"]),
    "joined": ("SELECT t.id AS i, u.id AS j, t.{0} FROM t LEFT JOIN u ON t.{0} = u.{0}", ["i"]),
    "joined, null too": ("SELECT t.id AS i, u.id AS j, u.{0} FROM t JOIN u ON t.{0} <=> u.{0}", ["i"]),
    "grouped": (GROUPED, ["n"]),
    "union": ("SELECT {0} FROM t UNION SELECT {0} FROM u", None),
    "partitioned": ("SELECT id, {0}, count(*) OVER (PARTITION BY {0}) AS n FROM t", ["id"]),
}


@pytest.fixture(autouse=True)
def _inputs_without_spark():
    set_limits(rows_in_driver=10_000)


class Tables:
    """Two tables, each with a column of each type."""

    def __init__(self, home):
        schema = f"id BIGINT NOT NULL, {COLUMNS}, seq BIGINT"
        self.root = home / "root"
        self.tables = {name: Input(home, name, schema, ["id"], "seq") for name in "tu"}
        self.number = 0
        self.change({"t": range(6), "u": range(6)})

    def change(self, ids_of):
        """Give rows of tables the values of their type that come next."""
        for table, ids in ids_of.items():
            self.number += 1
            self.tables[table].change(self.number, [("+U", self._row(id_)) for id_ in ids])

    def _row(self, id_):
        row = {"id": id_}
        for type_, name in NAMES.items():
            values = [*TYPES[type_], None]
            row[name] = values[(id_ + self.number) % len(values)]
        return row


def followed(oracle, folder, shape, name):
    query, key = SHAPES[shape]
    return Followed(oracle, oracle.view(query.format(name), key or [name]), folder)


def shapes_of(type_):
    """What a column of a type can stand for; it cannot be a key where it is not exact."""
    return [shape for shape, (_, key) in SHAPES.items() if key or type_ not in INEXACT]


def test_views_grouped_by_columns_of_some_types_are_right_after_a_change(spark, tmp_path):
    tables = Tables(tmp_path)
    oracle = Oracle(spark, tables.root, is_read_by_spark=False)
    exact = ", ".join(NAMES[type_] for type_ in SOME)
    views = [followed(oracle, tmp_path, "grouped", f"{exact}, {NAMES['DOUBLE']}")]
    for each in views:
        each.step()
    tables.change({"t": [0, 3]})
    assert not any(each.step().reason for each in views)


@pytest.mark.parametrize("type_", INEXACT)
def test_column_whose_values_have_no_exact_order_is_no_key(type_):
    with pytest.raises(ValidationError, match="an exact type: no FLOAT, DOUBLE, ARRAY, MAP, STRUCT"):
        MaterializedView(name="v", query="SELECT v FROM t", key=["v"], schema=f"v {type_}", inputs=["t"])


@pytest.mark.grid
@pytest.mark.parametrize("is_little", [True, False], ids=["cut here", "cut by Spark"])
@pytest.mark.parametrize("type_", TYPES)
def test_views_with_a_column_of_each_type_are_right_after_each_step(spark, tmp_path, type_, is_little):
    if not is_little:
        set_limits(view_table_bytes=-1)
    tables = Tables(tmp_path)
    oracle = Oracle(spark, tables.root)
    views = [followed(oracle, tmp_path, shape, NAMES[type_]) for shape in shapes_of(type_)]
    for number in range(int(os.environ.get("EBBTIDE_VIEW_ROUNDS", "10"))):
        for each in views:
            each.step()
        tables.change([{"t": [0, number % 6]}, {"u": [1, 2]}, {"t": [3], "u": [3, 4, 5]}][number % 3])
