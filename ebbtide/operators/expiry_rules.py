"""Which entries of an operator expire, and when: as data, so that SQL over a state table and Arrow ask one rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.entries import LONG_MIN, Step
from ebbtide.model.ttl import StateTtlConfig


@dataclass(frozen=True)
class ExpiryRules:
    """When the entries of an operator expire.

    Args:
        ttls: Name of a state to the time to live of its entries; under None that of all entries whose state has none of
            its own. Empty: nothing expires.
        state_column: Column with the name of an entry's state.
        any_set: Columns of which one is set, true or not null, in each entry that may expire; empty: all may.
        acted_on: (column, value) each: a tick has to act on the expiry of an entry that has one of these values, and until
            it has, the entry must not be deleted.
    """

    ttls: Mapping[str | None, StateTtlConfig] = field(default_factory=dict)
    state_column: str = "_state"
    any_set: tuple[str, ...] = ()
    acted_on: tuple[tuple[str, str | bool], ...] = ()

    @property
    def columns(self) -> set[str]:
        """Columns that `any_expired` reads, as far as an operator's entries have them."""
        return {"_stamp_ms", "_ttl_ms", self.state_column, *self.any_set}

    def any_expired(self, entries: pa.Table, step: Step) -> bool:
        """Return whether an entry has expired; one that has a state's own time to live may count by that of the others too.

        Args:
            entries: The newest version of each, with those of `columns` that an entry has.
            step: The clocks.
        """
        if self.any_set:
            is_set = [_is_set(entries[name]) for name in self.any_set]
            entries = entries.filter(reduce(pc.or_, is_set))
        for state, ttl in self.ttls.items():
            clock_ms = step.clock_ms(ttl)
            if clock_ms == LONG_MIN:  # there is no watermark yet
                continue
            own = entries
            if state is not None:
                own = entries.filter(pc.equal(entries[self.state_column], state))
            ttl_ms = own["_ttl_ms"].fill_null(ttl.ttl_ms) if "_ttl_ms" in own.column_names else ttl.ttl_ms
            oldest_alive_ms = pc.subtract(clock_ms, ttl_ms)
            has_expired = pc.less_equal(own["_stamp_ms"], oldest_alive_ms)
            if pc.any(has_expired).as_py():
                return True
        return False


def _is_set(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(column.type):
        return column.fill_null(False)
    return column.is_valid()
