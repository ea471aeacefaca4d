"""What the real Flink 2.3 answered to the same scripts."""

import gzip
import json
from pathlib import Path

import pytest

from ebbtide.replay import replay_ttl

DATA = Path(__file__).resolve().parents[1] / "data"
GOLDEN = [json.loads(line) for line in (DATA / "ttl_golden.jsonl").read_text().splitlines()]

RANDOM = [json.loads(line) for line in gzip.decompress((DATA / "ttl_flink_random.jsonl.gz").read_bytes()).splitlines()]
"""400 random scripts; what Flink stores as empty containers is left out of its answers."""

APPENDING = [
    json.loads(line) for line in gzip.decompress((DATA / "ttl_flink_appending.jsonl.gz").read_bytes()).splitlines()
]
"""300 random scripts of reducing and aggregating states. Where their function returned null, Flink stores a stamped null: left out."""


@pytest.mark.parametrize("store", ["heap", "rocksdb", "delta"])
@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
@pytest.mark.demand("ttl-kinds", "ttl-restore-times")
def test_script_gives_what_flink_gave(case, store):
    [played] = replay_ttl([case], store)
    assert not played.differs, (played.output, case["expected"])


def test_changed_expectation_differs():
    case = GOLDEN[0] | {"expected": GOLDEN[0]["expected"][:-1]}
    [played] = replay_ttl([case])
    assert played.differs


@pytest.mark.parametrize(
    ("store", "each"), [("heap", 1), ("rocksdb", 20), ("delta", 20), pytest.param("delta", 1, marks=pytest.mark.model)]
)
@pytest.mark.demand("ttl-kinds")
def test_random_scripts_give_what_flink_gave(store, each):
    """All of them by the store that takes no time: each restore opens another database, or reads a table."""
    assert len(RANDOM) == 400
    cases = RANDOM[::each]
    assert [played.case["name"] for played in replay_ttl(cases, store) if played.differs] == []


@pytest.mark.parametrize(("store", "each"), [("heap", 1), ("rocksdb", 10), ("delta", 5)])
@pytest.mark.demand("ttl-appending")
def test_reducing_and_aggregating_states_give_what_flink_gave(store, each):
    assert len(APPENDING) == 300
    cases = APPENDING[::each]
    assert [played.case["name"] for played in replay_ttl(cases, store) if played.differs] == []
