"""The last step that wrote a table, found by reading only new commits."""

import pyarrow as pa
import pytest
from local.made_facts import made_facts

from ebbtide.delta import Definition, Snapshot, Writer
from ebbtide.delta._commit import transaction_mark
from ebbtide.ledger import OwnTable

PUTS = Writer()


@pytest.fixture
def table(tmp_path):
    PUTS.create(str(tmp_path), Definition(pa.schema([("a", pa.int64())])), name="t", info={})
    return str(tmp_path)


def step(table, number, *actions):
    """Commit as a step does; None: as another writer does."""
    facts = {"userMetadata": made_facts(number).to_json()} if number else {}
    PUTS.commit_version(table, Snapshot.read(table).version + 1, actions, {"operation": "WRITE", **facts})


def test_last_step_is_found_from_the_new_commits(table):
    seen = OwnTable(table, "sink")
    assert seen.last_step() == 0
    step(table, None)
    assert (seen.last_step(), OwnTable(table, "sink").last_step()) == (0, 0)
    step(table, 4)
    assert (seen.last_step(), OwnTable(table, "sink").last_step()) == (4, 4)
    step(table, None)
    assert seen.last_step() == 4
    assert seen.snapshot() == Snapshot.read(table)
    step(table, 5)
    step(table, 6)
    assert seen.snapshot() == Snapshot.read(table)
    assert seen.facts() == OwnTable(table, "sink").facts()
    assert (seen.facts().step, seen.facts().id) == (6, Snapshot.read(table).id)


def test_replaced_table_has_another_id(table):
    seen = OwnTable(table, "sink")
    step(table, 4)
    before = seen.facts()
    metadata = {**Snapshot.read(table).metadata, "id": "another"}
    step(table, None, {"metaData": metadata})
    assert before.id != "another"
    assert (seen.facts().id, seen.facts().step) == ("another", 4)


def test_table_with_unknown_features_has_facts(table):
    features = {"readerFeatures": ["fromLater"], "writerFeatures": ["fromLater"]}
    step(table, 4, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    assert OwnTable(table, "sink").facts().step == 4


def test_absent_table_has_no_facts(tmp_path):
    absent = OwnTable(str(tmp_path / "absent"), "sink")
    assert (absent.facts(), absent.last_step(), absent.snapshot()) == (None, 0, None)


def test_last_step_is_read_from_the_mark_after_a_cleanup_of_the_log(table, tmp_path):
    from deltalake import DeltaTable

    step(table, 7, transaction_mark("p/sink", 7), transaction_mark("p/other", 9), transaction_mark("mysink", 11))
    seen = OwnTable(table, "sink")
    assert seen.last_step() == 7
    DeltaTable(table).create_checkpoint()
    for file in (tmp_path / "_delta_log").glob("0*.json"):
        file.unlink()
    assert OwnTable(table, "sink").last_step() == 7
    step(table, None, transaction_mark("p/sink", 8))
    assert (seen.last_step(), OwnTable(table, "sink").last_step()) == (8, 8)
