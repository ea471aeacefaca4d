"""Asks Spark's analyzer whether a query is deterministic: its rows depend only on its input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SESSIONS_FUNCTION = "a function of the session, which another run may not have"


def what_may_differ(jvm: Any, plan: Any) -> str | None:
    """Describe the part of an analyzed plan whose result may differ in another run; None: there is none.

    Args:
        jvm: The session's JVM.
        plan: Spark's analyzed plan.
    """
    catalyst = jvm.org.apache.spark.sql.catalyst
    pattern = catalyst.trees.TreePattern
    if plan.isStreaming():
        return "a stream"
    if plan.containsPattern(pattern.CURRENT_LIKE()):
        return "a value that changes from run to run, such as the time or the user"
    if plan.containsPattern(pattern.PYTHON_UDF()) or plan.containsPattern(pattern.SCALA_UDF()):
        return SESSIONS_FUNCTION
    if not plan.deterministic():
        return "a function that is not deterministic, or a sample"
    for each in _with_subqueries(plan):
        # Spark's optimizer replaces to_date and the like by casts, and a cast such as CAST('today' AS DATE) by the current date.
        replaced = catalyst.optimizer.ReplaceExpressions.apply(each)
        moments = catalyst.optimizer.SpecialDatetimeValues.apply(replaced)
        if not moments.fastEquals(replaced):
            return "'today', 'now', 'tomorrow' or 'yesterday' as a date or a timestamp"
    return None


def _with_subqueries(plan: Any) -> Iterator[Any]:
    """Yield a plan, and those of the subqueries in its expressions."""
    yield plan
    inner = plan.subqueriesAll()
    for place in range(inner.size()):
        yield inner.apply(place)
