"""The harness that users test their own specs with."""

from local.support import envelope, plain, record, spec

from ebbtide.testing import MemoryPipeline, canonical


def created(key, offset=0, **more):
    return record(envelope("c", 1, after={"id": key, "n": key}, **more), offset)


def test_rows_stand_in_order_of_key_without_reserved_columns():
    pipeline = MemoryPipeline(spec())
    pipeline.step([created(10), created(9), created(-1)])
    assert pipeline.rows() == [{"id": -1, "n": -1}, {"id": 9, "n": 9}, {"id": 10, "n": 10}]


def test_step_takes_text_and_bytes_and_leaves_blank_lines_out():
    pipeline = MemoryPipeline(spec())
    pipeline.step([created(1), created(2).encode(), "", b"  ", "{oops"], file="a.jsonl")
    assert [row["id"] for row in pipeline.rows()] == [1, 2]
    [bad] = pipeline.quarantine
    assert (bad["_reason"], bad["_raw"]) == ("bad_json", b"{oops")
    assert bad["_origin"] == {"source": "a.jsonl", "partition": 0, "position": 4}


def test_steps_are_files_of_their_own_unless_named():
    pipeline = MemoryPipeline(plain(format={"type": "plain"}))
    for file in (None, None, "x"):
        pipeline.step(["bad"], file=file)
    assert [bad["_origin"]["source"] for bad in pipeline.quarantine] == ["step-1", "step-2", "x"]


def test_records_of_other_topics_are_left_out_and_tombstones_counted():
    pipeline = MemoryPipeline(spec(source={"path": "in", "topic": "mine"}))
    pipeline.step([record(None, topic="mine"), record(None, topic="other"), created(1)])
    assert (pipeline.rows(), pipeline.metrics["tombstones"], pipeline.quarantine) == ([], 1, [])


def test_copied_spec_goes_by_its_own_fields():
    first = spec()
    MemoryPipeline(first).step([created(1)])
    other = first.model_copy(update={"schema_": "id BIGINT, n STRING", "order": "arrival"})
    pipeline = MemoryPipeline(other)
    pipeline.step([created(1)])
    assert (pipeline.rows(), [bad["_reason"] for bad in pipeline.quarantine]) == ([], ["wrong_type"])


def test_canonical_is_the_same_for_equal_rows_in_any_order_of_columns():
    assert canonical({"b": 1, "a": None}) == canonical({"a": None, "b": 1}) == '{"a": null, "b": 1}'
