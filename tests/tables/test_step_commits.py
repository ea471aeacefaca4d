"""Stages of a step are committed once, and small files joined after them."""

import json

import pyarrow as pa
import pytest
from frame.limits import set_limits
from local.made_facts import made_facts as facts

from ebbtide.delta import DataFile, Definition, Log, Snapshot, Writer
from ebbtide.errors import LeaseLostError
from ebbtide.model import Restore
from ebbtide.tables._step_commits import commit_and_join, commit_stage, restore_stage

PUTS = Writer()
NUMBERS = pa.schema([("n", pa.int64())])


def numbered(*numbers):
    return pa.table({"n": list(numbers)}, NUMBERS)


@pytest.fixture
def table(tmp_path):
    """A table with rows 0 to 3 in one file and 4 to 5 in another."""
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(NUMBERS), name="t", info={})
    put(path, "a.parquet", 0, 1, 2, 3)
    put(path, "b.parquet", 4, 5)
    return path


def put(path, name, *numbers):
    PUTS.commit(Snapshot.read(path), [DataFile.write(path, name, numbered(*numbers), bounded=())], {"operation": "W"})


def left(path):
    return sorted(Snapshot.read(path).rows(NUMBERS)["n"].to_pylist())


def test_stage_is_committed_once_under_the_step_s_number(table):
    asked = []

    def actions_of(found):
        asked.append(found.version)
        return []

    made = commit_stage(table, actions_of, facts(7), "sink", "REPLACE TABLE")
    assert (made.version, made.transactions) == (3, {"t/sink": 7})
    info = Log(table).commit(3).info()
    assert info["operation"] == "REPLACE TABLE"
    assert json.loads(info["userMetadata"])["step"] == 7
    assert commit_stage(table, actions_of, facts(7), "sink") is None
    assert asked == [2], "a committed stage is not computed again"
    assert commit_stage(table, actions_of, facts(7), "quarantine").version == 4
    assert Log(table).commit(4).info()["operation"] == "WRITE"
    with pytest.raises(LeaseLostError):
        commit_stage(table, actions_of, facts(6), "sink")
    assert commit_stage(table + "-absent", actions_of, facts(7), "sink") is None


def test_small_files_are_joined_after_the_stage_that_fills_a_size_class(table):
    set_limits(width=3)

    def append(step, number):
        name = f"{number}.parquet"
        commit_and_join(
            table,
            NUMBERS,
            lambda _: [DataFile.write(table, name, numbered(number), bounded=())],
            (),
            facts(step),
            "sink",
        )

    append(1, 6)
    assert left(table) == list(range(7))
    newest = Snapshot.read(table)
    assert len(newest.files) == 1
    assert {action["add"]["dataChange"] for action in Log(table).commit(newest.version) if "add" in action} == {False}
    append(1, 9)
    assert left(table) == list(range(7)), "once"
    append(2, 7)
    assert len(Snapshot.read(table).files) == 2, "not before a size class is full"


def test_table_is_restored_as_a_stage(table):
    restore_stage(table, Restore(1, changes_rows=True), facts(7), "changelog")
    made = Snapshot.read(table)
    assert (left(table), made.transactions) == ([0, 1, 2, 3], {"t/changelog": 7})
