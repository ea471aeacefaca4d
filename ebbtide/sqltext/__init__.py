"""SQL text: what an expression of a user reads and calls, found in its text without Spark.

`SqlText` names the columns that an expression reads, the project's functions that it calls (`FunctionCall`), and what must not stand in a
row's expression. One that is not an expression over a row is an `UnfitExpressionError`. A `Condition` marks rows without Spark.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sqltext._conditions import Condition as Condition
    from ebbtide.sqltext._expressions import FunctionCall as FunctionCall
    from ebbtide.sqltext._expressions import SqlText as SqlText
    from ebbtide.sqltext._expressions import UnfitExpressionError as UnfitExpressionError
else:
    __getattr__, __all__ = names_of(__name__)
