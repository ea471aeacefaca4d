"""Asks Spark's analyzer whether a query is deterministic: its rows follow from its input alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SESSIONS_FUNCTION = "a function of the session's, which another run may not have"


def what_may_differ(jvm: Any, plan: Any) -> str | None:
    """Return in words what of an analyzed plan may give something else in another run; None: nothing.

    Args:
        jvm: The session's.
        plan: Spark's analyzed plan.
    """
    catalyst = jvm.org.apache.spark.sql.catalyst
    pattern = catalyst.trees.TreePattern
    if plan.isStreaming():
        return "a stream"
    if plan.containsPattern(pattern.CURRENT_LIKE()):
        return "what changes from run to run, such as the time or the user"
    if plan.containsPattern(pattern.PYTHON_UDF()) or plan.containsPattern(pattern.SCALA_UDF()):
        return SESSIONS_FUNCTION
    if not plan.deterministic():
        return "a function that is not deterministic, or a sample"
    for each in _with_subqueries(plan):
        # Spark's optimizer makes a moment of a cast such as CAST('today' AS DATE), after it has replaced to_date and the like by casts.
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
