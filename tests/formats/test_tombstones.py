"""A tombstone that stands behind its delete says nothing new; of any other it is found out whether the row of its key is still there."""

import json
from dataclasses import replace

import pytest
from crashes.disk import DiskPipeline
from frame.circumstances import assume
from frame.limits import limits
from hypothesis import given
from hypothesis import strategies as st
from inputs.lines import batch_of, placed_batch_of, staged
from local.support import envelope, record, spec

from ebbtide.formats import StagedKind
from ebbtide.testing import MemoryPipeline

KEY = '{"id": 1}'
WITH_SCHEMA = json.dumps(
    {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 1}}
)
CREATE = record(envelope("c", 1, after={"id": 1, "n": 1}), 1, key=KEY)
DELETE = record(envelope("d", 3, before={"id": 1, "n": 0}), 3, key=KEY)
TOMBSTONE = record(None, 4, key=KEY)
AGAIN = record(envelope("c", 5, after={"id": 1, "n": 5}), 5, key=KEY)
OTHER = record(envelope("c", 6, after={"id": 2, "n": 6}), 6, key='{"id": 2}')
FLATTENED = record({"id": 1, "n": 1, "__op": "c", "__lsn": 1}, 1, key=KEY)
ROW = {"id": 1, "n": 1}


def played(steps, **more):
    pipeline = MemoryPipeline(spec(**more))
    for lines in steps:
        pipeline.step(lines)
    return pipeline.rows(), pipeline.metrics["lone_tombstones"], pipeline.metrics["unread_tombstones"]


@pytest.mark.parametrize("order", ["arrival", {"sequence": ["_lsn"]}], ids=["arrival", "sequence"])
@pytest.mark.parametrize(
    "steps",
    [
        [[CREATE, TOMBSTONE]],
        [[CREATE], [TOMBSTONE]],
        [[CREATE, OTHER, TOMBSTONE]],
        [[CREATE], [OTHER, record(None, 7, key=WITH_SCHEMA)]],
        [[FLATTENED], [TOMBSTONE]],
    ],
    ids=["at once", "in another step", "behind another", "key with schema", "flattened"],
)
def test_tombstone_alone_is_counted_and_the_row_stays(order, steps):
    rows, lone, unread = played(steps, order=order)
    assert (rows[0], lone, unread) == (ROW, 1, 0)


@pytest.mark.parametrize(
    "steps",
    [
        [[CREATE, DELETE, TOMBSTONE]],
        [[CREATE], [DELETE, TOMBSTONE]],
        [[CREATE], [DELETE], [TOMBSTONE]],
        [[CREATE], [DELETE, OTHER, TOMBSTONE]],
        [[CREATE], [DELETE], [TOMBSTONE, AGAIN]],
        [[CREATE, DELETE, TOMBSTONE, AGAIN], [DELETE, TOMBSTONE]],
        [[TOMBSTONE]],
        [[CREATE], [record(None, 4)]],
        [[CREATE], [record("{", 3, key=KEY), TOMBSTONE]],
    ],
    ids=[
        "at once",
        "of an older row",
        "cut off",
        "another between",
        "in use again",
        "redelivered",
        "no row",
        "no key",
        "bad",
    ],
)
def test_tombstone_of_a_delete_is_not_spoken_of(steps):
    _, lone, unread = played(steps)
    assert (lone, unread) == (0, 0)


@pytest.mark.parametrize("null", ["null", '{"schema":null,"payload":null}', '{"schema": null, "payload": null}'])
@pytest.mark.parametrize("before", [[CREATE], [CREATE, DELETE], [CREATE, DELETE, OTHER], []], ids=len)
def test_null_in_writing_is_a_tombstone(null, before):
    in_writing = record(null, 4, key=KEY)
    for steps in ([[*before, TOMBSTONE]], [before, [TOMBSTONE]]):
        written = [[in_writing if line is TOMBSTONE else line for line in lines] for lines in steps]
        assert played(written) == played(steps)
    of_topic = [staged(spec().decoding, placed_batch_of([*before, line])) for line in (TOMBSTONE, in_writing)]
    assert of_topic[0].equals(of_topic[1])


@pytest.mark.parametrize("null", ["null", '{"schema":null,"payload":null}'])
def test_line_with_only_a_null_is_no_bad_record(null):
    pipeline = MemoryPipeline(spec(source={"path": "in", "records": "value"}))
    lines = [envelope("c", 1, after={"id": 1, "n": 1}), envelope("d", 3, before={"id": 1, "n": 0})]
    pipeline.step([*map(json.dumps, lines), null])
    assert (pipeline.rows(), pipeline.metrics["quarantined"]) == ([], 0)


def test_tombstone_is_counted_by_its_name_where_its_key_cannot_be_read():
    assert played([[CREATE], [record(None, 4, key="1"), record(None, 5, key='{"other": 1}')]]) == ([ROW], 0, 2)
    gone = record(envelope("d", 3, before={"id": 1, "n": 0}), 3, key="1")
    assert played([[CREATE], [gone, record(None, 4, key="1")]]) == ([], 0, 0), "behind its delete no key need be read"


@pytest.mark.parametrize(
    ("lines", "doubts"),
    [
        ([CREATE, DELETE, TOMBSTONE], []),
        ([CREATE, TOMBSTONE], [1]),
        ([TOMBSTONE], [1]),
        ([DELETE, OTHER, TOMBSTONE], [1]),
    ],
)
def test_of_a_topic_s_records_a_tombstone_behind_its_delete_is_staged_once(lines, doubts):
    rows = staged(spec().decoding, placed_batch_of(lines)).to_pylist()
    assert [row["id"] for row in rows if row["_kind"] == StagedKind.IN_DOUBT] == doubts


@pytest.mark.parametrize("order", ["arrival", {"sequence": ["_lsn"]}], ids=["arrival", "sequence"])
def test_lone_tombstones_are_counted_on_disk_as_in_memory(tmp_path, order):
    of = spec(order=order)
    disk, memory = DiskPipeline(of, tmp_path), MemoryPipeline(of)
    for lines in ([CREATE, OTHER], [TOMBSTONE], [record(None, 8, key='{"id": 2}'), record(None, 9, key="x")]):
        for pipeline in (disk, memory):
            pipeline.step(lines, now_ms=0)
    for pipeline in (disk, memory):
        assert (len(pipeline.rows()), pipeline.metrics["lone_tombstones"]) == (2, 2)
        assert pipeline.metrics["unread_tombstones"] == 1
        assert pipeline.metrics["redelivered"] == 0


RECORDS = st.sampled_from(
    [
        *(CREATE, DELETE, AGAIN, OTHER, FLATTENED, TOMBSTONE, TOMBSTONE),
        record(envelope("u", 7, before={"id": 1, "n": 5}, after={"id": 3, "n": 5}), 7, key=KEY),
        record(envelope("d", 8, before={"id": 1, "n": 5}), 8, key=KEY, new_key='{"id": 3}'),
        record(envelope("t", 9), 9),
        record("{", 10, key=KEY),
        record("null", 11, key=KEY),
        record(None, 12, key=KEY, partition=1),
        record(None, 13, key=KEY, topic="another"),
        record(None, 14, key=KEY, new_key="x"),
        record(None, 15, key="x" * 300),
    ]
)
"""Records that a topic may have."""
FIELD = st.sampled_from(
    [None, 0, -1, 2**31, 2**63, 0.5, True, [], {}, "", "t", "null", "x" * 300, "\ud800", "\u00e9\n", KEY, WITH_SCHEMA]
)
LINES = st.one_of(
    RECORDS,
    st.builds(
        lambda line, more: json.dumps(json.loads(line) | more),
        RECORDS,
        st.dictionaries(
            st.sampled_from(["topic", "partition", "offset", "key", "value", "payload", "headers"]), FIELD, max_size=2
        ),
    ),
    st.builds(
        lambda left_out: json.dumps({name: each for name, each in json.loads(TOMBSTONE).items() if name != left_out}),
        st.sampled_from(["topic", "partition", "offset", "key", "value"]),
    ),
    st.sampled_from([line.replace('"value"', '"payload"') for line in (DELETE, TOMBSTONE)]),  # as kcat -J writes them
    st.sampled_from([TOMBSTONE.replace("}", ""), TOMBSTONE[:-1] + ', "value": "{}"}', "null", "{}", b"\xff"]),
)
"""Lines with these records, also with any values in their fields."""


def refuse_unlike_not_scanned(decoding, records):
    rows = []
    for circumstance in ("compiled", "not compiled"):
        with limits():
            assume(circumstance)
            rows.append(sorted(map(repr, staged(decoding, records).to_pylist())))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("order", ["arrival", "upsert", {"sequence": ["_lsn"]}], ids=["arrival", "upsert", "sequence"])
@given(st.lists(LINES, max_size=8), st.sampled_from([None, "t"]), st.sampled_from([250, 2**20]))
def test_tombstones_anywhere_among_lines_are_staged_as_by_the_exact_path(order, lines, topic, most_bytes):
    source = {"path": "in"} | ({"topic": topic} if topic else {})
    decoding = replace(spec(order=order, source=source).decoding, max_record_bytes=most_bytes)
    refuse_unlike_not_scanned(decoding, batch_of(lines))


@pytest.mark.parametrize("order", ["arrival", "upsert", {"sequence": ["_lsn"]}], ids=["arrival", "upsert", "sequence"])
@given(st.lists(RECORDS, max_size=8))
def test_tombstones_anywhere_in_a_topic_are_staged_as_by_the_exact_path(order, lines):
    refuse_unlike_not_scanned(spec(order=order).decoding, placed_batch_of(lines))
