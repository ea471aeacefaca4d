"""Plays changelogs through the upsert materializer.

A case is `{"name", "upsert_key", "ttl_ms", "high", "low", "strategies", "input", "expected"}`, all but `input` optional; lines of
`input` are

| line | meaning |
|---|---|
| `{"op", "key", "uk", "row"}` | a change: `+I` `-U` `+U` `-D`; key, uk and row are JSON scalars; with `ts` the time from there on, epoch ms |
| `{"restore": {...}}` | stop, start again; with `strategy`, `high`, `low` these are changed |

With `upsert_key` `none` rows match on all of key, uk and row, with `col` on uk alone. Each record emitted gives
`{"i": line, "op", "key", "uk", "row"}`. `expected` holds for the `strategies` named, for all if none are; what LEGACY gives without
a time to live COLUMNAR must give too.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from ebbtide.model.changelog import RowKind, changelog_schema
from ebbtide.model.durations import from_ms
from ebbtide.model.entries import Step
from ebbtide.model.equality import equality_key
from ebbtide.model.materializer.multiset import OrderedMultiset, Strategy
from ebbtide.model.materializer.operator import SinkUpsertMaterializer
from ebbtide.model.state.raw import Store
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.arrival import ArrivalOperator, Emission, Materialization
from ebbtide.replay.cases import Case, open_store, playing

COLUMNS = ("key", "uk", "row")
COLUMNAR = "COLUMNAR"
STRATEGIES = (*map(str, Strategy), COLUMNAR)


def replay_materializer(
    cases: Iterable[Case], strategy: str = "ADAPTIVE", store: str = "heap", **settings: Any
) -> Iterator[Case]:
    """Play cases; give each back with `output`.

    Args:
        cases: Parsed lines.
        strategy: One of `STRATEGIES`; COLUMNAR is what pipelines on Spark do.
        store: `heap` or `rocksdb`; COLUMNAR needs none.
        settings: `upsert_key`, `ttl_ms`, `high`, `low`, in place of the cases' own where not None.

    Raises:
        ConfigError: a case is not in the format.
    """
    with tempfile.TemporaryDirectory(prefix="ebbtide-replay-") as folder:
        for number, case in enumerate(cases):
            with playing(case, "input"):
                config = {**case, "strategy": strategy} | {k: v for k, v in settings.items() if v is not None}
                if strategy == COLUMNAR:
                    output = list(_in_columns(config, case["input"]))
                else:
                    output = list(_by_record(config, case["input"], open_store(store, Path(folder, str(number)))))
                yield case | {"output": output}


def applies(case: Case, strategy: str) -> bool:
    """Tell whether what a case expects is expected of a strategy."""
    named = case.get("strategies", STRATEGIES)
    return strategy in named or (strategy == COLUMNAR and "LEGACY" in named and not case.get("ttl_ms"))


def _by_record(config: Case, lines: list[Case], store: Store) -> Iterator[Case]:
    materializer, now_ms = _materializer(config, store), 0
    for i, line in enumerate(lines):
        if "restore" in line:
            config |= line["restore"]
            materializer = _materializer(config, store)
            continue
        now_ms = line.get("ts", now_ms)
        key, *_ = row = _texts(line)
        emitted = materializer.process(RowKind(line["op"]), key, row, stamp_ms=now_ms, now_ms=now_ms)
        if emitted is not None:
            yield _result(i, emitted.kind.value, emitted.row)


def _materializer(config: Case, store: Store) -> SinkUpsertMaterializer:
    by_column = _by_column(config)
    return SinkUpsertMaterializer(
        OrderedMultiset(
            store,
            Strategy(config["strategy"]),
            identify=(lambda row: row[1]) if by_column else equality_key,
            replaces=by_column,
            ttl_ms=config.get("ttl_ms") or None,
            high=config.get("high"),
            low=config.get("low"),
        )
    )


def _in_columns(config: Case, lines: list[Case]) -> Iterator[Case]:
    """Play lines with one time between two restores as a step."""
    ttl = StateTtlConfig(ttl=from_ms(config["ttl_ms"])) if config.get("ttl_ms") else None
    how = Materialization(upsert_key=("uk",) if _by_column(config) else (), emission=Emission.EVERY)
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    operator = ArrivalOperator(schema, ("key",), ttl, how)
    state, now_ms = operator.schema.empty_table(), 0
    steps: list[tuple[int, int, int, Case]] = []  # (restores before, time, line, its content)
    restores = 0
    for i, line in enumerate(lines):
        restores += "restore" in line
        now_ms = line.get("ts", now_ms)
        steps += [] if "restore" in line else [(restores, now_ms, i, line)]
    for number, ((_, now), step) in enumerate(groupby(steps, key=lambda each: each[:2]), start=1):
        changes = pa.Table.from_pylist(
            [
                {
                    **dict(zip(COLUMNS, _texts(line), strict=True)),
                    "_kind": RowKind(line["op"]).value,
                    "_order": {"step": number, "part": 0, "position": i},
                }
                for _, _, i, line in step
            ],
            changelog_schema(schema),
        )
        result = operator.apply(changes, state, Step(number, now))
        state = pa.concat_tables([state, result.entries])
        for each in result.emitted.to_pylist() if result.emitted is not None else []:
            yield _result(each["_order"]["position"], each["_kind"], tuple(each[name] for name in COLUMNS))


def _by_column(config: Case) -> bool:
    given = config.get("upsert_key", "none")
    if given not in ("none", "col"):
        raise ValueError(f"upsert_key: got {given!r}; allowed: none, col")
    return bool(given == "col")


def _texts(line: Case) -> tuple[str, ...]:
    return tuple(json.dumps(line[name]) for name in COLUMNS)


def _result(i: int, kind: str, row: tuple[str, ...]) -> Case:
    return {"i": i, "op": kind} | dict(zip(COLUMNS, map(json.loads, row), strict=True))
