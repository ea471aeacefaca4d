"""Records that are read again into a sink, as far as it needs no broker: refusals, what is left, and the report."""

import pytest
from local.local_pipeline import up
from local.local_run import SPARK, START
from local.support import plain

from ebbtide.errors import BackfillError, ConfigError
from ebbtide.ledger import Cause, NoStep
from ebbtide.operations._backfill import rereading
from ebbtide.operations._backfill.rereading import _report
from ebbtide.sources import Span

TOPIC = {"source": {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic": "t"}}
WHOLE = Span({"cluster_id": "c", "topic": "t", "topic_id": "i"}, {0: 0, 1: 5}, {0: 30, 1: 15})


def refused(spec, root, reason="why"):
    with pytest.raises((BackfillError, ConfigError)) as raised:
        rereading.reread(SPARK, spec, root, "earliest", reason)
    return str(raised.value)


@pytest.mark.parametrize("reason", ["", " \n"])
def test_reading_again_takes_a_reason(tmp_path, reason):
    spec = plain(order={"sequence": ["n"]}, **TOPIC)
    assert refused(spec, str(tmp_path), reason) == (
        "Reading records again needs a reason. Got: none. Allowed: a text, kept with the steps."
    )


@pytest.mark.parametrize(
    ("fields", "got"),
    [
        ({"order": {"sequence": ["n"]}}, "a folder, whose files are read once"),
        (TOPIC, "order: arrival, where a record that is read again applies again"),
    ],
)
def test_what_does_not_know_records_that_it_has_read_is_refused(tmp_path, fields, got):
    assert refused(plain(**fields), str(tmp_path)) == (
        f"'t' cannot read records again into its sink. Got: {got}. Allowed: a topic, with order: {{sequence: ...}}."
        " Build new tables: 'ebbtide backfill start'."
    )
    assert list(tmp_path.iterdir()) == []


def test_pipeline_that_is_not_paused_or_has_read_no_topic_is_refused(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    with pipeline.stepper() as stepper, pytest.raises(BackfillError) as raised:
        rereading._refuse_unpaused(stepper)
    assert str(raised.value) == (
        "'t' is not paused. Run 'ebbtide pause --reason TEXT' first, and 'ebbtide resume' afterwards."
    )
    pipeline.act("pause", clock_ms=START, reason="why")
    with pipeline.stepper() as stepper, pytest.raises(BackfillError) as raised:
        rereading._refuse_unpaused(stepper)
    assert str(raised.value) == "'t' has read nothing yet. Set source.start in the spec, and run it."


def test_reading_goes_on_behind_what_was_read_last_for_the_same_reason_only(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    some = WHOLE.first(10)
    source = pipeline.last.source.model_copy(update={"reread": some.to_json()})
    last = pipeline.last.model_copy(update={"source": source, "cause": Cause(what="backfill", why="why")})
    assert rereading._behind(last, "why", WHOLE) == WHOLE.after(some.end)
    assert rereading._behind(last, "another", WHOLE) == WHOLE
    assert rereading._behind(last.model_copy(update={"source": pipeline.last.source}), "why", WHOLE) == WHOLE
    assert rereading._behind(NoStep(), "why", WHOLE) == WHOLE


def test_report_is_written_for_people():
    done = _report("t", 1_200, 0, (4, 5), {"inserted": 1_100, "deleted": 0, "waiting_expired": 2})
    assert done.text() == (
        "t: 1,200 records read in 2 steps: 1,100 inserted, 2 waiting expired.\n  To read on: 'ebbtide resume'."
    )
    stopped = _report("t", 7, 1_000, (4, 5), {})
    assert stopped.text() == "t: 7 records read in 2 steps: nothing new.\n  Left: 1,000; the same command continues."
    assert stopped.as_dict() == {
        "pipeline": "t",
        "records": 7,
        "waiting": 1_000,
        "steps": [4, 5],
        "counts": {},
        "step": 5,
    }
