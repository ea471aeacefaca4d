"""What tasks make of the difference of a view's rows."""

import json

import pyarrow as pa
import pytest

from ebbtide.errors import ViewKeyError
from ebbtide.operators.sequence.operator import SequenceOperator
from ebbtide.paths import read_parquet
from ebbtide.redaction import MASK
from ebbtide.state_table.staged import SLICES, Stager
from ebbtide.state_table.staging import from_json
from ebbtide.views.staging import StageDifference

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


@pytest.fixture
def work(tmp_path):
    """Stages the difference of a view."""
    operator = SequenceOperator(COLUMNS, ("id",), ("_step",))
    stager = Stager(str(tmp_path / "staged"), operator.changes, operator.key)
    return lambda personal=(): StageDifference("view", stager, COLUMNS, 7, 1_000, frozenset(personal))


def rows(*given):
    columns = list(zip(*given, strict=True))
    names = ("_kind", "_copies", "id", "v")
    types = (pa.string(), pa.int64(), pa.int64(), pa.string())
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def staged(work, *batches):
    [result] = work(iter(batches))
    file, summary = from_json(result["result"][0].as_py())
    changes = [row for batch in file.read(range(SLICES)) for row in batch.to_pylist()]
    return sorted(changes, key=lambda row: row["id"]), summary, file


def test_rows_become_changes_of_the_step(work):
    changes, summary, _ = staged(work(), rows(("+U", 1, 1, "a"), ("-D", 1, 2, "b")), rows(("+U", 1, 3, None)))
    assert [(row["_kind"], row["id"], row["v"], row["_sequence"]) for row in changes] == [
        ("+U", 1, "a", {"_step": 7}),
        ("-D", 2, "b", {"_step": 7}),
        ("+U", 3, None, {"_step": 7}),
    ]
    assert [row["_order"] for row in changes] == [{"step": 7, "part": 0, "position": n} for n in range(3)]
    assert (summary.records, summary.changes, summary.bad, summary.max_event_ms) == (3, 3, 0, 1_000)


def test_no_row_gives_no_file(work):
    assert list(work()(iter([rows(("+U", 1, 1, "a")).slice(0, 0)]))) == []


def test_row_without_a_key_is_bad_however_many_there_are(work):
    changes, summary, file = staged(work(), rows(("+U", 1, 1, "a"), ("+U", 2, None, "b"), ("+U", 2, None, "c")))
    assert [row["id"] for row in changes] == [1]
    assert (summary.records, summary.changes, summary.bad) == (3, 1, 2)
    bad = read_parquet(file.bad).to_pylist()
    assert [(row["_reason"], json.loads(row["_raw"])) for row in bad] == [
        ("null_key", {"id": None, "v": "b"}),
        ("null_key", {"id": None, "v": "c"}),
    ]


@pytest.mark.parametrize(("id_", "v"), [(None, "a"), (5, None)])
def test_row_that_lacks_any_part_of_its_key_is_bad(tmp_path, id_, v):
    operator = SequenceOperator(COLUMNS, ("id", "v"), ("_step",))
    stager = Stager(str(tmp_path / "staged"), operator.changes, operator.key)
    work = StageDifference("view", stager, COLUMNS, 7, 1_000, frozenset())
    changes, summary, _ = staged(work, rows(("+U", 1, 1, "a"), ("+U", 1, id_, v)))
    assert ([row["id"] for row in changes], summary.bad) == ([1], 1)


@pytest.mark.parametrize(("personal", "shown"), [((), "5"), (("id",), MASK)])
def test_two_rows_for_one_key_are_refused_by_name(work, personal, shown):
    with pytest.raises(ViewKeyError) as raised:
        list(work(personal)(iter([rows(("+U", 1, 1, "a"), ("+U", 2, 5, "b"))])))
    assert f"gives 2 rows for one key; nothing of the step was committed. Got: id={shown}." in str(raised.value)
