"""Tables of real pipelines, filtered and followed without Spark, and the changes after which a view is computed."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from frame.limits import set_limits
from local.local_pipeline import up

from ebbtide import MaterializedView
from ebbtide.delta import Feed, Log, Snapshot
from ebbtide.errors import SourceReadError
from ebbtide.executors import InProcess
from ebbtide.model import TableVersion, ViewPosition
from ebbtide.views.cutting import PinnedTable
from ebbtide.views.inputs import ViewTables, why_whole


@pytest.fixture
def table(make):
    """A table of three rows, of which the second step changes one and removes one."""
    table = make()
    table.read(up(1, 1), up(2, 2), up(3, 3))
    table.read(up(1, 4), up(2, 5, "-D"), up(4, 6))
    return table


def pinned(table, version=None):
    location = table.plan.at("sink")
    return PinnedTable(location, Log(location).versions()[-1] if version is None else version)


def ids(*values):
    return pa.table({"key": pa.array(values, pa.int64())})


def values_since(table, version, name):
    last = pinned(table)
    feed = last.feed(range(version + 1, last.version + 1))
    return last.values(feed, [name], ids().schema)


def test_rows_with_some_values_are_cut_out_with_all_their_columns(table):
    found = pinned(table).cut((("id",),), ids(1, 2)).to_pylist()
    assert found == [{"id": 1, "n": 4}]
    assert pinned(table).cut((("id",),), ids(9)).to_pylist() == []
    assert pinned(table).schema.names == ["id", "n"]
    assert all(field.nullable for field in pinned(table).schema)


def test_rows_that_fit_one_of_several_cuts_are_cut_out_once(table):
    found = pinned(table).cut((("id",), ("n",)), ids(4, 6)).to_pylist()
    assert found == [{"id": 1, "n": 4}, {"id": 4, "n": 6}]


def test_rows_are_compared_by_all_columns_of_a_cut(table):
    values = pa.table({"a": pa.array([1, 4, None], pa.int64()), "b": pa.array([3, 6, 6], pa.int64())})
    assert pinned(table).cut((("id", "n"),), values).to_pylist() == [{"id": 4, "n": 6}]


def test_large_table_is_left_to_spark(table):
    set_limits(cutting_most_rows=1)
    assert pinned(table).cut((("id",),), ids(1, 4)) is None
    set_limits(view_table_bytes=1)
    assert pinned(table).cut((("id",),), ids(1)) is None


def test_values_that_are_many_or_not_exact_are_left_to_spark(table):
    floats = pa.table({"key": [1.5]})
    assert pinned(table).cut((("n",),), floats) is None
    set_limits(cutting_most_rows=1)
    assert pinned(table).cut((("id",),), ids(1, 2)) is None


def test_bytes_of_changes_are_those_of_the_change_files(table):
    assert pinned(table).feed([]) == []
    *_, last = Log(table.plan.at("sink")).versions()
    sizes = {path.stat().st_size for path in (table.home / "sink" / "_change_data").iterdir()}
    assert {file["size"] for file in pinned(table).feed([last])} <= sizes


@pytest.mark.parametrize("fields", [{}, {"sink": {"change_feed": "net"}}], ids=["images", "net"])
def test_values_of_changed_rows_are_told_before_and_after(make, fields):
    table = make(**fields)
    table.read(up(1, 1), up(2, 2), up(3, 3))
    before = pinned(table).version
    table.read(up(1, 4), up(2, 5, "-D"), up(4, 6))
    found = values_since(table, before, "n")
    touched = set(found["key"].to_pylist())
    assert {1, 2, 4, 6} <= touched  # 3 too where the feed is read from data files
    assert (3 in touched) == bool(fields)
    assert len(values_since(table, pinned(table).version, "n")) == 0


def test_values_of_changed_rows_are_those_of_each_reading(table):
    *_, before, _ = Log(table.plan.at("sink")).versions()
    found = [values_since(table, before, name) for name in ("id", "n")]
    assert set(pa.concat_tables(found)["key"].to_pylist()) == {1, 2, 4, 6}


def test_table_whose_change_files_are_gone_is_computed_whole(table, view):
    tables = ViewTables(view, table.root)
    location = table.plan.at("sink")
    name = table.spec.name
    earlier = TableVersion(id=tables.pinned().inputs[name].id, version=1, commit=Log(location).hash_of(1))
    for path in (table.home / "sink" / "_change_data").iterdir():
        path.unlink()
    said = why_whole(ViewPosition(query=view.query_hash, inputs={name: earlier}), tables.pinned(), tables)
    assert said.startswith(f"of '{name}' the changes in versions 2 to")


def test_gap_in_the_change_feed_is_told(table):
    location = table.plan.at("sink")
    first, *_, last = Log(location).versions()
    assert Feed(location, first + 1, last).gap() == ""
    assert "changed in version 0" in Feed(location, -1, last).gap()
    for path in (table.home / "sink" / "_change_data").iterdir():
        path.unlink()
    assert f"the changes in versions {last} to {last} are gone" in Feed(location, last - 1, last).gap()


def test_commit_that_changes_no_row_is_no_change(table):
    location = table.plan.at("sink")
    *_, before, last = Log(location).versions()
    assert Feed(location, before, last).has_changes()
    assert not Feed(location, last, last).has_changes()
    table.plan.sink.join_files(InProcess())
    folded = Log(location).versions()[-1]
    assert folded > last
    assert not Feed(location, last, folded).has_changes()


@pytest.fixture
def view(table):
    """A view over the table, which has not run."""
    return MaterializedView(
        name="v", query=f"SELECT id FROM {table.spec.name}", inputs=[table.spec.name], schema="id BIGINT", key=["id"]
    )


def test_step_says_why_all_is_computed(table, view):
    tables = ViewTables(view, table.root)
    now = tables.pinned()
    name = table.spec.name
    assert why_whole(None, now, tables) == "it is the first step"
    assert why_whole(now, now, tables) == ""
    other_query = ViewPosition(query="0", inputs=now.inputs)
    assert why_whole(other_query, now, tables) == "the query has changed"
    assert tables.changed_between(other_query, tables.pinned()) == [name]
    assert tables.changed_between(ViewPosition(query=now.query, inputs={}), tables.pinned()) == [name]
    moved = {name: TableVersion(id="another", version=now.inputs[name].version)}
    assert (
        why_whole(ViewPosition(query=now.query, inputs=moved), now, tables) == f"'{name}' is another table than before"
    )
    location = table.plan.at("sink")
    earlier = TableVersion(id=now.inputs[name].id, version=1, commit=Log(location).hash_of(1))
    assert why_whole(ViewPosition(query=now.query, inputs={name: earlier}), now, tables) == ""


def test_table_that_was_put_back_and_went_on_is_not_followed_by_its_versions(table, view, tmp_path):
    sink = Path(table.plan.at("sink"))
    older = shutil.copytree(sink, tmp_path / "older")
    table.read(up(5, 7))
    tables = ViewTables(view, table.root)
    read = tables.pinned()
    rows = Snapshot.read(str(sink)).rows(table.plan.sink.schema)
    shutil.rmtree(sink)
    shutil.copytree(older, sink)
    put_back = tables.pinned()
    name = table.spec.name
    said = f"'{name}' has no version {read.inputs[name].version} as it was read: it was restored, or its log was cleaned up"
    assert why_whole(read, put_back, tables) == said
    assert tables.changed_between(read, tables.pinned()) == [name]
    table.repair(rows)
    table.read(up(6, 8))
    gone_on = tables.pinned()
    assert gone_on.inputs[name].version > read.inputs[name].version
    assert gone_on.inputs[name].id == read.inputs[name].id
    assert why_whole(read, gone_on, tables) == said
    assert (tables.changed_between(read, tables.pinned()), tables.changed_between(gone_on, tables.pinned())) == (
        [name],
        [],
    )
    assert why_whole(gone_on, gone_on, tables) == ""


def test_step_of_an_older_version_that_noted_no_commit_is_not_followed(table, view):
    tables = ViewTables(view, table.root)
    now = tables.pinned()
    name = table.spec.name
    stored = json.loads(now.model_dump_json())
    del stored["inputs"][name]["commit"]
    assert "as it was read" in why_whole(ViewPosition.model_validate(stored), now, tables)


def test_commit_that_is_gone_is_taken_for_another_one(table, view):
    tables = ViewTables(view, table.root)
    name = table.spec.name
    unknown = TableVersion(id=tables.pinned().inputs[name].id, version=99)
    last = ViewPosition(query=view.query_hash, inputs={name: unknown})
    assert "has no version 99 as it was read" in why_whole(last, tables.pinned(), tables)


def test_view_over_a_table_that_is_not_there_is_refused(table, view):
    ViewTables(view, table.root).refuse_absent()
    strange = view.model_copy(update={"inputs": ["absent"]})
    with pytest.raises(SourceReadError, match=r"The view 'v' reads 'absent', which has no table yet"):
        ViewTables(strange, table.root).refuse_absent()


def test_versions_are_those_of_the_tables(table, view):
    now = ViewTables(view, table.root).pinned()
    snapshot = Snapshot.read(table.plan.at("sink"))
    commit = Log(table.plan.at("sink")).hash_of(snapshot.version)
    assert now.inputs == {table.spec.name: TableVersion(id=snapshot.id, version=snapshot.version, commit=commit)}
    assert ViewTables(view, table.root).discover({}, 0).streams
