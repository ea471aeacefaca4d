"""Operators turn changes and stored entries into new entries. They are pure functions over columns.

An `Operator` is a `SequenceOperator`, an `ArrivalOperator` with its `Materialization`, or a `StatefulOperator` with a `StateSpec` for each
state. Its `ExpiryRules` say which entries have expired. `Selected` joins the results of a transform with the entries of a step,
`FormerKeys` removes erased keys from rows that had them.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.operators._arrival.operator import ArrivalOperator as ArrivalOperator
    from ebbtide.operators._arrival.rules import LIVE as LIVE
    from ebbtide.operators._arrival.rules import Emission as Emission
    from ebbtide.operators._arrival.rules import Keep as Keep
    from ebbtide.operators._arrival.rules import Materialization as Materialization
    from ebbtide.operators._arrival.rules import OnExpire as OnExpire
    from ebbtide.operators._columns import OPERATOR_COLUMNS as OPERATOR_COLUMNS
    from ebbtide.operators._expiry import ExpiryRules as ExpiryRules
    from ebbtide.operators._operator import Operator as Operator
    from ebbtide.operators._selection import Selected as Selected
    from ebbtide.operators._sequence.former_keys import FormerKeys as FormerKeys
    from ebbtide.operators._sequence.operator import SequenceOperator as SequenceOperator
    from ebbtide.operators._stateful.operator import StatefulOperator as StatefulOperator
    from ebbtide.operators._stateful.rows_store import RowsStore as RowsStore
    from ebbtide.operators._stateful.store import StateSpec as StateSpec
else:
    __getattr__, __all__ = names_of(__name__)
