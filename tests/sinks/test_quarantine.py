"""The quarantine: bad rows lie ready before the decision that names them, and are appended once."""

import pyarrow as pa
import pytest

from ebbtide.delta import joining
from ebbtide.delta.commit import LocalPuts, commit, transaction_mark
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import read_rows
from ebbtide.errors import StoredFormatError
from ebbtide.ledger.facts import StepFacts
from ebbtide.model.step import StepKind
from ebbtide.sinks.quarantine import COLUMNS, QuarantineTable
from ebbtide.state_table.staged import BAD_ROWS

PUTS = LocalPuts()


def facts(step, **more):
    made_by = {"pipeline": "t", "incarnation": "i", "epoch": 1, "state_version": 0, "spec": {}, "code": "0"}
    return StepFacts(step=step, kind=StepKind.BATCH, now_ms=1000, **made_by, **more)


def bad(*texts):
    rows = [
        {
            "_reason": "bad_json",
            "_detail": "d",
            "_origin": {"source": "f", "partition": 0, "position": at},
            "_order": {"step": 1, "part": 0, "position": at},
            "_raw": text.encode(),
        }
        for at, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=BAD_ROWS)


def stored(table):
    rows = read_rows(Snapshot.read(table.path), COLUMNS)
    return sorted((row["step"], row["raw"].decode()) for row in rows.to_pylist())


@pytest.fixture
def table(tmp_path):
    return QuarantineTable(str(tmp_path / "quarantine"), knows_offsets=True)


def decided(table, step, rows):
    return facts(step, quarantined=len(rows)).model_copy(update={"bad_rows": table.write(rows, facts(step))})


def test_rows_are_in_the_table_once_they_are_appended_and_once_only(table):
    step = decided(table, 1, bad("a", "b"))
    assert Snapshot.read(table.path) is None, "written, and named by nothing yet"
    table.append(step)
    table.append(StepFacts.model_validate_json(step.to_json()))
    assert stored(table) == [(1, "a"), (1, "b")]


def test_record_that_is_delivered_again_is_no_longer_new(table):
    table.append(decided(table, 1, bad("a", "b")))
    assert table.new(bad("a", "b", "c"))["_raw"].to_pylist() == [b"c"]
    assert len(QuarantineTable(table.path, knows_offsets=False).new(bad("a"))) == 1


def test_step_without_bad_rows_makes_no_table(table):
    table.append(decided(table, 1, bad()))
    table.append(facts(2))
    assert Snapshot.read(table.path) is None


def test_bad_rows_that_an_older_version_left_behind_are_not_passed_over(table):
    with pytest.raises(StoredFormatError) as raised:
        table.append(facts(3, quarantined=2))
    assert str(raised.value) == (
        "The quarantine of 't' lacks 2 bad records of step 3."
        " Got: a step decided by an older Ebbtide and not finished."
        " Run 'ebbtide refresh' to rebuild the sink from the source."
    )
    table.append(decided(table, 3, bad("a", "b")))
    table.append(facts(3, quarantined=2))


def test_bad_rows_that_an_older_version_appended_are_known_by_its_mark(table):
    table.append(decided(table, 1, bad("a")))
    mark = transaction_mark("t/quarantine", 3)
    commit(PUTS, table.path, Snapshot.read(table.path).version + 1, [mark], {"operation": "WRITE"})
    table.append(facts(3, quarantined=2))
    with pytest.raises(StoredFormatError):
        table.append(facts(4, quarantined=2))


def test_files_of_many_steps_are_joined(table, monkeypatch):
    monkeypatch.setattr(joining, "WIDTH", 3)
    for step in range(1, 8):
        table.append(decided(table, step, bad(f"row {step}")))
    assert stored(table) == [(step, f"row {step}") for step in range(1, 8)]
    assert len(Snapshot.read(table.path).files) < 4
