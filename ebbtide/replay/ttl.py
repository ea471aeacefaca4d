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

from ebbtide.model.durations import from_ms
from ebbtide.model.state.cleanup import snapshot
from ebbtide.model.state.context import StateContext
from ebbtide.model.state.function import StatefulFunction
from ebbtide.model.state.migration import migrated
from ebbtide.model.state.raw import Entry, Store
from ebbtide.model.state.states import KeyedState, ListState, MapState, ValueState
from ebbtide.model.ttl import CleanupConfig, StateTtlConfig
from ebbtide.operators.state_rows import changed_rows, load, to_table
from ebbtide.operators.stateful import StatefulOperator
from ebbtide.operators.working_store import StateSpec, WorkingStore
from ebbtide.replay.cases import Case, open_store, playing

KINDS: dict[str, type[KeyedState]] = {"value": ValueState, "list": ListState, "map": MapState}


def replay_ttl(cases: Iterable[Case], store: str = "heap") -> Iterator[Case]:
    """Play cases; give each back with `output`.

    Args:
        cases: Parsed lines.
        store: `heap`, `rocksdb`, or `delta`: every operation goes through the rows of a state table.

    Raises:
        ConfigError: a case is not in the format.
    """
    with tempfile.TemporaryDirectory(prefix="ebbtide-replay-") as folder:
        paths = (Path(folder, str(number)) for number in count())
        for case in cases:
            with playing(case, "config and script"):
                config, script = case["config"], case["script"]
                used = {line["state"] for line in script if "state" in line}
                player = _Player(config, used, lambda: _store(store, next(paths)))
                yield case | {"output": player.play(script)}


def _store(name: str, path: Path) -> Store:
    if name != "delta":
        return open_store(name, path)
    states = {}
    for state, class_ in KINDS.items():
        key_type = pa.string() if state == "map" else None
        states[state] = StateSpec(class_, pa.string(), key_type)
    return RowsStore(states)


class RowsStore(WorkingStore):
    """States that are rows of a state table between any two operations.

    Args:
        states: The states, by name; their keys are text.
    """

    def __init__(self, states: dict[str, StateSpec]) -> None:
        super().__init__(states)
        key = pa.schema([("key", pa.string())])
        self.operator = StatefulOperator(key, ("key",), key, ("key",), StatefulFunction, states)
        self.rows = self.operator.schema.empty_table()
        self._steps = 0

    def flush(self) -> None:
        """Write what has changed as rows, and read all states from the rows."""
        keys, columns = changed_rows(self, self.operator.states)
        self._steps += 1
        changed = to_table(self.operator.schema, ("key",), keys, columns, self._steps)
        versions = pa.concat_tables([self.rows, changed])
        self.rows = self.operator.live_entries(versions)
        for state in self.states.values():
            state.reset()
        row_keys = [(key,) for key in self.rows["key"].to_pylist()]
        load(self.rows, row_keys, self.operator.states, self)


class _Player:
    """Plays one script.

    Args:
        config: The case's.
        used: Names of the states that the script uses.
        new_store: Makes an empty store, at the start and at each restore.
    """

    def __init__(self, config: Case, used: set[str], new_store: Callable[[], Store]) -> None:
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
            output.append({"i": i} | self._result(line))
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
        for name, entries in snapshots.items():
            state = self._states[name]
            for key, sub, entry in entries:
                new_entry = migrated(entry, state.ttl, self._context.now_ms)
                state.raw.put(key, sub, new_entry)

    def _open(self) -> dict[str, KeyedState]:
        store = self._store = self._new_store()
        ttl = _ttl_config(self._config)
        states: dict[str, KeyedState] = {}
        for name in sorted(self._used):
            class_ = KINDS[name]
            states[name] = class_(store.state(name), self._context, ttl)
        return states

    def _result(self, line: Case) -> Case:
        if line["op"] == "dump":
            return {"result": {name: _dump(state) for name, state in self._states.items()}}
        name = line["state"]
        operate = OPERATIONS[name][line["op"]]
        state = self._states[name]
        try:
            result = operate(state, line)
        except (TypeError, RuntimeError) as error:
            return {"error": type(error).__name__, "message": str(error)}
        return {"ok": True} if line["op"] in CHANGES else {"result": result}


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
        cells = [(sub, _cell(entry)) for sub, entry in state.raw.entries(key)]
        values = [cell for _, cell in cells]
        if isinstance(state, MapState):
            dump[key[0]] = dict(sorted(cells))
        elif isinstance(state, ListState):
            dump[key[0]] = values
        else:
            dump[key[0]] = values[0]
    return dump


def _cell(entry: Entry) -> list[Any]:
    value = _read(entry.value)
    return [value] if entry.stamp_ms is None else [value, entry.stamp_ms]


def _text(value: Any) -> str | None:
    """Write a value as it is stored: the text of a JSON scalar, None as itself."""
    return None if value is None else json.dumps(value)


def _texts(values: Any) -> Any:
    return values if values is None else [_text(value) for value in values]


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _ttl(line: Case) -> timedelta | None:
    return timedelta(milliseconds=line["ttl"]) if "ttl" in line else None


def _elements(state: ListState, line: Case) -> list[Any]:
    wanted = islice(state.get(), line.get("n"))
    return list(map(_read, wanted))


def _put_all(state: MapState, line: Case) -> None:
    texts = {key: _text(value) for key, value in line["v"].items()}
    state.put_all(texts, ttl=_ttl(line))


def _entries(state: MapState, line: Case) -> list[list[Any]]:
    entries = state.entries()
    dropped = set(line.get("drop", ()))
    pairs = []
    for key, value in entries:
        pairs.append([key, _read(value)])
        if key in dropped:
            entries.remove()
    return sorted(pairs, key=lambda pair: str(pair[0]))


def _values(state: MapState, line: Case) -> list[Any]:
    values = map(_read, state.values())
    return sorted(values, key=json.dumps)


CHANGES = {"update", "clear", "add", "addAll", "put", "putAll", "remove"}
OPERATIONS: dict[str, dict[str, Callable[[Any, Case], Any]]] = {
    "value": {
        "get": lambda state, line: _read(state.get()),
        "update": lambda state, line: state.update(_text(line.get("v")), ttl=_ttl(line)),
        "clear": lambda state, line: state.clear(),
    },
    "list": {
        "get": _elements,
        "add": lambda state, line: state.add(_text(line.get("v")), ttl=_ttl(line)),
        "addAll": lambda state, line: state.add_all(_texts(line.get("v")), ttl=_ttl(line)),
        "update": lambda state, line: state.update(_texts(line.get("v")), ttl=_ttl(line)),
        "clear": lambda state, line: state.clear(),
    },
    "map": {
        "get": lambda state, line: _read(state.get(line["k"])),
        "put": lambda state, line: state.put(line["k"], _text(line.get("v")), ttl=_ttl(line)),
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
