"""The facts of a step in its commits: stored under fixed names, with an action for each table."""

import json

import pytest
from local.made_facts import made_facts

from ebbtide.ledger import StepFacts
from ebbtide.model import Append, Apply, Decision, Source, StoredDocument

FACTS = made_facts(7, pipeline="p")


def test_facts_are_stored_with_the_version_of_their_format():
    stored = json.loads(FACTS.to_json())
    assert stored["ebbtide"] == StoredDocument.FORMAT
    assert "format" not in stored
    assert StepFacts.of_commit(stored, "t") == FACTS


@pytest.mark.parametrize("facts", [FACTS, FACTS.decision, FACTS.frontier])
def test_copy_of_facts_takes_no_field_that_they_lack(facts):
    with pytest.raises(TypeError, match=f"{type(facts).__name__} has no field bad_rows"):
        facts.model_copy(update={"bad_rows": [], "step": 8})


def test_copy_of_facts_has_other_values():
    assert FACTS.model_copy(update={"step": 8}).step == 8


def test_actions_are_stored_by_the_name_of_what_they_do():
    written = ({"add": {"path": "part.parquet"}},)
    tables = {"sink": Apply(only_inserts=True), "quarantine": Append(written, {"dropped": 2})}
    facts = made_facts(decision=Decision(tables=tables, source=Source.ADVANCE, counts={"inserted": 3}))
    assert json.loads(facts.to_json())["decision"] == {
        "tables": {
            "sink": {"do": "apply", "only_inserts": True},
            "quarantine": {"do": "append", "actions": list(written), "removed": {"dropped": 2}},
        },
        "source": "advance",
        "counts": {"inserted": 3},
        "accepts_sink": None,
    }
    assert StepFacts.of_commit(json.loads(facts.to_json()), "t") == facts


def test_each_stage_of_a_pipeline_has_a_transaction_of_its_own():
    assert FACTS.transaction("sink") == "p/sink"
    assert FACTS.transaction("state") == "p/state"
