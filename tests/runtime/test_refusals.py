"""What is refused before a run reads, or a refresh empties: the tables are then as they were, and the way out that is named works."""

from pathlib import Path

import pytest
from frame.interrupting import killed_before
from local.local_pipeline import up

from ebbtide.delta import DataFile, Writer
from ebbtide.errors import (
    QuarantineThresholdError,
    SourceLostError,
    SourceReadError,
    SourceUnavailableError,
    TableMismatchError,
)


@pytest.fixture
def three_files(make):
    pipeline = make()
    for number in (1, 2, 3):
        pipeline.read(up(number, 1))
    return pipeline


def archive(pipeline, *numbers):
    for number in numbers:
        (pipeline.source / f"{number:04d}.jsonl").unlink()


def losses(pipeline):
    return [facts.source.lost for _, facts in pipeline.plan.state.steps() if facts.source.lost]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0, 1), r"2 of 3 files that were read are not in .*: 0000.jsonl, 0001.jsonl"),
        ((0, 1, 2), "3 of 3 files"),
    ],
)
def test_refresh_without_files_that_were_read_is_refused_and_leaves_the_tables(three_files, numbers, said):
    archive(three_files, *numbers)
    before = three_files.versions()
    with pytest.raises(SourceLostError, match=said + r".*Restore them; or run 'ebbtide refresh --accept-loss'"):
        three_files.do("refresh")
    assert three_files.rows() == {1: 1, 2: 1, 3: 1}
    assert three_files.versions() == before


def test_refresh_reads_what_is_left_if_the_loss_is_accepted_and_the_step_tells_it(three_files):
    archive(three_files, 0)
    three_files.do("refresh", accept_loss=True)
    assert three_files.rows() == {2: 1, 3: 1}
    [lost] = losses(three_files)
    assert lost.startswith("1 of 3 files that were read")
    three_files.do("refresh")
    assert len(losses(three_files)) == 1, "the second one lost nothing"


def take_away(pipeline):
    """Take all rows out of the state, as another client does; returns what was there."""
    state = pipeline.plan.state.snapshot()
    Writer().commit(state, DataFile.replacing(state.files.values(), []), {"operation": "DELETE"})
    return state


def test_refresh_rebuilds_a_state_that_others_have_changed_and_knows_what_was_read(three_files):
    take_away(three_files)
    with pytest.raises(TableMismatchError, match="or 'ebbtide refresh' to rebuild all tables"):
        three_files.run()
    archive(three_files, 0)
    with pytest.raises(SourceLostError, match=r"1 of 3 files that were read are not in .*: 0000.jsonl"):
        three_files.do("refresh")
    three_files.do("refresh", accept_loss=True)
    assert three_files.rows() == {2: 1, 3: 1}
    take_away(three_files)
    three_files.do("refresh")
    assert three_files.rows() == {2: 1, 3: 1}
    assert three_files.is_idle()


def test_refresh_over_a_state_whose_files_others_have_deleted_says_that_it_cannot_tell_what_was_read(three_files):
    for file in take_away(three_files).files.values():
        Path(file.location(three_files.plan.state.path)).unlink()
    with pytest.raises(SourceLostError, match="which of them were read is not known"):
        three_files.do("refresh")
    three_files.do("refresh", accept_loss=True)
    assert three_files.rows() == {1: 1, 2: 1, 3: 1}


def test_refresh_that_was_killed_behind_its_reset_keeps_what_it_lost(three_files):
    archive(three_files, 0)
    with killed_before("a step is published"):
        three_files.do("refresh", accept_loss=True)
    three_files.do("refresh")
    assert three_files.rows() == {2: 1, 3: 1}
    kinds = [facts.cause.what for _, facts in three_files.plan.state.steps() if facts.source.lost]
    assert kinds == ["reset", "reset"]


def test_refresh_from_another_source_asks_for_nothing_of_the_old_one(three_files):
    archive(three_files, 0)
    three_files.spec = three_files.with_fields(source={"records": "kafka"})
    three_files.do("refresh")
    assert losses(three_files) == []


def test_refresh_over_a_damaged_state_that_cannot_tell_what_was_read_is_refused_until_the_loss_is_accepted(three_files):
    for file in three_files.plan.state.snapshot().files.values():
        Path(three_files.plan.state.path, file.path).unlink()
    with pytest.raises(SourceLostError, match="the state is damaged"):
        three_files.do("refresh")
    three_files.do("refresh", accept_loss=True)
    assert three_files.rows() == {1: 1, 2: 1, 3: 1}
    assert len(losses(three_files)) == 1


def refuse_to_start(*_):
    raise SourceUnavailableError("the source does not answer")


def fail_first_step(pipeline, how, monkeypatch):
    """Have a refresh fail at the source's start, at the first file, or at what is in it; return what is raised."""
    if how == "start":
        monkeypatch.setattr("ebbtide.sources._file_source.FileSource.planner", refuse_to_start)
        return SourceUnavailableError
    first = pipeline.source / "0000.jsonl"
    if how == "file":
        first.write_bytes(first.read_bytes().decode().encode("utf-16"))
        pipeline.spec = pipeline.with_fields()
        return SourceReadError
    first.write_text("{\n")
    pipeline.spec = pipeline.with_fields(quarantine={"max_rows_per_step": 0})
    return QuarantineThresholdError


@pytest.mark.parametrize("how", ["start", "file", "records"])
def test_refresh_whose_first_step_fails_leaves_all_tables_as_they_are(three_files, monkeypatch, how):
    before = three_files.versions()
    with monkeypatch.context() as patch:
        error = fail_first_step(three_files, how, patch)
        with pytest.raises(error) as raised:
            three_files.do("refresh", accept_loss=True)
    assert three_files.versions() == before
    assert three_files.rows() == {1: 1, 2: 1, 3: 1}
    assert (three_files.home / "rehearsal").exists() == (how == "records")
    assert how != "records" or "/t/rehearsal/t/staged'" in str(raised.value)
    (three_files.source / "0000.jsonl").write_text(up(1, 2) + "\n")
    three_files.do("refresh", accept_loss=True)
    assert three_files.rows() == {1: 2, 2: 1, 3: 1}
    assert not (three_files.home / "rehearsal").exists()
