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
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from ebbtide.model.durations import from_ms
from ebbtide.model.state.cleanup import snapshot
from ebbtide.model.state.context import StateContext
from ebbtide.model.state.function import StatefulFunction
from ebbtide.model.state.migration import migrated
from ebbtide.model.state.raw import Store
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
        number = iter(range(10**9))
        for case in cases:
            with playing(case, "config and script"):
                config, script = case["config"], case["script"]
                player = _Player(
                    config,
                    {line["state"] for line in script if "state" in line},
                    lambda: _store(store, Path(folder, str(next(number)))),
                )
                yield case | {"output": player.play(script)}


def _store(name: str, path: Path) -> Store:
    if name != "delta":
        return open_store(name, path)
    return RowsStore(
        {state: StateSpec(KINDS[state], pa.string(), pa.string() if state == "map" else None) for state in KINDS}
    )


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
        new = to_table(self.operator.schema, ("key",), keys, columns, self._steps)
        self.rows = self.operator.live_entries(pa.concat_tables([self.rows, new]))
        for state in self.states.values():
            state.reset()
        load(self.rows, [(key,) for key in self.rows["key"].to_pylist()], self.operator.states, self)


class _Player:
    def __init__(self, config: Case, used: set[str], new_store: Callable[[], Store]) -> None:
        self._config, self._used, self._new_store = dict(config), used, new_store
        self._context = StateContext(key=("k",), watermark_ms=0)
        self._states = self._open()

    def play(self, script: list[Case]) -> list[Case]:
        output = []
        for i, line in enumerate(script):
            self._set(line)
            if "op" in line:
                output.append({"i": i} | self._result(line))
                if isinstance(self._store, RowsStore):
                    self._store.flush()
        return output

    def _set(self, line: Case) -> None:
        at = self._context
        at.now_ms = line.get("time", at.now_ms)
        at.watermark_ms = line.get("watermark", at.watermark_ms)
        at.event_ms = line.get("event", at.event_ms)
        if "key" in line:
            at.key = (str(line["key"]),)
        if "restore" in line:
            self._restore(line["restore"])

    def _restore(self, changes: Case) -> None:
        kept = {name: list(snapshot(state)) for name, state in self._states.items()}
        self._config |= changes
        self._states = self._open()
        for name, entries in kept.items():
            state = self._states[name]
            for key, sub, entry in entries:
                state.raw.put(key, sub, migrated(entry, state.ttl, self._context.now_ms))

    def _open(self) -> dict[str, KeyedState]:
        config, store = self._config, self._new_store()
        self._store = store
        ttl = StateTtlConfig(
            ttl=from_ms(config["ttl"]),
            update_type=config["update"],
            state_visibility=config["visibility"],
            time_characteristic=config.get("time", "ProcessingTime"),
            expiry_clock=config.get("clock", "Watermark"),
            cleanup=CleanupConfig(full_snapshot=config.get("fullSnapshot", False) and config["update"] != "Disabled"),
        )
        return {name: KINDS[name](store.state(name), self._context, ttl) for name in sorted(self._used)}

    def _result(self, line: Case) -> Case:
        if line["op"] == "dump":
            return {"result": {name: _dump(state) for name, state in self._states.items()}}
        operation = OPERATIONS[line["state"]][line["op"]]
        try:
            result = operation(self._states[line["state"]], line)
        except (TypeError, RuntimeError) as error:
            return {"error": type(error).__name__, "message": str(error)}
        return {"ok": True} if line["op"] in CHANGES else {"result": result}


def _dump(state: KeyedState) -> Case:
    found: Case = {}
    for key in sorted(state.raw.all_keys()):
        cells = [
            (sub, [_read(entry.value)] if entry.stamp_ms is None else [_read(entry.value), entry.stamp_ms])
            for sub, entry in state.raw.entries(key)
        ]
        found[key[0]] = (
            dict(sorted(cells))
            if isinstance(state, MapState)
            else [c for _, c in cells]
            if isinstance(state, ListState)
            else cells[0][1]
        )
    return found


def _text(value: Any) -> str | None:
    """Write a value as it is stored: the text of a JSON scalar, None as itself."""
    return None if value is None else json.dumps(value)


def _texts(values: Any) -> Any:
    return values if values is None else [_text(value) for value in values]


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _ttl(line: Case) -> timedelta | None:
    return timedelta(milliseconds=line["ttl"]) if "ttl" in line else None


def _entries(state: MapState, line: Case) -> list[list[Any]]:
    found, drop = state.entries(), set(line.get("drop", ()))
    seen = []
    for key, value in found:
        seen.append([key, _read(value)])
        if key in drop:
            found.remove()
    return sorted(seen, key=lambda pair: str(pair[0]))


CHANGES = {"update", "clear", "add", "addAll", "put", "putAll", "remove"}
OPERATIONS: dict[str, dict[str, Callable[[Any, Case], Any]]] = {
    "value": {
        "get": lambda state, line: _read(state.get()),
        "update": lambda state, line: state.update(_text(line.get("v")), ttl=_ttl(line)),
        "clear": lambda state, line: state.clear(),
    },
    "list": {
        "get": lambda state, line: list(map(_read, islice(state.get(), line.get("n")))),
        "add": lambda state, line: state.add(_text(line.get("v")), ttl=_ttl(line)),
        "addAll": lambda state, line: state.add_all(_texts(line.get("v")), ttl=_ttl(line)),
        "update": lambda state, line: state.update(_texts(line.get("v")), ttl=_ttl(line)),
        "clear": lambda state, line: state.clear(),
    },
    "map": {
        "get": lambda state, line: _read(state.get(line["k"])),
        "put": lambda state, line: state.put(line["k"], _text(line.get("v")), ttl=_ttl(line)),
        "putAll": lambda state, line: state.put_all({k: _text(v) for k, v in line["v"].items()}, ttl=_ttl(line)),
        "remove": lambda state, line: state.remove(line["k"]),
        "contains": lambda state, line: state.contains(line["k"]),
        "isEmpty": lambda state, line: state.is_empty(),
        "entries": _entries,
        "keys": lambda state, line: sorted(state.keys()),
        "values": lambda state, line: sorted(map(_read, state.values()), key=json.dumps),
        "clear": lambda state, line: state.clear(),
    },
}
