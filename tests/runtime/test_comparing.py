"""What a comparison finds between a sink and its state: what a dict of rows says, however the keys are divided."""

from collections import Counter

import pyarrow as pa
import pytest
from frame.limits import limits
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from local.local_pipeline import LocalPipeline, up
from local.local_run import SPARK

from ebbtide.delta import DataFile, Snapshot, Writer
from ebbtide.runtime import Plan, SinkDifference

N_KEYS = 12
RIGHT = {key: 1 + key % 3 for key in range(N_KEYS)}
"""The sink's rows, by their key."""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    made = LocalPipeline(tmp_path_factory.mktemp("compared"))
    made.read(*(up(key, 0) for key in range(N_KEYS + 1)))
    made.read(*(up(key, n) for key, n in RIGHT.items()), up(N_KEYS, 1, "-D"))
    return made


def spoil(pipeline, rows):
    """Write other rows in place of the sink's, as another client does: pairs of a key and a value."""
    sink = pipeline.plan.sink
    found = sink.snapshot()
    table = pa.Table.from_pylist([{"id": key, "n": n} for key, n in rows], sink.schema)
    add = DataFile.write(sink.path, f"theirs-{found.version}.parquet", table, bounded=())
    actions = DataFile.replacing(found.files.values(), [add])
    return Writer().commit(found, actions, {"operation": "WRITE"}).version


def compared(pipeline, version):
    plan = Plan.under(pipeline.root, pipeline.spec)
    state_version, last = plan.state.last()
    return SinkDifference.found(
        SPARK, plan, last, state_version=state_version, sink_version=version, take=lambda rows: rows
    )


@settings(max_examples=20, phases=[Phase.generate])
@given(
    st.lists(st.tuples(st.integers(0, N_KEYS + 3), st.integers(1, 3)), max_size=2 * N_KEYS),
    st.sampled_from([5, 10**6]),
)
def test_difference_is_that_of_the_rows_by_key(pipeline, theirs, rows_in_part):
    version = spoil(pipeline, theirs)
    with limits(rewriting_rows_in_part=rows_in_part):
        found = compared(pipeline, version)
    counts = Counter(key for key, _ in theirs)
    first = dict(reversed(theirs))
    wrong = {key for key in RIGHT.keys() | counts.keys() if counts[key] != 1 or first[key] != RIGHT.get(key)}
    assert set(found.differing["id"].to_pylist()) == wrong
    assert found.damages() == {
        "missing": sum(not counts[key] for key in RIGHT),
        "other": sum(first[key] != n for key, n in RIGHT.items() if key in first),
        "extra": len(counts.keys() - RIGHT.keys()),
        "repeated": sum(n > 1 for n in counts.values()),
    }
    assert set(found.present["id"].to_pylist()) == wrong & counts.keys()
    coming = [row for rows in found.taken for row in rows.to_pylist()]
    assert {row["id"]: row["n"] for row in coming} == {key: RIGHT[key] for key in wrong & RIGHT.keys()}
    assert found.keys(2) == [{"id": key} for key in sorted(wrong)[:2]]
    assert all(row["_sequence"] is not None for row in coming), "a row comes with its reserved columns"


def test_acknowledged_keys_are_left_out_until_they_change(pipeline):
    version = spoil(pipeline, [(key, 5) for key in range(3)])
    assert len(compared(pipeline, version).differing) == N_KEYS
    pipeline.act("acknowledge", "apply", reason="theirs")
    version = pipeline.plan.sink.snapshot().version
    assert compared(pipeline, version).differing.num_rows == 0
    pipeline.read(up(1, 8), up(5, 8))
    version = pipeline.plan.sink.snapshot().version
    assert compared(pipeline, version).differing.num_rows == 0
    sink = Snapshot.read(pipeline.plan.sink.path)
    kept = [(row["id"], row["n"]) for row in sink.rows(pipeline.plan.sink.columns).to_pylist() if row["id"] != 5]
    assert compared(pipeline, spoil(pipeline, kept)).differing["id"].to_pylist() == [5]
