"""Rows that lost a tie: which are kept beside the row that won, for how long, and what is reported where they are not known."""

from functools import partial

import pyarrow as pa
import pytest
from local.notes_log import newest
from local.notes_log import run as played
from local.support import change, envelope, plain, record, spec

SCHEMA = "id BIGINT NOT NULL, at INT, n INT"
BY_TIME = {"order": {"sequence": ["at"]}}
LEAST, MIDDLE, GREATEST = 2, 1, 3
"""Numbers in the order of the digests of their rows: the last one counts."""
run = partial(played, of=plain(SCHEMA, **BY_TIME))


def row(kind, n, at=5):
    return change(kind, id=1, at=at, n=n)


def shown(pipeline):
    return [each["n"] for each in pipeline.rows()]


def kept(pipeline):
    """What stands beside the row: null, or numbers."""
    tied = newest(pipeline)["_tied"]
    return None if tied is None else [each["n"] for each in tied]


def without_tied_rows(pipeline):
    """The same, of a version that did not keep them."""
    schema = pipeline.state.schema
    index = schema.get_field_index("_tied")
    field = schema.field(index)
    pipeline.state = pipeline.state.set_column(index, field, pa.nulls(len(pipeline.state), field.type))
    return pipeline


def test_digest_of_a_row_is_what_it_was_when_it_was_stored():
    """Digests stand in stored state: a row's must be the same in every process and version."""
    of = plain(f"{SCHEMA}, f DOUBLE, s STRING, d DECIMAL(6,2), m MAP<BIGINT, BIGINT>", **BY_TIME)
    rows = [
        {"id": 1, "at": 5, "n": 1, "f": 1.5, "s": "a", "d": "1.50", "m": {"10": 2, "9": 1}},
        {"id": 2, "at": 5, "n": None, "f": -0.0, "s": "\u00e9", "d": "-2", "m": None},
    ]
    pipeline = run([change("-U", **each) for each in rows], of=of)
    stored = [entry["_retracted"] for entry in pipeline.state.to_pylist()]
    assert stored == [[1653780657871761739], [679297667183338171]]


def test_rows_that_lost_a_tie_stay_until_a_greater_sequence_comes():
    pipeline = run([row("+U", n) for n in (LEAST, MIDDLE, GREATEST)])
    assert (shown(pipeline), kept(pipeline), pipeline.metrics["conflicts"]) == ([GREATEST], [LEAST, MIDDLE], 2)
    pipeline.step([row("+U", 9, at=6)])
    assert (shown(pipeline), kept(pipeline), newest(pipeline)["_conflict"]) == ([9], None, False)


def test_rows_that_lost_a_tie_are_gone_with_a_delete_at_their_sequence():
    pipeline = run([row("+U", LEAST), row("+U", GREATEST)], [row("-D", LEAST)])
    assert (shown(pipeline), kept(pipeline), newest(pipeline)["_conflict"]) == ([], None, False)


def test_conflict_is_over_once_all_but_one_content_are_taken_back():
    pipeline = run([row("+U", LEAST), row("+U", GREATEST)], [row("-U", LEAST)])
    assert (shown(pipeline), kept(pipeline), newest(pipeline)["_conflict"]) == ([GREATEST], None, False)
    pipeline = run([row("+U", LEAST), row("+U", GREATEST)], [row("-U", GREATEST)])
    assert (shown(pipeline), kept(pipeline), newest(pipeline)["_conflict"]) == ([LEAST], None, False)
    assert newest(pipeline)["_changed_by"] == {"step": 2, "part": 0, "position": 0}


@pytest.mark.parametrize(
    ("again", "name"),
    [(row("+U", LEAST), "duplicates"), (row("+U", GREATEST), "duplicates"), (row("+U", 7, at=4), "superseded")],
)
def test_changes_that_tell_nothing_new_beside_a_tie_write_nothing(again, name):
    pipeline = run([row("+U", LEAST), row("+U", GREATEST)])
    before = pipeline.metrics.copy()
    pipeline.step([again])
    assert newest(pipeline)["_step"] == 1
    assert pipeline.metrics - before == {"changes": 1, name: 1}


def test_key_of_which_one_of_several_contents_may_have_come_back_is_reported_until_another_comes():
    there_and_back = [row(kind, n) for kind, n in [("+I", 1), ("-U", 1), ("+U", 2), ("-U", 2), ("+U", 1)]]
    pipeline = run(there_and_back)
    assert (shown(pipeline), newest(pipeline)["_conflict"], pipeline.metrics["conflicts"]) == ([], True, 1)
    pipeline.step(there_and_back)
    assert (newest(pipeline)["_step"], pipeline.metrics["conflicts"]) == (1, 1)
    pipeline.step([row("+U", 3)])
    assert (shown(pipeline), newest(pipeline)["_conflict"]) == ([3], False)


def test_row_that_left_its_key_by_one_retraction_is_not_reported():
    pipeline = run([row("+I", 1)], [row("-U", 1)], [row("+I", 1)])
    assert (shown(pipeline), newest(pipeline)["_conflict"], pipeline.metrics["conflicts"]) == ([], False, 0)


def test_key_whose_lost_rows_an_older_version_dropped_is_reported_until_a_greater_sequence_comes():
    pipeline = without_tied_rows(run([row("+U", LEAST), row("+U", GREATEST)]))
    pipeline.step([row("-U", GREATEST)])
    assert (shown(pipeline), newest(pipeline)["_tombstone"], newest(pipeline)["_conflict"]) == ([], True, True)
    pipeline.step([row("+U", MIDDLE)])
    assert (shown(pipeline), newest(pipeline)["_conflict"]) == ([MIDDLE], True)
    pipeline.step([row("+U", 9, at=6)])
    assert (shown(pipeline), newest(pipeline)["_conflict"]) == ([9], False)


def test_report_outlives_an_entry_that_is_written_again_for_its_time():
    timed = {"ttl": "100ms", "time_characteristic": "EVENT_TIME"}
    of = plain("id BIGINT NOT NULL, at INT, n INT, t TIMESTAMP", **BY_TIME, event_time="t", ttl=timed)
    changes = [("+U", 1), ("-U", 1), ("+U", 2), ("-U", 2)]
    pipeline = run([change(kind, id=1, at=5, n=n, t=0) for kind, n in changes], of=of)
    pipeline.step([change("+U", id=1, at=3, n=0, t=50_000)])
    assert (newest(pipeline)["_step"], newest(pipeline)["_conflict"], kept(pipeline)) == (2, True, [])


def test_rows_of_a_database_s_events_are_not_kept_since_none_comes_back():
    events = [record(envelope("u", None, after={"id": 1, "at": 5, "n": n})) for n in (1, 2)]
    pipeline = run(events, of=spec(SCHEMA, **BY_TIME))
    assert (kept(pipeline), newest(pipeline)["_conflict"]) == (None, True)
