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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ebbtide.changelog import RowKind, changelog_schema
from ebbtide.columns import equality_key
from ebbtide.durations import from_ms
from ebbtide.entries import Step
from ebbtide.keyed_state import StateTtlConfig, Store
from ebbtide.materializer import OrderedMultiset, Row, SinkUpsertMaterializer, Strategy
from ebbtide.operators import ArrivalOperator, Emission, Materialization
from ebbtide.replay._cases import Case, PlayedCase, open_store, playing

COLUMNS = ("key", "uk", "row")
COLUMNAR = "COLUMNAR"
STRATEGIES = (*map(str, Strategy), COLUMNAR)


def replay_materializer(
    cases: Iterable[Case],
    strategy: str = "ADAPTIVE",
    store: str = "heap",
    **settings: Any,
) -> Iterator[PlayedCase]:
    """Play cases.

    Args:
        cases: Parsed lines.
        strategy: One of `STRATEGIES`; COLUMNAR is what pipelines on Spark do.
        store: `heap` or `rocksdb`; COLUMNAR needs none.
        settings: `upsert_key`, `ttl_ms`, `high`, `low`, in place of the cases' own where not None.

    Raises:
        ConfigError: a case is not in the format.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="ebbtide-replay-") as folder:
        for number, case in enumerate(cases):
            with playing(case, "input"):
                config = {**case, "strategy": strategy, **given}
                lines = case["input"]
                if strategy == COLUMNAR:
                    results = _in_columns(config, lines)
                else:
                    path = Path(folder, str(number))
                    results = _by_record(config, lines, open_store(store, path))
                yield PlayedCase(case | {"output": list(results)}, _applies(case, strategy))


def _applies(case: Case, strategy: str) -> bool:
    """Return whether what a case expects is expected of a strategy."""
    named = case.get("strategies", STRATEGIES)
    if strategy in named:
        return True
    if strategy != COLUMNAR or case.get("ttl_ms"):
        return False
    return "LEGACY" in named


def _by_record(config: Case, lines: list[Case], store: Store) -> Iterator[Case]:
    """Play lines one by one, as Flink does."""
    materializer = _materializer(config, store)
    now_ms = 0
    for i, line in enumerate(lines):
        if "restore" in line:
            config |= line["restore"]
            materializer = _materializer(config, store)
            continue
        now_ms = line.get("ts", now_ms)
        row = _texts(line)
        key = row[0]
        emitted = materializer.process(
            RowKind(line["op"]),
            key,
            row,
            stamp_ms=now_ms,
            now_ms=now_ms,
        )
        if emitted is not None:
            yield _result(i, emitted.kind.value, emitted.row)


def _materializer(config: Case, store: Store) -> SinkUpsertMaterializer:
    by_column = _by_column(config)
    rows = OrderedMultiset(
        store,
        Strategy(config["strategy"]),
        identify=_upsert_key if by_column else equality_key,
        replaces=by_column,
        ttl_ms=config.get("ttl_ms") or None,
        high=config.get("high"),
        low=config.get("low"),
    )
    return SinkUpsertMaterializer(rows)


def _upsert_key(row: Row) -> Any:
    return row[COLUMNS.index("uk")]


@dataclass
class _Stretch:
    """Lines with one time between two restores: a step of the columnar operator.

    Args:
        now_ms: The time.
        lines: (number, line) each.
    """

    now_ms: int
    lines: list[tuple[int, Case]]


def _stretches(lines: list[Case]) -> list[_Stretch]:
    # The columnar operator has one clock for a step, and a restore is seen between steps only.
    stretches: list[_Stretch] = []
    stretch = None
    now_ms = 0
    for i, line in enumerate(lines):
        now_ms = line.get("ts", now_ms)
        if "restore" in line:
            stretch = None
            continue
        # A new stretch begins after a restore and where the time changes.
        if stretch is None or stretch.now_ms != now_ms:
            stretch = _Stretch(now_ms, [])
            stretches.append(stretch)
        stretch.lines.append((i, line))
    return stretches


def _in_columns(config: Case, lines: list[Case]) -> Iterator[Case]:
    """Play lines as pipelines do, a step at a time."""
    text = pa.string()
    columns = pa.schema([(name, text) for name in COLUMNS])
    changes_schema = changelog_schema(columns)
    operator = _operator(config, columns)
    state = operator.schema.empty_table()
    # As in a pipeline, a step sees the state that the steps before have appended to.
    stretches = _stretches(lines)
    for number, stretch in enumerate(stretches, start=1):
        step = Step(number, stretch.now_ms)
        rows = [_change_row(number, i, line) for i, line in stretch.lines]
        changes = pa.Table.from_pylist(rows, changes_schema)
        result = operator.apply(changes, state, step)
        state = pa.concat_tables([state, result.entries])
        if result.emitted is None:
            continue
        for emission in result.emitted.to_pylist():
            row = tuple(emission[name] for name in COLUMNS)
            i = emission["_order"]["position"]
            yield _result(i, emission["_kind"], row)


def _operator(config: Case, columns: pa.Schema) -> ArrivalOperator:
    ttl_ms = config.get("ttl_ms")
    ttl = None
    if ttl_ms:
        ttl = StateTtlConfig(ttl=from_ms(ttl_ms))
    materialization = Materialization(
        upsert_key=("uk",) if _by_column(config) else (),
        emission=Emission.EVERY,
    )
    return ArrivalOperator(columns, ("key",), ttl, materialization)


def _change_row(step: int, i: int, line: Case) -> dict[str, Any]:
    texts = _texts(line)
    values = dict(zip(COLUMNS, texts, strict=True))
    kind = RowKind(line["op"])
    order = {
        "step": step,
        "part": 0,
        "position": i,
    }
    return {
        **values,
        "_kind": kind.value,
        "_order": order,
    }


def _by_column(config: Case) -> bool:
    given = config.get("upsert_key", "none")
    if given not in ("none", "col"):
        raise ValueError(f"upsert_key: got {given!r}; allowed: none, col")
    return str(given) == "col"


def _texts(line: Case) -> tuple[str, ...]:
    return tuple(json.dumps(line[name]) for name in COLUMNS)


def _result(i: int, kind: str, row: tuple[str, ...]) -> Case:
    values = map(json.loads, row)
    columns = dict(zip(COLUMNS, values, strict=True))
    return {
        "i": i,
        "op": kind,
        **columns,
    }
