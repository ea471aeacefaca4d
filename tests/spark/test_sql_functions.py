"""Aggregate and table functions of a project in queries, and functions with parameters, by CREATE FUNCTION and the environment's file."""

import sys

import pytest
from statements.answering import answers

from ebbtide.errors import EbbtideError
from ebbtide.sql import EmbeddedSession, Rights, read_environment

FUNCTIONS = '''
"""A project's functions; workers cannot import this module, nor the one that it imports."""
import pandas as pd
import pyarrow as pa
from pyspark.sql.functions import arrow_udf, pandas_udf, udtf
from pyspark.sql.types import DoubleType, LongType

from project_words import words_of


@pandas_udf(DoubleType())
def middle(values: pd.Series) -> float:
    return float(values.median())


@arrow_udf(LongType())
def n_distinct(values: pa.Array) -> int:
    return len(values.unique())


@udtf(returnType="word STRING, n BIGINT")
class Words:
    def __init__(self):
        self.seen = 0

    def eval(self, text: str):
        for word in words_of(text):
            self.seen += 1
            yield word, self.seen

    def terminate(self):
        yield "end", self.seen


class Discount:
    def __init__(self, rate: float, least: float = 0.0):
        self.rate, self.least = rate, least

    def __call__(self, price: float) -> float:
        return max(price * (1 - self.rate), self.least)


def above(least: float):
    @pandas_udf(LongType())
    def n_above(values: pd.Series) -> int:
        return int((values > least).sum())

    return n_above


def pieces(separator: str):
    @udtf(returnType="piece STRING")
    class Pieces:
        def eval(self, text: str):
            for piece in text.split(separator):
                yield (piece,)

    return Pieces
'''
WORDS = "def words_of(text):\n    return text.split()\n"
DECLARED = """
functions:
  cheaper: {target: "project_functions:Discount", constructor: {rate: 0.25, least: 4}}
  by_comma: {target: "project_functions:pieces", constructor: {separator: ","}}
"""


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory):
    """The catalogs of a project with functions, and an environment's file with two of them."""
    home = tmp_path_factory.mktemp("functions")
    (home / "pyproject.toml").touch()
    (home / "project_functions.py").write_text(FUNCTIONS)
    (home / "project_words.py").write_text(WORDS)
    (home / "env.yaml").write_text(DECLARED)
    yield read_environment(home / "env.yaml").catalogs(str(home / "root"), str(home / "defs"))
    sys.path[:] = [place for place in sys.path if place != str(home)]
    for name in ("project_functions", "project_words"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def do(spark, catalogs):
    """Execute a statement of an owner; return its rows, or its message."""
    session = EmbeddedSession(catalogs, {}, start_spark=spark.newSession)
    yield answers(session, 120)
    session.close()


@pytest.fixture(scope="module")
def ask(spark, catalogs):
    """Execute a statement of a gateway's reader."""
    session = EmbeddedSession(catalogs, {}, start_spark=spark.newSession, rights=Rights.of_gateway(writes=False))
    yield answers(session, 120)
    session.close()


@pytest.fixture(scope="module", autouse=True)
def declared(do):
    do("CREATE FUNCTION middle AS 'project_functions:middle'")
    do("CREATE FUNCTION n_distinct AS 'project_functions:n_distinct'")
    do("CREATE FUNCTION words_in AS 'project_functions:Words'")
    do("CREATE FUNCTION n_above AS 'project_functions:above' WITH (least = 2.5) DETERMINISTIC")


NUMBERS = "(VALUES ('a', 1), ('a', 2), ('a', 9), ('b', 3), ('b', 3)) AS t (k, v)"


@pytest.mark.parametrize("who", ["do", "ask"])
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT k, middle(v) FROM {NUMBERS} GROUP BY k ORDER BY k", [["a", 2.0], ["b", 3.0]]),
        (f"SELECT n_distinct(v) FROM {NUMBERS}", [[4]]),
        (f"SELECT k, n_above(v) FROM {NUMBERS} GROUP BY k ORDER BY k", [["a", 1], ["b", 2]]),
        (f"SELECT v, middle(v) OVER (PARTITION BY k) AS m FROM {NUMBERS} WHERE k = 'b'", [[3, 3.0], [3, 3.0]]),
        ("SELECT * FROM words_in('one two')", [["one", 1], ["two", 2], ["end", 2]]),
        (
            "SELECT k, word FROM (VALUES ('x', 'one two')) AS t (k, text), LATERAL words_in(text) WHERE word <> 'end'",
            [["x", "one"], ["x", "two"]],
        ),
        ("SELECT piece FROM by_comma('a,b') ORDER BY piece", [["a"], ["b"]]),
        ("SELECT cheaper(v) FROM (VALUES (8D), (1D)) AS t (v)", [[6.0], [4.0]]),
    ],
)
@pytest.mark.demand("sql-function-kinds")
def test_function_of_each_kind_is_called_in_queries(request, who, query, rows):
    assert request.getfixturevalue(who)(query) == rows


@pytest.mark.demand("sql-constructors")
def test_parameters_are_shown_as_they_are_declared(do):
    statement = "CREATE FUNCTION n_above AS 'project_functions:above' WITH (least = '2.5') DETERMINISTIC;"
    assert do("SHOW CREATE FUNCTION n_above") == [[statement]]
    assert "least: 4" not in do("SHOW CREATE FUNCTION cheaper")[0][0]
    assert "WITH (rate = '0.25', least = '4')" in do("SHOW CREATE FUNCTION cheaper")[0][0]


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("'project_functions:Discount'", "with the parameters none, TypeError: .*missing 1 required"),
        ("'project_functions:Discount' WITH (rat = 1)", "with the parameters rat, TypeError: .*unexpected keyword"),
        ("'project_functions:Discount' WITH (rate = '[1')", "The parameter 'rate' at line 1.* cannot be read"),
        ("'project_functions:Discount' WITH (api_token = x)", "'api_token' at line 1.* is a credential"),
        ("'project_functions:middle' WITH (a = 1)", "with the parameters a, "),
    ],
)
def test_parameters_that_do_not_fit_are_refused(do, declared, says):
    with pytest.raises(EbbtideError, match=says):
        do(f"CREATE FUNCTION f AS {declared}")


@pytest.fixture(scope="module")
def filled(do, tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    do(f"CREATE SOURCE log (id BIGINT, v DOUBLE, PRIMARY KEY (id)) WITH (path = '{folder}', format = plain)")
    do("CREATE TABLE kept (id BIGINT, v DOUBLE, PRIMARY KEY (id))")
    do("CREATE OR REPLACE FUNCTION middle AS 'project_functions:middle' DETERMINISTIC")
    do("CREATE FUNCTION less AS 'project_functions:Discount' WITH (rate = 0.5) DETERMINISTIC")


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("middle(v)", "'middle' is one of queries: INSERT INTO evaluates each row.* of the kind aggregate"),
        ("less(v)", "'less' has parameters, which a spec does not keep. Got: rate"),
    ],
)
@pytest.mark.demand("sql-function-kinds")
def test_insert_refuses_functions_that_are_of_queries(do, expression, says):
    with pytest.raises(EbbtideError, match=says):
        do(f"INSERT INTO kept SELECT id, {expression} FROM log")


def test_error_of_a_table_function_ends_the_query_with_its_words(do):
    with pytest.raises(EbbtideError, match="AttributeError"):
        do("SELECT * FROM words_in(NULL)")
