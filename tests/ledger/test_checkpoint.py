import pytest

from ebbtide.ledger.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """Batches 0 to 3 planned, 0 and 1 committed."""
    for log, batches in (("offsets", range(4)), ("commits", range(2))):
        (tmp_path / log).mkdir()
        for batch in batches:
            (tmp_path / log / str(batch)).touch()
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


def test_checkpoint_that_is_not_there_has_nothing_open(tmp_path):
    absent = Checkpoint(str(tmp_path / "no"))
    absent.forget_undecided(None)
    assert not absent.is_open
