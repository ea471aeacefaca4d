"""What the real Flink 2.3 emitted for the same changelogs."""

import gzip
import json
from pathlib import Path

import pytest

from ebbtide.errors import ConfigError
from ebbtide.materializer import Strategy
from ebbtide.replay import replay_materializer

DATA = Path(__file__).resolve().parents[1] / "data"
GOLDEN = [json.loads(line) for line in (DATA / "materializer_golden.jsonl").read_text().splitlines()]
RANDOM = [
    json.loads(line)
    for line in gzip.decompress((DATA / "materializer_flink_random.jsonl.gz").read_bytes()).splitlines()
]
"""400 random changelogs."""
KINDS = [(strategy, store) for strategy in (*map(str, Strategy), "COLUMNAR") for store in ("heap", "rocksdb")][:-1]
"""COLUMNAR needs no store."""


def differing(cases, strategy, store, **settings):
    played = list(replay_materializer(cases, strategy, store, **settings))
    assert any(case.is_expected for case in played)
    return [(each.case["name"], each.output) for each in played if each.differs]


@pytest.mark.parametrize(("strategy", "store"), KINDS)
@pytest.mark.demand("sum-rules", "sum-heap")
def test_golden_changelogs_emit_what_flink_emitted(strategy, store):
    cases = GOLDEN if store == "heap" else GOLDEN[::4]
    assert differing(cases, strategy, store) == []


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.model)])
@pytest.mark.parametrize(("strategy", "store"), KINDS)
@pytest.mark.demand("sum-rules")
def test_random_changelogs_emit_what_flink_emitted(strategy, store, each):
    is_dear = store == "rocksdb" or strategy == "COLUMNAR"  # a call, or arrays, for each row
    cases = RANDOM[:: 10 * each] if is_dear else RANDOM[::each]
    thresholds = {"high": 4, "low": 2} if strategy == "ADAPTIVE" else {}
    assert differing(cases, strategy, store, **thresholds) == []


def test_changed_expectation_differs():
    case = GOLDEN[0] | {"expected": GOLDEN[0]["expected"][:-1]}
    [done] = replay_materializer([case])
    assert done.differs


def test_settings_replace_those_of_the_case():
    lines = [{"op": "+I", "key": 1, "uk": 1, "row": row, "ts": ts} for row, ts in (("a", 0), ("b", 10))]
    lines += [{"op": "-D", "key": 1, "uk": 1, "row": "x", "ts": 19}]
    [plain] = replay_materializer([{"input": lines}])
    [by_column] = replay_materializer([{"input": lines}], upsert_key="col")
    [expired] = replay_materializer([{"input": lines}], upsert_key="col", ttl_ms=9)
    assert [[r["op"] for r in case.output] for case in (plain, by_column, expired)] == [
        ["+I", "+U"],
        ["+I", "+U", "-D"],
        ["+I", "+I"],
    ]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"name": "n"}, "'input'"),
        ({"name": "n", "upsert_key": "row", "input": []}, "upsert_key: got 'row'; allowed: none, col"),
        ({"name": "n", "input": [{"op": "+X", "key": 1, "uk": 1, "row": 1}]}, "'\\+X' is not a valid RowKind"),
        ({"name": "n", "high": 3, "low": 3, "input": []}, "low 3, high 3; allowed: 0 <= low < high"),
    ],
)
def test_case_that_cannot_be_played_is_refused_by_name(case, words):
    with pytest.raises(ConfigError, match=f"The case 'n' cannot be played: .*{words}"):
        list(replay_materializer([case]))
