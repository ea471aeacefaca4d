"""The report of a run, as people see it in the UI."""

from frame.limits import set_limits

from ebbtide import RunSummary, StepProgress
from ebbtide.dagster.report import report_of
from ebbtide.ledger import DataCommit
from ebbtide.runtime._progress import StepClock, StepColumns


def step(number, **given):
    metrics = given.pop("metrics", {"inserted": 2})
    seconds = given.pop("seconds", 0.5)
    clock = StepClock(0, held_ms=given.pop("held_ms", 0))
    columns = StepColumns(given.pop("ignored", []), given.pop("evolved", {}))
    return StepProgress("plain", number, "batch", number, 1000, 1, metrics, clock, seconds, columns, **given)


def test_sums_and_steps_of_a_run():
    text = report_of(RunSummary("plain", "root", [step(1), step(2, metrics={"deleted": 3, "below_floor": 4})]))
    assert text.splitlines()[0] == (
        "2 steps in 1.0 s: 2,000 records, 2 inserted, 0 updated, 3 deleted, 2 quarantined, 4 below floor."
    )
    assert "| 2 | batch | 1970\u201101\u201101 00:00:00 | 1,000 | 0 | 0 | 3 | 1 | 0.50 |" in text
    assert len(text.splitlines()) == 6


def test_each_step_has_a_bar_as_long_as_it_took_beside_the_longest():
    lines = report_of(RunSummary("plain", "root", [step(1), step(2, seconds=4.0), step(3, seconds=0.0)])).splitlines()
    bars = [line.rsplit("|", 2)[1].strip() for line in lines[4:7]]
    assert bars == ["\u2588", "\u2588" * 8, ""]


def test_run_without_a_step_says_that_there_was_nothing_to_do():
    assert report_of(RunSummary("plain", "root")) == "Nothing was to do: no new records, nothing due."


def test_foreign_writes_are_said_with_what_to_do_also_where_nothing_was_read():
    write = DataCommit("sink", 7, 0, "DELETE", is_own=False)
    text = report_of(RunSummary("plain", "root", foreign_writes=(write,)))
    assert text.startswith("Nothing was to do")
    assert "- 1 commit of other clients changed rows: sink version 7 (DELETE). Run 'ebbtide repair'" in text


def test_what_needs_an_eye_is_said():
    summary = RunSummary(
        "plain",
        "root",
        [step(1, ignored=["a", "b"], evolved={"tier": "STRING"}, held_ms=5000)],
        nothing_matched="it has no files",
        files_unmatched=2,
        files_young=3,
    )
    text = report_of(summary)
    for said in (
        "- Nothing to read: it has no files",
        "Younger than source.min_age, and left for a later run: 3 files.",
        "Not matching source.pattern: 2 files.",
        "left out: a, b.",
        "to be added to the schema: `tier` STRING",
        "held back by up to 5 s",
    ):
        assert said in text


def test_records_that_changed_nothing_are_said():
    text = report_of(
        RunSummary("plain", "root", [step(1, other_tables=3, metrics={"changes": 1, "lone_tombstones": 2})])
    )
    assert "Of other tables than source.table, and left out: 3 records." in text
    assert "Deletes with only a tombstone: 2; their rows are still there" in text
    none = StepProgress("plain", 1, "batch", 1, 0, 0, {}, StepClock(0), 0.5, other_tables=1)
    assert "No record is of source.table:" in report_of(RunSummary("plain", "root", [none]))
    again = StepProgress("plain", 1, "batch", 1, 2, 0, {"redelivered": 2}, StepClock(0), 0.5)
    assert "All that was read had been read before" in report_of(RunSummary("plain", "root", [again]))


def test_long_runs_list_their_last_steps():
    set_limits(report_most_steps=2)
    text = report_of(RunSummary("plain", "root", [step(number) for number in range(1, 6)]))
    assert "| 3 |" not in text
    assert "| 4 |" in text
    assert "Left out: the first 3 steps." in text


def test_sums_are_of_all_steps_however_few_are_kept():
    set_limits(progress_most_steps=2)
    first = step(1, ignored=["a"], held_ms=7)
    summary = RunSummary("plain", "root", [first, *(step(number) for number in range(2, 6))])
    assert [each.step for each in summary.steps] == [4, 5]
    text = report_of(summary)
    assert text.startswith("5 steps in 2.5 s: 5,000 records, 10 inserted, 0 updated, 0 deleted, 5 quarantined.")
    assert "Left out: the first 3 steps." in text
    assert "left out: a." in text
    assert "by up to 7 ms" in text
