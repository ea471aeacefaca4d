"""Staging of the difference of a view's rows by tasks."""

import pyarrow as pa
import pytest

from ebbtide.changelog import ORDER, ORIGIN
from ebbtide.errors import ViewKeyError
from ebbtide.operators import SequenceOperator
from ebbtide.redaction import MASK
from ebbtide.runtime import Stager
from ebbtide.runtime._workers.staging import from_json
from ebbtide.storage import ParquetFile
from ebbtide.views.staging import StageDifference

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
GIVEN = pa.schema(
    [
        ("_copies", pa.int64()),
        ("_kind", pa.string()),
        ("_sequence", pa.struct([("_step", pa.int64())])),
        ("_order", ORDER),
        ("_origin", ORIGIN),
        ("_event_ms", pa.int64()),
        ("_reason", pa.string()),
        ("_raw", pa.binary()),
        ("id", pa.int64()),
        ("v", pa.string()),
    ]
)


@pytest.fixture
def work(tmp_path):
    """Stages the difference of a view."""
    operator = SequenceOperator(COLUMNS, ("id",), ("_step",))
    stager = Stager(str(tmp_path / "staged"), operator.changes, operator.key)
    return lambda personal=(): StageDifference("view", stager, 1_000, frozenset(personal))


def rows(*given):
    found = []
    for number, (kind, copies, id_, v) in enumerate(given):
        row = {"_copies": copies, "_kind": kind, "id": id_, "v": v, "_event_ms": 1_000}
        row["_sequence"] = {"_step": 7}
        row["_order"] = {"step": 7, "part": 0, "position": number}
        row["_origin"] = {"source": "view", "partition": 0, "position": number}
        bad = {} if kind else {"_reason": "null_key", "_raw": b"{}"}
        found.append({**row, **bad})
    return pa.RecordBatch.from_pylist(found, GIVEN)


def staged(work, *batches):
    [result] = work(iter(batches))
    file, summary = from_json(result["result"][0].as_py())
    changes = [row for batch in file.read() for row in batch.to_pylist()]
    return sorted(changes, key=lambda row: row["id"]), summary, file


def test_rows_become_changes_of_the_step(work):
    changes, summary, _ = staged(work(), rows(("+U", 1, 1, "a"), ("-D", 1, 2, "b")), rows(("+U", 1, 3, None)))
    assert [(row["_kind"], row["id"], row["v"], row["_sequence"]) for row in changes] == [
        ("+U", 1, "a", {"_step": 7}),
        ("-D", 2, "b", {"_step": 7}),
        ("+U", 3, None, {"_step": 7}),
    ]
    assert (summary.counts.records, summary.counts.changes, summary.counts.bad, summary.max_event_ms) == (
        3,
        3,
        0,
        1_000,
    )


def test_no_row_gives_no_file(work):
    assert list(work()(iter([rows(("+U", 1, 1, "a")).slice(0, 0)]))) == []


def test_row_without_a_key_is_bad_however_many_there_are(work):
    changes, summary, file = staged(work(), rows(("+U", 1, 1, "a"), (None, 2, None, "b"), (None, 2, None, "c")))
    assert [row["id"] for row in changes] == [1]
    assert (summary.counts.records, summary.counts.changes, summary.counts.bad) == (3, 1, 2)
    bad = ParquetFile(file.bad).read().to_pylist()
    assert [(row["_reason"], row["_raw"]) for row in bad] == [("null_key", b"{}")] * 2


@pytest.mark.parametrize(("personal", "shown"), [((), "5"), (("id",), MASK)])
def test_two_rows_for_one_key_are_refused_by_name(work, personal, shown):
    with pytest.raises(ViewKeyError) as raised:
        list(work(personal)(iter([rows(("+U", 1, 1, "a"), ("+U", 2, 5, "b"))])))
    assert f"gives 2 rows for one key; nothing of the step was committed. Got: id={shown}." in str(raised.value)
