"""What commits say of their step: stored under fixed names, and as far as starting over needs it read of any older format."""

import json

from ebbtide.ledger.facts import StepFacts
from ebbtide.model.step import StepKind

FACTS = StepFacts(
    kind=StepKind.BATCH,
    pipeline="p",
    incarnation="i",
    epoch=4,
    step=7,
    now_ms=1_000,
    state_version=6,
    query_id="q",
    spec={"key": ["id"]},
    code="1.0",
)


def test_facts_are_stored_with_the_version_of_their_format():
    stored = json.loads(FACTS.to_json())
    assert stored["ebbtide"] == 2
    assert "format" not in stored
    assert StepFacts.model_validate(stored) == FACTS


def test_each_stage_of_a_pipeline_has_a_transaction_of_its_own():
    assert FACTS.transaction("sink") == "p/sink"
    assert FACTS.transaction("state") == "p/state"


def test_of_an_older_format_only_what_every_format_has_is_read():
    stored = {**json.loads(FACTS.to_json()), "ebbtide": 1, "kind": "one of then", "spec": "another form", "gone": 1}
    older = StepFacts.of_older(stored)
    known = {name: getattr(older, name) for name in ("pipeline", "incarnation", "epoch", "step", "now_ms", "query_id")}
    assert known == {"pipeline": "p", "incarnation": "i", "epoch": 4, "step": 7, "now_ms": 1_000, "query_id": "q"}
    assert (older.state_version, older.code) == (6, "1.0")
    assert (older.kind, older.spec) == (StepKind.RESET, {}), "what was then is not used"


def test_facts_of_a_format_that_lacks_some_are_read_without_them():
    stored = json.loads(FACTS.to_json())
    del stored["query_id"]
    assert StepFacts.of_older(stored).query_id is None
