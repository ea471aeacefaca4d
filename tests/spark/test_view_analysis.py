"""What Spark's optimizer and analyzer say of queries: bound columns, keys, origins; and what is refused."""

import pytest
from frame.thinned import thinned
from oracles.view_inputs import ITEMS, PARTS

from ebbtide.ddl import parse_ddl
from ebbtide.errors import ViewQueryError
from ebbtide.sessions import spark_schema
from ebbtide.views.query import analyse, new_session

KEYS = {"a": ["id"], "b": ["id"], "c": ["id", "k"]}
SCHEMAS = {
    name: spark_schema(parse_ddl(ddl).columns, nullable=True)
    for name, ddl in {"a": ITEMS, "b": ITEMS, "c": PARTS}.items()
}


@pytest.fixture(scope="module")
def lineage_of(spark):
    session = new_session(spark)
    return lambda query: analyse(session, query, SCHEMAS, KEYS)


BOUND = {
    "SELECT id AS i, x + 1 AS n FROM a": {"a": ["i"]},
    "SELECT id, x FROM a WHERE id = x": {"a": ["id", "x"]},
    "SELECT a.id, a.x, b.y FROM a JOIN b ON a.id = b.id": {"a": ["id", "x"], "b": ["id", "y"]},
    "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.id = b.id": {"a": ["i", "j"], "b": ["i", "j"]},
    "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.id = b.x": {"a": ["i"], "b": ["j"]},
    "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.x < b.x": {"a": ["i"], "b": ["j"]},
    "SELECT a.id AS i, b.id AS j, a.y FROM a JOIN b ON a.y <=> b.y": {"a": ["i", "y"], "b": ["j", "y"]},
    "SELECT a.id, a.y, b.x FROM a LEFT JOIN b ON a.id = b.id": {"a": ["id", "y"], "b": ["id"]},
    "SELECT b.id, a.y, b.x FROM a RIGHT JOIN b ON a.id = b.id": {"a": ["id"], "b": ["id", "x"]},
    "SELECT a.id AS i, b.id AS j FROM a FULL JOIN b ON a.id = b.id": {"a": [], "b": []},
    "SELECT id, y FROM a LEFT SEMI JOIN b ON a.id = b.id": {"a": ["id", "y"], "b": ["id"]},
    "SELECT id, y FROM a LEFT ANTI JOIN b ON a.id = b.id": {"a": ["id", "y"], "b": ["id"]},
    "SELECT id, y FROM a WHERE id IN (SELECT id FROM b)": {"a": ["id", "y"], "b": []},
    "SELECT id, (SELECT max(x) FROM b) AS m FROM a": {"a": ["id"], "b": []},
    "SELECT x, count(*) AS n FROM a GROUP BY x": {"a": ["x"]},
    "SELECT upper(y) AS u, count(*) AS n FROM a GROUP BY upper(y)": {"a": []},
    "SELECT count(*) AS n FROM a": {"a": []},
    "SELECT id, x, count(*) OVER (PARTITION BY x) AS n FROM a": {"a": ["x"]},
    "SELECT id, count(*) OVER () AS n FROM a": {"a": []},
    "SELECT id, x FROM a ORDER BY id LIMIT 3": {"a": []},
    "SELECT 'a' AS kind, id FROM a UNION ALL SELECT 'b', id FROM b": {"a": ["id"], "b": ["id"]},
    "SELECT id, x FROM a INTERSECT SELECT id, x FROM b": {"a": ["id", "x"], "b": ["id", "x"]},
    "SELECT id, x FROM a EXCEPT SELECT id, x FROM b": {"a": ["id", "x"], "b": ["id", "x"]},
    "SELECT id, x FROM a UNION SELECT id, 1 FROM b": {"a": ["id", "x"], "b": ["id"]},
}
"""Queries, and for each of their tables the columns by which a change of it alone is followed."""


@pytest.mark.parametrize("query", thinned(BOUND, 3))
def test_columns_are_bound_as_far_as_a_filter_of_them_is_moved(lineage_of, query):
    found = lineage_of(query)
    assert {table: found.common_columns([table]) for table in sorted(found.tables)} == BOUND[query]


def test_table_that_is_read_twice_is_bound_where_both_readings_are(lineage_of):
    found = lineage_of("SELECT id FROM a UNION ALL SELECT seq FROM a")
    assert found.common_columns(["a"]) == ["id"]
    assert found.cut("a", ["id"]) == (("id",), ("seq",))
    whole = lineage_of("SELECT p.id, q.y FROM a p JOIN a q ON p.x = q.x")
    assert (whole.common_columns(["a"]), whole.cut("a", ["id"])) == ([], None)


def test_table_that_the_optimizer_has_no_use_of_is_not_cut(lineage_of):
    found = lineage_of("SELECT id, y FROM a WHERE 1 = 2 UNION ALL SELECT id, y FROM b")
    assert found.tables == {"a", "b"}
    assert (found.cut("a", ["id"]), found.cut("b", ["id"])) == ((), (("id",),))


FOUND_KEYS = {
    "SELECT id, x FROM a": ["id"],
    "SELECT x, y FROM a": None,
    "SELECT DISTINCT x, y FROM a": ["x", "y"],
    "SELECT x, y, count(*) AS n FROM a GROUP BY x, y": ["x", "y"],
    "SELECT x, count(*) AS n FROM a GROUP BY x, y": None,
    "SELECT upper(y) AS u, count(*) AS n FROM a GROUP BY upper(y)": ["u"],
    "SELECT c.id, c.k, a.y FROM c JOIN a ON a.id = c.id": ["id", "k"],
    "SELECT a.id, c.w FROM a JOIN c ON a.id = c.id": None,
    "SELECT a.id AS i, b.id AS j FROM a FULL JOIN b ON a.id = b.id": None,
    "SELECT id, e FROM a LATERAL VIEW explode(array(x)) AS e": None,
    "SELECT x, id FROM (SELECT x, id, row_number() OVER (PARTITION BY x ORDER BY id) AS p FROM a) WHERE p = 1": ["id"],
    "SELECT id, x FROM a UNION ALL SELECT id, x FROM b": None,
}


@pytest.mark.parametrize("query", FOUND_KEYS)
def test_key_is_what_identifies_a_row(lineage_of, query):
    assert lineage_of(query).key == FOUND_KEYS[query]


ORIGINS = {
    "SELECT id, concat(y, CAST(x AS STRING)) AS v FROM a WHERE seq > 1": {"a.x", "a.y"},
    "SELECT a.id, b.y AS v FROM a JOIN b ON a.x = b.x": {"b.y"},
    "SELECT id, y AS v FROM a UNION ALL SELECT id, w FROM c": {"a.y", "c.w"},
    "SELECT id, y AS v FROM a EXCEPT SELECT id, w FROM c": {"a.y", "c.w"},
    "SELECT id, x IN (SELECT k FROM c) AS v FROM a": {"a.x", "c.k"},
    "SELECT x, max(y) AS v FROM a GROUP BY x": {"a.y"},
    "SELECT id, (SELECT max(w) FROM c) AS v FROM a": {"c.w"},
    "SELECT a.id, t.v FROM a, LATERAL (SELECT concat(c.w, a.y) AS v FROM c WHERE c.id = a.id) t": {"a.y", "c.w"},
    "SELECT id, v FROM (SELECT id, x, k FROM c JOIN (SELECT id AS i, x FROM a) ON i = id) UNPIVOT (v FOR n IN (x, k))": {
        "a.x",
        "c.k",
    },
    "SELECT y AS v, x, count(*) AS n FROM a GROUP BY ROLLUP (y, x)": {"a.y"},
    "SELECT id, v FROM a LATERAL VIEW explode(array(x, seq)) AS v": {"a.x", "a.seq"},
    "WITH g AS (SELECT id, y FROM a) SELECT p.id, q.y AS v FROM g p JOIN g q ON p.id = q.id": {"a.y"},
    "SELECT id, lag(y) OVER (PARTITION BY x ORDER BY id) AS v FROM a": {"a.id", "a.x", "a.y"},
    "SELECT id, 1 AS v FROM a": set(),
}


@pytest.mark.parametrize("query", thinned(ORIGINS, 3))
def test_column_is_made_of_what_its_values_are_made_of(lineage_of, query):
    assert {".".join(origin) for origin in lineage_of(query).origins("v")} == ORIGINS[query]


UNFIT = {
    "SELECT id FROM a LIMIT 3": "nothing says which. Got: LIMIT or OFFSET without ORDER BY",
    "SELECT id FROM (SELECT id FROM a SORT BY id) OFFSET 1": "LIMIT or OFFSET without ORDER BY",
    "SELECT id FROM a WHERE x = (SELECT x FROM b LIMIT 1)": "LIMIT or OFFSET without ORDER BY",
    "SELECT DISTINCT id FROM (SELECT DISTINCT id FROM (SELECT id FROM a ORDER BY id)) LIMIT 1": "LIMIT or OFFSET without",
    "SELECT id FROM a TABLESAMPLE (10 PERCENT)": "takes a sample",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r": "recursive",
    "SELECT x, first(y) AS y FROM a GROUP BY x": "order of rows. Got: First",
    "SELECT x, collect_list(y) AS y FROM a GROUP BY x": "Got: CollectList",
    "SELECT id, x, last(y) OVER (PARTITION BY x) AS y FROM a": "Got: Last",
    "SELECT id FROM global_temp.strange": "something other than pipelines' tables. Got: LogicalRDD",
    "SELECT x, interval '1' day AS i FROM a": "a type that no table has",
}


@pytest.mark.parametrize("query", UNFIT)
def test_query_that_cannot_be_kept_is_refused_by_name(spark, lineage_of, query):
    strange = spark.sparkContext.parallelize([(1,)])
    spark.createDataFrame(strange, "id INT").createOrReplaceGlobalTempView("strange")
    with pytest.raises(ViewQueryError) as raised:
        lineage_of(query)
    assert UNFIT[query] in str(raised.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, y FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x LIMIT 1)",
        "SELECT id FROM (SELECT * FROM a ORDER BY id) WHERE x > 0 LIMIT 3",
        "SELECT x, array_sort(collect_list(id)) AS l FROM a GROUP BY x",
        "SELECT id, n FROM a, range(3) AS r(n)",
        "SELECT a.id, v.t FROM a JOIN (VALUES (0, 'zero')) AS v(x, t) ON a.x = v.x",
    ],
)
def test_query_that_says_which_rows_it_takes_is_kept(lineage_of, query):
    assert "a" in lineage_of(query).tables
