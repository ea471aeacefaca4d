"""Expressions: SQL of users, judged before Spark analyses it, and evaluated row by row.

`Parser` gives statements and expressions as trees of `Node`, and looks names up in Spark's catalog. `Call` is a call of a function in
such a tree, which may have a `Fault`. `Expressions` evaluates those of a transform.
`register_function` makes a project's function callable in SQL; `what_may_differ` says what of a plan may differ in another run.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.expressions._called_functions import Call as Call
    from ebbtide.expressions._called_functions import Fault as Fault
    from ebbtide.expressions._determinism import what_may_differ as what_may_differ
    from ebbtide.expressions._expressions import Expressions as Expressions
    from ebbtide.expressions._plans import Node as Node
    from ebbtide.expressions._plans import Parser as Parser
    from ebbtide.expressions._row_functions import register_function as register_function
else:
    __getattr__, __all__ = names_of(__name__)
