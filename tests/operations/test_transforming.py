"""Snapshot transformers of a function: cleanup and compaction hand each version of an entry over once."""

import pytest
from frame.interrupting import killed_before
from hypothesis import given, settings
from hypothesis import strategies as st
from local.local_pipeline import LocalPipeline
from local.local_run import HOUR, START
from local.support import change
from user_functions import halved

from ebbtide.errors import StatefulFunctionError

FUNCTION = {
    "function": "user_functions:Transformed",
    "schema": "id BIGINT, seq BIGINT, n BIGINT",
    "ttl": {"items": "10h"},
}
SEEN = ("value", "items", "each", "note", "plain")


def record(id_, n, seq=1):
    return change("+I", id=id_, seq=seq, n=n)


def seen(pipeline, clock_ms=START):
    """What the function finds of each key that it has: a record without a number shows it."""
    ids = {row["id"] for row in pipeline.table("sink", pipeline.spec.sink_table.columns)}
    pipeline.read(*(record(id_, None) for id_ in ids), clock_ms=clock_ms)
    rows = pipeline.table("sink", pipeline.spec.sink_table.columns)
    return {row["id"]: tuple(row[name] for name in SEEN) for row in rows}


class Model:
    """The states by their rules alone: (key, state, sub-key) to the value and whether it is still to be handed over."""

    def __init__(self):
        self.entries = {}
        self.n_items = 0

    def write(self, id_, n):
        self.n_items += 1
        for name, sub in (("value", None), ("items", self.n_items), ("each", n)):
            value, is_new = self.entries.get((id_, name, sub), (None, False))
            self.entries[id_, name, sub] = n, is_new or value != n  # what does not change is not written
        self.entries[id_, "note", None] = "private", True
        self.entries[id_, "plain", None] = n, False

    def transform(self):
        for place, (value, is_new) in list(self.entries.items()):
            if is_new:
                is_note = place[1] == "note"
                kept = None if is_note else halved(value)
                self.entries[place] = kept, False
                if kept is None and not is_note:
                    del self.entries[place]

    def seen(self, id_):
        def of(state):
            return [value for (key, name, _), (value, _) in self.entries.items() if (key, name) == (id_, state)]

        value, note, plain = ((of(name) or [None])[0] for name in ("value", "note", "plain"))
        return value, of("items"), sorted(of("each")), note, plain


courses = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(1, 2), st.integers(0, 9)), min_size=1, max_size=4),
        st.sampled_from(["cleanup", "compaction", "merge", "vacuum"]),
    ),
    max_size=7,
)


@pytest.mark.demand("ttl-transformer")
@settings(max_examples=8, deadline=None)
@given(course=courses)
def test_each_version_of_an_entry_is_handed_over_once(tmp_path_factory, course):
    pipeline, model = LocalPipeline(tmp_path_factory.mktemp("pipeline"), **FUNCTION), Model()
    ids = set()
    for does in [*course, "cleanup", "compaction", "cleanup"]:
        if isinstance(does, str):
            report = pipeline.do(does, START)
            if does == "vacuum":
                continue
            before = dict(model.entries)
            model.transform()
            changed = {place for place, (value, _) in model.entries.items() if before[place][0] != value}
            if ids:
                assert report["entries_transformed"] == len(changed)
        else:
            pipeline.read(*(record(id_, n) for id_, n in does), clock_ms=START)
            for id_, n in does:
                ids.add(id_)
                model.write(id_, n)
    if ids:
        assert seen(pipeline) == {id_: model.seen(id_) for id_ in ids}


@pytest.mark.parametrize("job", ["cleanup", "compaction", "merge"])
def test_transformed_entry_keeps_its_time_and_an_expired_one_is_not_handed_over(make, job):
    pipeline = make(**FUNCTION, max_clock_jump="20h")
    pipeline.read(record(1, 8), record(2, 3), clock_ms=START)
    report = pipeline.do(job, START + HOUR)
    assert (report["entries_transformed"], report["entries_filtered"]) == (5, 3), report.text()
    assert "5 entries transformed by snapshot transformers, 3 entries filtered" in report.text()
    assert seen(pipeline, START + HOUR) == {1: (4, [4], [4], None, 8), 2: (None, [], [], None, 3)}
    pipeline.run(START + 10 * HOUR)
    assert seen(pipeline)[1] == (4, [], [4], None, 8), "its ten hours are over"


def test_expired_entry_is_not_handed_over(make):
    pipeline = make(**{**FUNCTION, "ttl": {"value": "10h", "items": "10h"}}, max_clock_jump="20h")
    pipeline.read(record(1, 8), clock_ms=START)
    report = pipeline.do("cleanup", START + 10 * HOUR)
    assert report["entries_transformed"] == 2, "those of the states without a time to live"


def test_plan_says_how_many_keys_are_waiting_and_calls_nothing(make):
    pipeline = make(**FUNCTION)
    pipeline.read(record(1, 8), record(2, 3), clock_ms=START)
    for name in ("cleanup", "compact"):
        plan = pipeline.act(name, "dry_run", clock_ms=START)
        assert plan.counts["untransformed_keys"] == 2
        assert "Snapshot transformers get entries of 2 keys first." in plan.text()
    assert seen(pipeline)[1] == (8, [8], [8], "private", 8)
    pipeline.do("cleanup", START)
    assert "untransformed_keys" not in pipeline.act("cleanup", "dry_run", clock_ms=START).counts
    assert pipeline.do("cleanup", START).step is None, "nothing is left to hand over"


def test_entries_of_an_earlier_step_are_handed_over_again_after_a_rewind(make):
    pipeline = make(**FUNCTION)
    pipeline.read(record(1, 16), clock_ms=START)
    pipeline.do("cleanup", START)
    pipeline.act("rewind", to_step=1)
    pipeline.do("cleanup", START)
    assert seen(pipeline)[1][0] == 8, "the rewind has taken the first answer back"


@pytest.mark.parametrize("place", ["the state performs", "a step is committed"])
@pytest.mark.parametrize("job", ["cleanup", "compaction"])
def test_entries_are_handed_over_once_though_the_job_is_killed(make, job, place):
    """Before the step of the transformers is committed, and before the one that deletes what they dropped."""
    pipeline = make(**FUNCTION)
    pipeline.read(record(1, 16), record(2, 3), clock_ms=START)
    with killed_before(place):
        pipeline.do(job, START)
    for _ in range(2):
        pipeline.do(job, START)
    assert seen(pipeline) == {1: (8, [8], [8], None, 16), 2: (None, [], [], None, 3)}
    assert not [row for row in pipeline.table("state", pipeline.plan.state.schema) if row["_removed"]]


def test_transformer_that_fails_is_refused_and_nothing_is_committed(make):
    pipeline = make(**{**FUNCTION, "function": "user_functions:FailsToTransform"})
    pipeline.read(record(1, 16), clock_ms=START)
    with pytest.raises(StatefulFunctionError, match=r"FailsToTransform failed on key \(1,\): ZeroDivisionError"):
        pipeline.do("cleanup", START)
    assert pipeline.last.step == 1
