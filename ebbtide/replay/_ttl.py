"""Plays scripts of state operations.

A case is `{"name", "config", "script", "expected"}`: `config` has `ttl` (ms), `update`, `visibility`,
`fullSnapshot` and, beyond Flink, `time` and `clock`; script lines are

| line | meaning |
|---|---|
| `{"time": t}`, `{"watermark": t}`, `{"event": t}` | set a clock, epoch ms; all start at 0 |
| `{"key": k}` | set the current key |
| `{"restore": {...}}` | snapshot, stop, start again with these settings changed |
| `{"op": "dump"}` | all that is stored: per state and key `[value, last access]`, `[value]` without TTL |
| `{"state": "value" or "list" or "map", "op": ...}` | an operation: `v` value, `k` map key, `n` elements to read, `drop` map keys to remove while passing, `ttl` (ms) of this put |

Each line with `op` gives `{"i": line, "result": ...}`, `{"i", "ok": true}` or `{"i", "error", "message"}`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from ebbtide.durations import from_ms
from ebbtide.keyed_state import (
    CleanupConfig,
    Entry,
    KeyedState,
    ListState,
    MapState,
    StatefulFunction,
    StateTtlConfig,
    Store,
)
from ebbtide.keyed_state._cleanup import snapshot
from ebbtide.keyed_state._context import StateContext
from ebbtide.keyed_state._migration import migrated
from ebbtide.keyed_state._states import ValueState
from ebbtide.operators import StatefulOperator, StateSpec
from ebbtide.operators._stateful.rows import changed_rows, load, to_table
from ebbtide.operators._stateful.store import WorkingStore
from ebbtide.replay._cases import Case, open_store, playing

KINDS: dict[str, type[KeyedState]] = {
    "value": ValueState,
    "list": ListState,
    "map": MapState,
}
KEY = ("key",)
"""The key's columns in the rows of `RowsStore`."""
Operation = Callable[[Any, Case], Any]
"""Applies a script's line to its state and returns the result."""


def replay_ttl(cases: Iterable[Case], store: str = "heap") -> Iterator[Case]:
    """Play cases; give each back with `output`.

    Args:
        cases: Parsed lines.
        store: `heap`, `rocksdb`, or `delta`: every operation goes through the rows of a state table.

    Raises:
        ConfigError: a case is not in the format.
    """
    with tempfile.TemporaryDirectory(prefix="ebbtide-replay-") as folder:
        numbers = count()

        def new_store() -> Store:
            path = Path(folder, str(next(numbers)))
            return _store(store, path)

        for case in cases:
            with playing(case, "config and script"):
                config = case["config"]
                script = case["script"]
                used = {line["state"] for line in script if "state" in line}
                player = _Player(config, used, new_store)
                output = player.play(script)
                yield case | {"output": output}


def _store(name: str, path: Path) -> Store:
    if name != "delta":
        return open_store(name, path)
    text = pa.string()
    states = {
        "value": StateSpec(ValueState, text),
        "list": StateSpec(ListState, text),
        "map": StateSpec(MapState, text, key=text),
    }
    return RowsStore(states)


class RowsStore(WorkingStore):
    """States that are rows of a state table between any two operations.

    Args:
        states: The states, by name; their keys are text.
    """

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


class _Player:
    """Plays one script.

    Args:
        config: Configuration of the case.
        used: Names of the states that the script uses.
        new_store: Makes an empty store, at the start and at each restore.
    """

    def __init__(
        self,
        config: Case,
        used: set[str],
        new_store: Callable[[], Store],
    ) -> None:
        self._config = dict(config)
        self._used = used
        self._new_store = new_store
        self._context = StateContext(key=("k",), watermark_ms=0)
        self._states = self._open()

    def play(self, script: list[Case]) -> list[Case]:
        output = []
        for i, line in enumerate(script):
            self._set(line)
            if "op" not in line:
                continue
            result = self._result(line)
            output.append({"i": i, **result})
            if isinstance(self._store, RowsStore):
                self._store.flush()
        return output

    def _set(self, line: Case) -> None:
        context = self._context
        context.now_ms = line.get("time", context.now_ms)
        context.watermark_ms = line.get("watermark", context.watermark_ms)
        context.event_ms = line.get("event", context.event_ms)
        if "key" in line:
            context.key = (str(line["key"]),)
        if "restore" in line:
            self._restore(line["restore"])

    def _restore(self, changes: Case) -> None:
        """Snapshot all states, and write them as migrated into new ones with the changed configuration."""
        snapshots = {name: list(snapshot(state)) for name, state in self._states.items()}
        self._config |= changes
        self._states = self._open()
        now_ms = self._context.now_ms
        for name, entries in snapshots.items():
            state = self._states[name]
            for key, sub, entry in entries:
                new_entry = migrated(entry, state.ttl, now_ms)
                state.raw.put(key, sub, new_entry)

    def _open(self) -> dict[str, KeyedState]:
        self._store = self._new_store()
        ttl = _ttl_config(self._config)
        states: dict[str, KeyedState] = {}
        for name in sorted(self._used):
            kind = KINDS[name]
            raw = self._store.state(name)
            states[name] = kind(raw, self._context, ttl)
        return states

    def _result(self, line: Case) -> Case:
        operation = line["op"]
        if operation == "dump":
            dumps = {name: _dump(state) for name, state in self._states.items()}
            return {"result": dumps}
        name = line["state"]
        operate = OPERATIONS[name][operation]
        state = self._states[name]
        try:
            result = operate(state, line)
        except (TypeError, RuntimeError) as error:
            return {
                "error": type(error).__name__,
                "message": str(error),
            }
        if operation in CHANGES:
            return {"ok": True}
        return {"result": result}


def _ttl_config(config: Case) -> StateTtlConfig:
    is_disabled = config["update"] == "Disabled"
    full_snapshot = config.get("fullSnapshot", False) and not is_disabled
    return StateTtlConfig(
        ttl=from_ms(config["ttl"]),
        update_type=config["update"],
        state_visibility=config["visibility"],
        time_characteristic=config.get("time", "ProcessingTime"),
        expiry_clock=config.get("clock", "Watermark"),
        cleanup=CleanupConfig(full_snapshot=full_snapshot),
    )


def _dump(state: KeyedState) -> Case:
    """Return all that a state stores: key to its cells, a map's by map key, a list's in order."""
    dump: Case = {}
    for key in sorted(state.raw.all_keys()):
        (name,) = key
        entries = state.raw.entries(key)
        cells = {sub: _cell(entry) for sub, entry in entries}
        values = list(cells.values())
        if isinstance(state, MapState):
            by_map_key = sorted(cells.items())
            dump[name] = dict(by_map_key)
        elif isinstance(state, ListState):
            dump[name] = values
        else:
            dump[name] = values[0]
    return dump


def _cell(entry: Entry) -> list[Any]:
    value = _read(entry.value)
    if entry.stamp_ms is None:
        return [value]
    return [value, entry.stamp_ms]


def _text(value: Any) -> str | None:
    """Write a value as it is stored: the text of a JSON scalar, None as itself."""
    if value is None:
        return None
    return json.dumps(value)


def _read(text: str | None) -> Any:
    """Read what `_text` wrote."""
    if text is None:
        return None
    return json.loads(text)


def _new_value(line: Case) -> str | None:
    """Return the value that a line gives, as it is stored."""
    return _text(line.get("v"))


def _new_values(line: Case) -> list[str | None] | None:
    """Return the list of values that a line gives, as they are stored."""
    values = line.get("v")
    if values is None:
        return None
    return [_text(value) for value in values]


def _ttl(line: Case) -> timedelta | None:
    if "ttl" not in line:
        return None
    return timedelta(milliseconds=line["ttl"])


def _elements(state: ListState, line: Case) -> list[Any]:
    wanted = islice(state.get(), line.get("n"))
    return list(map(_read, wanted))


def _put_all(state: MapState, line: Case) -> None:
    values = line["v"]
    texts = {key: _text(value) for key, value in values.items()}
    state.put_all(texts, ttl=_ttl(line))


def _entries(state: MapState, line: Case) -> list[list[Any]]:
    entries = state.entries()
    # Dropped while passing, by the iterator's own `remove`, as Flink's allows; sorted at the end, since a map has no order.
    dropped = set(line.get("drop", ()))
    pairs = []
    for key, value in entries:
        pairs.append([key, _read(value)])
        if key in dropped:
            entries.remove()
    pairs.sort(key=lambda pair: str(pair[0]))
    return pairs


def _values(state: MapState, line: Case) -> list[Any]:
    values = map(_read, state.values())
    return sorted(values, key=json.dumps)


CHANGES = {"update", "clear", "add", "addAll", "put", "putAll", "remove"}
OPERATIONS: dict[str, dict[str, Operation]] = {
    "value": {
        "get": lambda state, line: _read(state.get()),
        "update": lambda state, line: state.update(_new_value(line), ttl=_ttl(line)),
        "clear": lambda state, line: state.clear(),
    },
    "list": {
        "get": _elements,
        "add": lambda state, line: state.add(_new_value(line), ttl=_ttl(line)),
        "addAll": lambda state, line: state.add_all(_new_values(line), ttl=_ttl(line)),
        "update": lambda state, line: state.update(_new_values(line), ttl=_ttl(line)),
        "clear": lambda state, line: state.clear(),
    },
    "map": {
        "get": lambda state, line: _read(state.get(line["k"])),
        "put": lambda state, line: state.put(line["k"], _new_value(line), ttl=_ttl(line)),
        "putAll": _put_all,
        "remove": lambda state, line: state.remove(line["k"]),
        "contains": lambda state, line: state.contains(line["k"]),
        "isEmpty": lambda state, line: state.is_empty(),
        "entries": _entries,
        "keys": lambda state, line: sorted(state.keys()),
        "values": _values,
        "clear": lambda state, line: state.clear(),
    },
}
