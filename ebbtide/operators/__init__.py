"""Operators turn changes and stored entries into new entries. They are pure functions over columns."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.operators._arrival.operator import ArrivalOperator as ArrivalOperator
    from ebbtide.operators._arrival.rules import ARRIVAL_COLUMNS as ARRIVAL_COLUMNS
    from ebbtide.operators._arrival.rules import LIVE as LIVE
    from ebbtide.operators._arrival.rules import WAITING as WAITING
    from ebbtide.operators._arrival.rules import Emission as Emission
    from ebbtide.operators._arrival.rules import Keep as Keep
    from ebbtide.operators._arrival.rules import Materialization as Materialization
    from ebbtide.operators._arrival.rules import OnExpire as OnExpire
    from ebbtide.operators._expiry import ExpiryRules as ExpiryRules
    from ebbtide.operators._expiry import due_timers as due_timers
    from ebbtide.operators._operator import Operator as Operator
    from ebbtide.operators._selection import SELECTED_COLUMNS as SELECTED_COLUMNS
    from ebbtide.operators._selection import KeyNames as KeyNames
    from ebbtide.operators._selection import Selected as Selected
    from ebbtide.operators._selection import to_select as to_select
    from ebbtide.operators._selection import with_selected as with_selected
    from ebbtide.operators._sequence.altered import altered_entries as altered_entries
    from ebbtide.operators._sequence.former_keys import cut_changes as cut_changes
    from ebbtide.operators._sequence.former_keys import cut_entries as cut_entries
    from ebbtide.operators._sequence.former_keys import names_erased as names_erased
    from ebbtide.operators._sequence.linked_keys import linked_keys as linked_keys
    from ebbtide.operators._sequence.operator import SequenceOperator as SequenceOperator
    from ebbtide.operators._sequence.rules import SEQUENCE_COLUMNS as SEQUENCE_COLUMNS
    from ebbtide.operators._stateful.operator import StatefulOperator as StatefulOperator
    from ebbtide.operators._stateful.rows_store import RowsStore as RowsStore
    from ebbtide.operators._stateful.store import StateSpec as StateSpec
else:
    __getattr__, __all__ = names_of(__name__)
