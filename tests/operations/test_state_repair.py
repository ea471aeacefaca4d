"""A state that another client has changed, or that has lost files: its restore, and the report of the rest."""

from pathlib import Path

import pytest
from local.local_pipeline import up
from local.local_run import change_state

from ebbtide.delta import Log
from ebbtide.errors import HistoryGoneError, LeaseLostError, RepairError
from ebbtide.operations._repair import state as state_repair

REFRESH = "'ebbtide refresh' to rebuild all tables from the source."


def lose(snapshot, n=None):
    """Delete data files of a version; returns their locations."""
    lost = [file.location(snapshot.table) for file in snapshot.files.values()][:n]
    for location in lost:
        Path(location).unlink()
    return lost


def test_restored_state_says_that_it_was_and_is_of_the_decided_rows(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    right = pipeline.plan.state.snapshot()
    change_state(pipeline.plan)
    assert pipeline.do("restore") == right.version
    newest = pipeline.plan.state.snapshot()
    assert newest.files.keys() == right.files.keys()
    commit = Log(newest.table).commit(newest.version).info()
    assert commit["operation"] == "RESTORE"
    assert pipeline.last.step == 1, "it is no step"


def test_state_that_somebody_commits_to_at_the_same_time_is_not_restored(make, monkeypatch):
    pipeline = make()
    pipeline.read(up(1, 1))
    change_state(pipeline.plan)
    taken = Log(pipeline.plan.state.path).versions()[-1] + 1

    def writer_of(path):
        Path(path, "_delta_log", f"{taken:020d}.json").write_text('{"commitInfo":{"operation":"OPTIMIZE"}}\n')
        return real(path)

    real = state_repair.writer_of
    monkeypatch.setattr(state_repair, "writer_of", writer_of)
    with pytest.raises(LeaseLostError) as raised:
        pipeline.do("restore")
    assert str(raised.value) == (
        f"Another process has committed to '{pipeline.plan.state.path}' at the same time. Run 'ebbtide repair' again."
    )


def test_state_whose_files_are_gone_is_not_restored(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    right = pipeline.plan.state.snapshot()
    change_state(pipeline.plan)
    lose(right, 1)
    versions = pipeline.versions()
    with pytest.raises(HistoryGoneError):
        pipeline.do("restore")
    assert pipeline.versions() == versions


def test_lost_file_counts_though_others_have_taken_its_rows_out(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    right = pipeline.plan.state.snapshot()
    change_state(pipeline.plan)
    [lost] = lose(right, 1)
    with pytest.raises(RepairError) as raised:
        pipeline.repair(action="plan")
    assert str(raised.value) == (
        f"The state of 't' has lost data files, which have no other copy. Got: {lost}."
        f" Allowed: the files as they were written. Restore them from a copy, or run {REFRESH}"
    )


@pytest.mark.parametrize(
    ("work", "way_out"),
    [
        ("migrate", REFRESH),
        (
            "refresh",
            "'ebbtide rewind --to-step 2 --apply': the files of that step are complete, and later records are",
        ),
    ],
)
def test_no_step_of_another_spec_or_from_before_a_refresh_is_gone_back_to(make, work, way_out):
    pipeline = make()
    pipeline.read(up(1, 1))
    before = pipeline.plan.state.snapshot()
    if work == "migrate":
        pipeline.spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n INT, more INT DEFAULT 7")
    pipeline.do(work)
    state = pipeline.plan.state.snapshot()
    assert not state.files.keys() & before.files.keys()
    lost = lose(state)
    with pytest.raises(RepairError) as raised:
        pipeline.repair(action="plan")
    assert f"Got: {'; '.join(lost)}." in str(raised.value)
    assert f"Restore them from a copy, or run {way_out}" in str(raised.value)


def test_no_step_is_offered_where_all_have_lost_files(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    lose(pipeline.plan.state.snapshot())
    with pytest.raises(RepairError) as raised:
        pipeline.repair(action="plan")
    assert str(raised.value).endswith(f"Restore them from a copy, or run {REFRESH}")
