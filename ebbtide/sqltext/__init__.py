"""SQL text: what an expression of a user reads and calls, found in its text without Spark.

`columns_read` and `single_column` name columns, `innermost_call` and `functions_called` calls of a project's functions. `what_changes` and
`has_collation` name what must not stand in a row's expression.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sqltext._changing import CHANGING as CHANGING
    from ebbtide.sqltext._changing import has_collation as has_collation
    from ebbtide.sqltext._changing import what_changes as what_changes
    from ebbtide.sqltext._expressions import GENERATORS as GENERATORS
    from ebbtide.sqltext._expressions import FunctionCall as FunctionCall
    from ebbtide.sqltext._expressions import UnfitExpressionError as UnfitExpressionError
    from ebbtide.sqltext._expressions import columns_read as columns_read
    from ebbtide.sqltext._expressions import functions_called as functions_called
    from ebbtide.sqltext._expressions import innermost_call as innermost_call
    from ebbtide.sqltext._expressions import single_column as single_column
else:
    __getattr__, __all__ = names_of(__name__)
