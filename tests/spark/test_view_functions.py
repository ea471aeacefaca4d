"""Every function of the installed Spark is taken or refused in views, and for a reason that somebody gave."""

import re

import pytest
from view_functions import FOLLOWS_FROM_ITS_ROWS, REFUSED

from ebbtide.errors import ViewQueryError
from ebbtide.views.query import analyse, new_session

EXAMPLE = re.compile(r"^ *> (SELECT .*?);$", re.MULTILINE | re.DOTALL)
WITHOUT_EXAMPLE = {"table_changes", "table_changes_by_path"}
CALLED_OTHERWISE = {"python_worker_logs": ["SELECT * FROM python_worker_logs()"]}  # its own example begins with SET
OF_NO_TABLE = "a type that no table has"


@pytest.fixture(scope="module")
def session(spark):
    return new_session(spark)


@pytest.fixture(scope="module")
def examples(spark):
    """Queries that Spark documents each function by."""
    functions = spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()
    found = {info.getName(): EXAMPLE.findall(info.getExamples()) for info in functions}
    return found | CALLED_OTHERWISE


def is_refused(session, query):
    try:
        analyse(session, query, {})
    except ViewQueryError as error:
        return OF_NO_TABLE not in str(error)  # such as INTERVAL: a view's SELECT would cast it
    return False


def test_each_function_of_the_registry_is_in_one_class(session):
    registered = {row["function"] for row in session.sql("SHOW ALL FUNCTIONS").collect()}
    assert registered == FOLLOWS_FROM_ITS_ROWS | REFUSED, "classify new functions in tests/support/view_functions.py"
    assert not FOLLOWS_FROM_ITS_ROWS & REFUSED


def test_each_function_that_may_give_something_else_is_refused(session, examples):
    taken = [name for name in sorted(REFUSED - WITHOUT_EXAMPLE) if not is_refused(session, examples[name][0])]
    assert taken == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT {} AS v",
        "SELECT 1 AS v WHERE (SELECT max({})) IS NOT NULL",
        "SELECT 1 AS v WHERE EXISTS (SELECT 1 WHERE {} > DATE '2026-01-01')",
        "WITH w AS (SELECT {} AS v) SELECT v FROM w",
        "SELECT t.v FROM (VALUES (1)) x(i), LATERAL (SELECT {} AS v) t",
    ],
    ids=["itself", "scalar subquery", "exists", "with", "lateral"],
)
def test_date_that_moves_is_refused_wherever_it_stands(session, query):
    for moment in ("to_date('tomorrow')", "current_date()"):
        with pytest.raises(ViewQueryError, match="may give other rows without a change of a table"):
            analyse(session, query.format(moment), {})


@pytest.mark.grid
def test_each_function_that_follows_from_its_rows_is_taken(session, examples):
    names = re.compile(r"\b(" + "|".join(map(re.escape, REFUSED)) + r")\b", re.IGNORECASE)
    taken = [query for name in FOLLOWS_FROM_ITS_ROWS & examples.keys() for query in examples[name]]
    refused = [query for query in taken if not names.search(query) and is_refused(session, query)]
    assert refused == []
