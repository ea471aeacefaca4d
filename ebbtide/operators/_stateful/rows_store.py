"""A store whose states are rows of a state table between any two operations."""

from __future__ import annotations

import pyarrow as pa

from ebbtide.keyed_state import MapStateDescriptor, StatefulFunction
from ebbtide.operators._stateful.operator import StatefulOperator
from ebbtide.operators._stateful.rows import changed_rows, load, to_table
from ebbtide.operators._stateful.store import StateSpec, WorkingStore

KEY = ("key",)
"""The key's columns in the rows."""


class RowsStore(WorkingStore):
    """States as rows of a state table.

    Args:
        states: The states, by name; their keys are text.
    """

    @classmethod
    def of_texts(cls, function: type[StatefulFunction]) -> RowsStore:
        """Return a store of the states that a function declares, whose values are text."""
        text = pa.string()
        states = {}
        for name, declared in function.descriptors().items():
            key = text if isinstance(declared, MapStateDescriptor) else None
            states[name] = StateSpec(declared.kind, text, key)
        return cls(states)

    def __init__(self, states: dict[str, StateSpec]) -> None:
        super().__init__(states)
        key_columns = pa.schema([("key", pa.string())])
        self.operator = StatefulOperator(
            columns=key_columns,
            key=KEY,
            output=key_columns,
            sink_key=KEY,
            function=StatefulFunction,
            states=states,
        )
        self.rows = self.operator.schema.empty_table()
        self._steps = 0

    def flush(self) -> None:
        """Write what has changed as rows, and read all states from the rows."""
        specs = self.operator.states
        keys, columns = changed_rows(self, specs)
        self._steps += 1
        changed = to_table(
            self.operator.schema,
            KEY,
            keys,
            columns,
            step=self._steps,
        )
        versions = pa.concat_tables([self.rows, changed])
        self.rows = self.operator.live_entries(versions)
        for state in self.states.values():
            state.reset()
        texts = self.rows["key"].to_pylist()
        row_keys = [(text,) for text in texts]
        load(self.rows, row_keys, specs, self)
