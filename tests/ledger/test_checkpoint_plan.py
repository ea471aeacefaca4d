"""The checkpoint of a run that plans its batches itself, in Spark's form."""

from ebbtide.delta import Writer
from ebbtide.ledger import Checkpoint
from ebbtide.ledger import _checkpoint as checkpoint_module

PUTS = Writer()


def test_batch_is_planned_read_and_committed(tmp_path):
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"))
    assert (checkpoint.query_id, checkpoint.last_planned(), checkpoint.is_open) == (None, None, False)
    checkpoint.begin(PUTS)
    known = checkpoint.query_id
    checkpoint.begin(PUTS)
    assert checkpoint.query_id == known is not None
    checkpoint.plan(PUTS, 0, 5_000, '{"a": 1}')
    assert (checkpoint.last_planned(), checkpoint.last_committed(), checkpoint.is_open) == (0, None, True)
    offsets = checkpoint.offsets(0)
    assert (offsets.timestamp_ms, offsets.source) == (5_000, {"a": 1})
    checkpoint.plan(PUTS, 0, 6_000, '{"a": 2}')
    assert checkpoint.offsets(0) == offsets  # what was planned stays
    checkpoint.commit(PUTS, 0)
    assert (checkpoint.last_committed(), checkpoint.is_open) == (0, False)


def test_batch_that_was_not_decided_is_planned_again(tmp_path):
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"))
    checkpoint.plan(PUTS, 0, 5_000, '{"a": 1}')
    checkpoint.forget_undecided(None)
    assert checkpoint.last_planned() is None
    checkpoint.plan(PUTS, 0, 6_000, '{"a": 2}')
    assert checkpoint.offsets(0).source == {"a": 2}


def test_files_of_old_batches_go_as_new_ones_come(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "BATCHES_KEPT", 3)
    monkeypatch.setattr(checkpoint_module, "FORGOTTEN_EVERY", 3)
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"))
    for batch in range(10):
        checkpoint.plan(PUTS, batch, 5_000, "{}")
        checkpoint.commit(PUTS, batch)
    for kind in ("offsets", "commits"):
        assert sorted(path.name for path in (tmp_path / "checkpoint" / kind).iterdir()) == ["7", "8", "9"]
    assert checkpoint.last_committed() == 9
