"""Plays changelogs through the upsert materializer: cases in, each with what it emits out.

A case is `{"name", "upsert_key", "ttl_ms", "high", "low", "strategies", "input", "expected"}`, all but `input` optional; lines of
`input` are

| line | meaning |
|---|---|
| `{"op", "key", "uk", "row"}` | a change: `+I` `-U` `+U` `-D`; key, uk and row are JSON scalars; with `ts` the time from there on, epoch ms |
| `{"restore": {...}}` | stop, start again with `strategy`, `high`, `low` so changed |

With `upsert_key` `none` rows match on all of key, uk and row, with `col` on uk alone. Each record emitted gives
`{"i": line, "op", "key", "uk", "row"}`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ebbtide.errors import ConfigError
from ebbtide.model.changelog import RowKind
from ebbtide.model.identity import identity
from ebbtide.model.materializer.multiset import OrderedMultiset, Strategy
from ebbtide.model.materializer.operator import SinkUpsertMaterializer
from ebbtide.model.state.raw import Store
from ebbtide.store.heap import HeapStore

Case = dict[str, Any]
COLUMNS = ("key", "uk", "row")


def replay_materializer(
    cases: Iterable[Case], strategy: str = "ADAPTIVE", store: str = "heap", **settings: Any
) -> Iterator[Case]:
    """Play cases; give each back with `output`.

    Args:
        cases: Parsed lines.
        strategy: One of FLIP-544's, or `COLUMNAR`.
        store: `heap` or `rocksdb`; COLUMNAR needs none.
        settings: `upsert_key`, `ttl_ms`, `high`, `low`, in place of the cases' own where not None.

    Raises:
        ConfigError: a case is not in the format.
    """
    with tempfile.TemporaryDirectory(prefix="ebbtide-replay-") as folder:
        for number, case in enumerate(cases):
            try:
                config = {**case, "strategy": strategy} | {k: v for k, v in settings.items() if v is not None}
                output = list(_play(config, case["input"], _store(store, Path(folder, str(number)))))
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError.of(
                    f"The case {case.get('name') if isinstance(case, dict) else case!r} cannot be played: {type(error).__name__}: {error}.",
                    allowed="an object with input, as in docs/replay.md",
                ) from error
            yield case | {"output": output}


def _play(config: Case, lines: list[Case], store: Store) -> Iterator[Case]:
    materializer, now_ms = _materializer(config, store), 0
    for i, line in enumerate(lines):
        if "restore" in line:
            config |= line["restore"]
            materializer = _materializer(config, store)
            continue
        now_ms = line.get("ts", now_ms)
        key, *_ = row = tuple(json.dumps(line[name]) for name in COLUMNS)
        emitted = materializer.process(RowKind(line["op"]), key, row, stamp_ms=now_ms, now_ms=now_ms)
        if emitted is not None:
            yield {"i": i, "op": emitted.kind.value} | dict(zip(COLUMNS, map(json.loads, emitted.row), strict=True))


def _materializer(config: Case, store: Store) -> SinkUpsertMaterializer:
    by_column = config.get("upsert_key", "none") == "col"
    return SinkUpsertMaterializer(
        OrderedMultiset(
            store,
            Strategy(config["strategy"]),
            identify=(lambda row: row[1]) if by_column else identity,
            replaces=by_column,
            ttl_ms=config.get("ttl_ms") or None,
            high=config.get("high"),
            low=config.get("low"),
        )
    )


def _store(name: str, path: Path) -> Store:
    if name == "heap":
        return HeapStore()
    from ebbtide.store.rocksdb.store import RocksDbStore

    return RocksDbStore(path)
