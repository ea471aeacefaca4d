"""Spark's checkpoint: its id, the offsets of each batch, and batches that are only planned."""

import hashlib
import json

import pytest

from ebbtide.errors import CheckpointMismatchError
from ebbtide.ledger import Checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """Batches 0 to 3 planned, 0 and 1 committed."""
    for log, batches in (("offsets", range(4)), ("commits", range(2))):
        (tmp_path / log).mkdir()
        for batch in batches:
            (tmp_path / log / str(batch)).write_text("v1\n{}")
            (tmp_path / log / f".{batch}.crc").touch()
    return Checkpoint(str(tmp_path))


def planned(checkpoint):
    return sorted(checkpoint._batches("offsets"))


@pytest.mark.parametrize(("decided", "left"), [(2, [0, 1, 2]), (1, [0, 1]), (3, [0, 1, 2, 3])])
def test_plan_that_was_not_decided_is_forgotten(checkpoint, tmp_path, decided, left):
    assert checkpoint.is_open
    checkpoint.forget_undecided(decided)
    assert planned(checkpoint) == left
    assert len(list((tmp_path / "offsets").iterdir())) == 2 * len(left)
    assert checkpoint.is_open == (len(left) > 2)


@pytest.mark.parametrize("decided", [None, 0])
def test_plan_that_spark_has_committed_stays_though_the_state_knows_nothing_of_it(checkpoint, decided):
    checkpoint.forget_undecided(decided)
    assert planned(checkpoint) == [0, 1]


@pytest.mark.parametrize("torn", ["", "v1", 'v1\n{"next', "\0" * 9])
def test_commit_that_a_power_cut_has_torn_is_forgotten_so_that_its_batch_is_made_again(checkpoint, tmp_path, torn):
    (tmp_path / "commits" / "1").write_text(torn)
    checkpoint.forget_undecided(1)
    assert checkpoint.last_committed() == 0
    assert planned(checkpoint) == [0, 1]
    assert not (tmp_path / "commits" / ".1.crc").exists()


def test_torn_id_of_a_checkpoint_by_which_nothing_was_decided_is_forgotten(tmp_path):
    (tmp_path / "metadata").write_text('{"id')
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.forget_undecided(0)
    assert (tmp_path / "metadata").exists()
    checkpoint.forget_undecided(None)
    assert checkpoint.query_id is None


def test_plans_of_a_checkpoint_that_has_committed_nothing_are_all_forgotten(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    (tmp_path / "offsets" / "1").touch()
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.forget_undecided(None)
    assert planned(checkpoint) == []


def test_checkpoint_that_is_not_there_has_nothing_open(tmp_path):
    absent = Checkpoint(str(tmp_path / "no"))
    absent.forget_undecided(None)
    assert not absent.is_open


def test_id_is_the_one_that_spark_has_minted(tmp_path):
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.query_id is None
    (tmp_path / "metadata").write_text('{"id": "5d0a"}')
    assert checkpoint.query_id == "5d0a"


def test_batch_is_known_by_all_of_its_file_and_read_as_spark_writes_it(tmp_path):
    text = "\n".join(["v1", json.dumps({"batchTimestampMs": 17, "batchWatermarkMs": 0}), '{"files": [["a", 1]]}'])
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(text)
    offsets = Checkpoint(str(tmp_path)).offsets(3)
    assert offsets.source == {"files": [["a", 1]]}
    assert offsets.timestamp_ms == 17
    assert offsets.hash == hashlib.sha256(text.encode()).hexdigest()


def test_batch_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CheckpointMismatchError) as raised:
        Checkpoint(str(tmp_path)).offsets(3)
    assert str(raised.value) == (
        f"The checkpoint '{tmp_path}' has no offsets for batch 3. Restore it, or run 'ebbtide refresh'."
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("metadata", '{"id', "JSONDecodeError"),
        ("metadata", '{"name": 1}', r"KeyError\('id'\)"),
        ("metadata", "[]", "TypeError"),
        ("offsets/0", "v1\n{}", "ValueError"),
        ("offsets/0", "v1\n{}\n{}", r"KeyError\('batchTimestampMs'\)"),
        ("offsets/0", 'v1\n{"batchTimestampMs": null}\n{}', "TypeError"),
    ],
)
def test_damaged_file_is_named_with_the_way_out(tmp_path, name, text, why):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    checkpoint = Checkpoint(str(tmp_path))
    with pytest.raises(CheckpointMismatchError, match=why) as raised:
        _ = checkpoint.query_id if name == "metadata" else checkpoint.offsets(0)
    assert str(raised.value).startswith(f"The file '{file}' of the checkpoint is torn or damaged. Got: ")
    assert str(raised.value).endswith(
        f" Restore it; or move the folder '{tmp_path}' away and run again, which says how a new one is begun where the state"
        " stands; or run 'ebbtide refresh'."
    )


def test_discarded_checkpoint_leaves_nothing(checkpoint, tmp_path):
    checkpoint.discard()
    assert not tmp_path.exists()
    assert checkpoint.last_committed() is None
