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
| `{"state": "reducing" or "aggregating", "op": "get" or "add" or "clear"}` | the same, of texts: `reducing` joins them by `|`, `aggregating` returns them as `<,a,b>` |

Adding the text "drop" to one of these two makes its function return None. A text "none" makes an aggregation return None.

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

from ebbtide.durations import from_ms
from ebbtide.keyed_state import (
    AggregatingStateDescriptor,
    CleanupConfig,
    Entry,
    FunctionRun,
    KeyedState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StatefulFunction,
    StateTtlConfig,
    Store,
    ValueStateDescriptor,
)
from ebbtide.operators import RowsStore
from ebbtide.replay._cases import Case, PlayedCase, open_store, playing


def joined(present: str, added: str) -> str | None:
    """Join two texts; values are the texts of JSON scalars."""
    if _read(added) == "drop":
        return None
    return _text(f"{_read(present)}|{_read(added)}")


class Gathered:
    """Gathers texts behind commas."""

    def create_accumulator(self) -> str | None:
        """See `AggregateFunction`."""
        return _text("")

    def add(self, value: str, accumulator: str) -> str | None:
        """See `AggregateFunction`."""
        if _read(value) == "drop":
            return None
        return _text(f"{_read(accumulator)},{_read(value)}")

    def get_result(self, accumulator: str) -> str | None:
        """See `AggregateFunction`."""
        gathered = _read(accumulator)
        return None if "none" in gathered else _text(f"<{gathered}>")


class Played(StatefulFunction):
    """Has the states of a script, by kind."""

    value = ValueStateDescriptor("STRING")
    list = ListStateDescriptor("STRING")
    map = MapStateDescriptor("STRING")
    reducing = ReducingStateDescriptor("STRING", reduce=joined)
    aggregating = AggregatingStateDescriptor("STRING", aggregate=Gathered())


Operation = Callable[[Any, Case], Any]
"""Applies a script's line to its state and returns the result."""


def replay_ttl(cases: Iterable[Case], store: str = "heap") -> Iterator[PlayedCase]:
    """Play cases.

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
                yield PlayedCase(case | {"output": output})


def _store(name: str, path: Path) -> Store:
    if name != "delta":
        return open_store(name, path)
    return RowsStore.of_texts(Played)


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
        self._store = new_store()
        self._run = FunctionRun(Played(), self._store, self._ttls())
        self._run.context.key = ("k",)
        self._run.context.watermark_ms = 0

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
        context = self._run.context
        context.now_ms = line.get("time", context.now_ms)
        context.watermark_ms = line.get("watermark", context.watermark_ms)
        context.event_ms = line.get("event", context.event_ms)
        if "key" in line:
            context.key = (str(line["key"]),)
        if "restore" in line:
            self._restore(line["restore"])

    def _restore(self, changes: Case) -> None:
        """Snapshot all states, and start again with the changed configuration."""
        self._config |= changes
        self._store = self._new_store()
        self._run = self._run.restored(self._store, self._ttls())

    def _ttls(self) -> dict[str, StateTtlConfig | None]:
        return dict.fromkeys(Played.descriptors(), _ttl_config(self._config))

    def _result(self, line: Case) -> Case:
        operation = line["op"]
        if operation == "dump":
            dumps = {name: _dump(name, self._run.states[name]) for name in sorted(self._used)}
            return {"result": dumps}
        name = line["state"]
        operate = OPERATIONS[name][operation]
        state = self._run.states[name]
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
    # Only what the case configures cleans up: not the store's default either, which is off where nothing expires.
    cleanup = CleanupConfig()
    if not is_disabled:
        cleanup = CleanupConfig(full_snapshot=config.get("fullSnapshot", False), background=False)
    return StateTtlConfig(
        ttl=from_ms(config["ttl"]),
        update_type=config["update"],
        state_visibility=config["visibility"],
        time_characteristic=config.get("time", "ProcessingTime"),
        expiry_clock=config.get("clock", "Watermark"),
        cleanup=cleanup,
    )


def _dump(kind: str, state: KeyedState) -> Case:
    """Return all that a state stores: key to its cells, a map's by map key, a list's in order."""
    dump: Case = {}
    for key in sorted(state.raw.all_keys()):
        (name,) = key
        entries = state.raw.entries(key)
        cells = {sub: _cell(entry) for sub, entry in entries}
        values = list(cells.values())
        if kind == "map":
            by_map_key = sorted(cells.items())
            dump[name] = dict(by_map_key)
        elif kind == "list":
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


def _elements(state: Any, line: Case) -> list[Any]:
    wanted = islice(state.get(), line.get("n"))
    return list(map(_read, wanted))


def _put_all(state: Any, line: Case) -> None:
    values = line["v"]
    texts = {key: _text(value) for key, value in values.items()}
    state.put_all(texts, ttl=_ttl(line))


def _entries(state: Any, line: Case) -> list[list[Any]]:
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


def _values(state: Any, line: Case) -> list[Any]:
    values = map(_read, state.values())
    return sorted(values, key=json.dumps)


CHANGES = {"update", "clear", "add", "addAll", "put", "putAll", "remove"}
APPENDING: dict[str, Operation] = {
    "get": lambda state, line: _read(state.get()),
    "add": lambda state, line: state.add(_new_value(line), ttl=_ttl(line)),
    "clear": lambda state, line: state.clear(),
}
OPERATIONS: dict[str, dict[str, Operation]] = {
    "value": {
        "get": lambda state, line: _read(state.get()),
        "update": lambda state, line: state.update(_new_value(line), ttl=_ttl(line)),
        "clear": lambda state, line: state.clear(),
    },
    "reducing": APPENDING,
    "aggregating": APPENDING,
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
