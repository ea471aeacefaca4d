"""Upserts by vectors and by writing files again: one row per key, whatever others do meanwhile, and a feed of what changed."""

import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from ebbtide.delta import joining, key_index, log
from ebbtide.delta import table as tables
from ebbtide.delta.commit import LocalPuts, Transaction, commit
from ebbtide.delta.snapshot import DataFile, Snapshot
from ebbtide.delta.table import add_file, create, read_rows
from ebbtide.errors import DeltaFeatureError, TableMismatchError
from ebbtide.tables import replaced_rows
from ebbtide.tables import upsert as upserts
from ebbtide.tables.replaced_rows import Upsert
from ebbtide.tables.upsert import Upserter

COLUMNS = pa.schema(
    [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string(), nullable=False), ("v", pa.int64())]
)
KEY = ["a", "b"]
PUTS = LocalPuts()


@pytest.fixture(autouse=True)
def own_copies(monkeypatch, tmp_path):
    monkeypatch.setenv(key_index.CACHE_FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr(upserts, "ROWS_PER_FILE", 7)


def made(tmp_path, **properties):
    path = str(tmp_path / "t")
    create(PUTS, path, COLUMNS, {"delta.enableChangeDataFeed": "true", **properties}, name="t", info={})
    return path


def rows_of(values):
    return pa.table({"a": [a for a, _ in values], "b": [b for _, b in values], "v": list(values.values())}, COLUMNS)


def ours(path):
    return {(row["a"], row["b"]): row["v"] for row in read_rows(Snapshot.read(path), COLUMNS).to_pylist()}


def theirs(path):
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT a, b, v FROM t").read_all()
    rows = pa.table(found).to_pylist()
    values = {(row["a"], row["b"]): row["v"] for row in rows}
    assert len(values) == len(rows), "a key has two rows"
    return values


def change(values, deleted=(), **more):
    keys = rows_of({**dict.fromkeys(deleted, 0), **values}).select(KEY)
    return Upsert(keys, rows_of(values), **more)


@pytest.mark.parametrize("folded", [1, 4, 100])
@pytest.mark.parametrize("by_vectors", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_key_has_its_last_row(tmp_path, monkeypatch, by_vectors, seed, folded):
    monkeypatch.setattr(joining, "WIDTH", 2)
    chance, want = random.Random(seed), {}
    path = made(tmp_path)
    for number in range(1, 12):
        upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=by_vectors)  # as a run of its own has it
        keys = [(chance.randrange(12), chance.choice("xy")) for _ in range(9)]
        deleted, values = set(keys[:3]), {key: number * 100 + at for at, key in enumerate(keys[3:])}
        deleted -= values.keys()
        upserter.apply(change(values, deleted), Transaction("app", number, {"operation": "MERGE"}))
        if number % folded == 0:
            upserter.fold(everything=number % 3 == 0)
        want = {key: value for key, value in want.items() if key not in deleted} | values
        assert ours(path) == theirs(path) == want
    has_vectors = any(file.vector for file in Snapshot.read(path).files.values())
    assert has_vectors is (by_vectors and folded > 1)


def test_step_is_applied_once(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(1, "x"): 1}), Transaction("app", 1, {"operation": "MERGE"}))
    version = Snapshot.read(path).version
    for again in (upserter, Upserter(path, COLUMNS, KEY, PUTS)):
        again.apply(change({(1, "x"): 2}), Transaction("app", 1, {"operation": "MERGE"}))
    assert (ours(path), Snapshot.read(path).version) == ({(1, "x"): 1}, version)


def test_feed_shows_each_row_before_and_after(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(1, "x"): 1, (2, "x"): 2, (3, "x"): 3}), Transaction("app", 1, {"operation": "MERGE"}))
    upserter.apply(
        change({(1, "x"): 10, (4, "x"): 4}, deleted=[(2, "x"), (9, "x")]), Transaction("app", 2, {"operation": "MERGE"})
    )
    feed = pa.table(DeltaTable(path).load_cdf(starting_version=2).read_all()).to_pylist()
    found = sorted((row["_change_type"], row["a"], row["v"]) for row in feed)
    assert found == [
        ("delete", 2, 2),
        ("insert", 4, 4),
        ("update_postimage", 1, 10),
        ("update_preimage", 1, 1),
    ]
    [cdc] = [action["cdc"] for action in log.actions(path, 2) if "cdc" in action]
    file = tmp_path / "t" / cdc.pop("path")
    assert cdc == {"partitionValues": {}, "size": file.stat().st_size, "dataChange": False}, "as Delta's protocol asks"
    first, second = log.actions(path, 1), log.actions(path, 2)
    [gone] = [action["remove"] for action in second if "remove" in action]
    [came] = [action["add"] for action in second if "add" in action and "deletionVector" not in action["add"]]
    [shortened] = [action["add"] for action in second if "add" in action and "deletionVector" in action["add"]]
    assert gone["dataChange"]
    assert came["dataChange"]
    assert shortened["dataChange"]
    assert log.commit_info(second)["operation"] == "MERGE"
    assert log.commit_info(first)["timestamp"] <= gone["deletionTimestamp"] <= log.commit_info(second)["timestamp"]


def files_with(path, values):
    """The actions that add a data file that lies ready."""
    return [add_file(path, "ready.parquet", rows_of(values), bounded=("a",))]


def keys_of(*keys):
    return rows_of(dict.fromkeys(keys, 0)).select(KEY)


@pytest.mark.parametrize("by_vectors", [True, False])
def test_keys_that_are_replaced_have_the_rows_of_the_new_files_alone(tmp_path, by_vectors):
    path = made(tmp_path, **{"delta.enableDeletionVectors": "false"})
    upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=by_vectors)
    upserter.apply(change({(n, "x"): n for n in range(5)}), Transaction("app", 1, {"operation": "MERGE"}))
    gone = keys_of((1, "x"), (2, "x"), (9, "x"))
    adds = files_with(path, {(1, "x"): 10, (9, "x"): 90})
    upserter.replace(gone, adds, Transaction("app", 2, {"operation": "MERGE", "userMetadata": "{}"}))
    want = {(0, "x"): 0, (1, "x"): 10, (3, "x"): 3, (4, "x"): 4, (9, "x"): 90}
    assert ours(path) == theirs(path) == want
    said = log.commit_info(log.actions(path, 2))
    assert (said["operation"], said["userMetadata"]) == ("MERGE", "{}")
    assert Snapshot.read(path).transactions == {"app": 2}
    has_vectors = any(file.vector for file in Snapshot.read(path).files.values())
    assert has_vectors is by_vectors
    assert defining(path) == ({"protocol", "metaData"} if by_vectors else set())
    upserter.replace(keys_of((0, "x")), [], Transaction("app", 2, {"operation": "MERGE"}))
    assert ours(path) == want, "a step is applied once"
    upserter.apply(change({(3, "x"): 30}), Transaction("app", 3, {"operation": "MERGE"}))
    assert ours(path) == theirs(path) == want | {(3, "x"): 30}


def test_rows_of_new_keys_are_added_and_nothing_else(tmp_path):
    path = made(tmp_path, **{"delta.enableDeletionVectors": "false"})
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.replace(keys_of((1, "x")), files_with(path, {(1, "x"): 1}), Transaction("app", 1, {"operation": "MERGE"}))
    assert {kind for action in log.actions(path, 1) for kind in action} == {"commitInfo", "add", "txn"}
    assert ours(path) == {(1, "x"): 1}


def test_feed_without_images_is_left_to_the_data_files(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=False, with_images=False)
    upserter.apply(change({(1, "x"): 1, (2, "x"): 2}), Transaction("app", 1, {"operation": "MERGE"}))
    upserter.apply(change({(1, "x"): 10}), Transaction("app", 2, {"operation": "MERGE"}))
    assert not [action for action in log.actions(path, 2) if "cdc" in action]
    assert ours(path) == theirs(path) == {(1, "x"): 10, (2, "x"): 2}


@pytest.mark.parametrize("by_vectors", [True, False])
def test_rows_that_are_gone_already_take_no_file_with_them(tmp_path, by_vectors):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=by_vectors)
    upserter.apply(change({(1, "x"): 1, (2, "x"): 2}), Transaction("app", 1, {"operation": "MERGE"}))
    for number in (2, 3):
        upserter.apply(change({}, deleted=[(1, "x")]), Transaction("app", number, {"operation": "MERGE"}))
    assert {kind for action in log.actions(path, 3) for kind in action} == {"commitInfo", "txn"}


def test_rows_below_a_truncate_go_whatever_their_key_is(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(20)}), Transaction("app", 1, {"operation": "MERGE"}))
    below = change({(3, "x"): 100}, is_below=lambda rows: rows["v"].to_numpy() < 10, floor_columns=("v",))
    upserter.apply(below, Transaction("app", 2, {"operation": "MERGE"}))
    assert ours(path) == theirs(path) == {(3, "x"): 100} | {(n, "x"): n for n in range(10, 20)}


def test_rows_below_a_truncate_are_found_in_a_file_that_has_lost_some(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(7)}), Transaction("app", 1, {"operation": "MERGE"}))
    upserter.apply(change({}, deleted=[(0, "x"), (1, "x")]), Transaction("app", 2, {"operation": "MERGE"}))
    below = change({}, is_below=lambda rows: rows["v"].to_numpy() < 4, floor_columns=("v",))
    upserter.apply(below, Transaction("app", 3, {"operation": "MERGE"}))
    assert ours(path) == theirs(path) == {(n, "x"): n for n in (4, 5, 6)}


def test_commit_of_others_between_is_met_with_another_look(tmp_path, monkeypatch):
    """Another writer joins all files into one just before ours is committed."""
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(20)}), Transaction("app", 1, {"operation": "MERGE"}))

    def late(puts, table, version, actions, info):
        monkeypatch.setattr(tables, "commit", commit)
        snapshot = Snapshot.read(table)
        joined = add_file(table, "joined.parquet", read_rows(snapshot, COLUMNS), bounded=(), data_change=False)
        removes = [file.removed(0, data_change=False) for file in snapshot.files.values()]
        commit(puts, table, snapshot.version + 1, [joined, *removes], {"operation": "OPTIMIZE"})
        commit(puts, table, version, actions, info)

    monkeypatch.setattr(tables, "commit", late)
    upserter.apply(change({(5, "x"): 500}, deleted=[(6, "x")]), Transaction("app", 2, {"operation": "MERGE"}))
    want = {(n, "x"): n for n in range(20) if n != 6} | {(5, "x"): 500}
    assert ours(path) == theirs(path) == want


def test_files_are_written_again_without_the_rows_that_others_have_taken_out_by_vectors(tmp_path):
    path = made(tmp_path)
    Upserter(path, COLUMNS, KEY, PUTS).apply(
        change({(n, "x"): n for n in range(5)}), Transaction("app", 1, {"operation": "MERGE"})
    )
    Upserter(path, COLUMNS, KEY, PUTS).apply(
        change({}, deleted=[(0, "x"), (3, "x")]), Transaction("app", 2, {"operation": "MERGE"})
    )
    Upserter(path, COLUMNS, KEY, PUTS, by_vectors=False).apply(
        change({(1, "x"): 10}), Transaction("app", 3, {"operation": "MERGE"})
    )
    assert ours(path) == theirs(path) == {(1, "x"): 10, (2, "x"): 2, (4, "x"): 4}


def test_one_file_is_joined_with_itself_only_to_be_rid_of_dead_rows(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(5)}), Transaction("app", 1, {"operation": "MERGE"}))
    upserter.fold(everything=True)
    assert Snapshot.read(path).version == 1
    upserter.apply(change({}, deleted=[(0, "x")]), Transaction("app", 2, {"operation": "MERGE"}))
    upserter.fold(everything=True)
    joined = Snapshot.read(path)
    [file] = joined.files.values()
    assert (file.vector, file.rows, joined.version) == (None, 4, 3)
    changed = [action.get("add") or action.get("remove") for action in log.actions(path, 3)]
    assert [file["dataChange"] for file in changed if file] == [False, False]
    assert ours(path) == theirs(path) == {(n, "x"): n for n in range(1, 5)}


def test_few_small_files_are_left_alone_unless_all_are_to_be_joined(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    for number in (1, 2):
        upserter.apply(change({(number, "x"): number}), Transaction("app", number, {"operation": "MERGE"}))
    upserter.fold()
    assert len(Snapshot.read(path).files) == 2
    upserter.fold(everything=True)
    assert len(Snapshot.read(path).files) == 1


def test_table_that_is_gone_is_named(tmp_path):
    path = str(tmp_path / "gone")
    with pytest.raises(TableMismatchError, match=f"^The table at '{path}' is gone"):
        Upserter(path, COLUMNS, KEY, PUTS).apply(change({}), Transaction("app", 1, {"operation": "MERGE"}))


def test_keys_of_texts_are_found_whatever_the_statistics_say(tmp_path):
    path = made(tmp_path)
    key = ["b", "a"]
    upserter = Upserter(path, COLUMNS, key, PUTS)
    upserter.apply(change({(1, "x"): 1, (2, "y"): 2}), Transaction("app", 1, {"operation": "MERGE"}))
    upserter.apply(change({(2, "y"): 3}, deleted=[(1, "x")]), Transaction("app", 2, {"operation": "MERGE"}))
    assert ours(path) == {(2, "y"): 3}


@pytest.mark.parametrize(
    ("least", "greatest", "may_hold"),
    [
        (1, 4, False),
        (1, 5, True),
        (6, 8, True),
        (1, 20, True),
        (9, 12, True),
        (10, 12, False),
        (None, 4, True),
        (10, None, True),
        (None, None, True),
    ],
)
def test_only_files_that_may_hold_a_key_are_looked_at(least, greatest, may_hold):
    bounds = {"minValues": {"a": least} if least else {}, "maxValues": {"a": greatest} if greatest else {}}
    file = DataFile({"path": "f", "size": 1, "stats": json.dumps(bounds)})
    wanted = keys_of((5, "x"), (9, "x"))
    assert replaced_rows._may_hold(file, wanted, "a") is may_hold
    assert replaced_rows._may_hold(file, wanted, "b"), "texts are cut in statistics"
    assert not replaced_rows._may_hold(file, wanted.slice(2), "a")


def test_large_file_of_dead_rows_and_small_files_are_written_again_together(tmp_path, monkeypatch):
    monkeypatch.setattr(upserts, "ROWS_PER_FILE", 5_000)
    monkeypatch.setattr(joining, "SMALL_BYTES", 4_000)
    monkeypatch.setattr(joining, "WIDTH", 2)
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(2_000)}), Transaction("app", 1, {"operation": "MERGE"}))
    upserter.apply(
        change({}, deleted=[(n, "x") for n in range(1, 2_000)]), Transaction("app", 2, {"operation": "MERGE"})
    )
    for number in (3, 4):
        upserter.apply(change({(number, "y"): number}), Transaction("app", number, {"operation": "MERGE"}))
    upserter.fold()
    [file] = Snapshot.read(path).files.values()
    assert (file.vector, file.rows) == (None, 3)
    assert ours(path) == {(0, "x"): 0, (3, "y"): 3, (4, "y"): 4}


def test_files_of_a_table_with_a_rule_for_writers_are_not_joined(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    for number in (1, 2):
        upserter.apply(change({(number, "x"): number}), Transaction("app", number, {"operation": "MERGE"}))
    found = Snapshot.read(path)
    metadata = {**found.metadata, "configuration": {**found.configuration, "delta.appendOnly": "true"}}
    commit(PUTS, path, found.version + 1, [{"metaData": metadata}], {"operation": "SET TBLPROPERTIES"})
    with pytest.raises(DeltaFeatureError, match=f"{path}.*appendOnly"):
        upserter.fold(everything=True)


def defining(path):
    """What the newest commit says of the table itself."""
    actions = log.actions(path, log.versions(path)[-1])
    return {kind for action in actions for kind in action} & {"protocol", "metaData"}


def test_table_made_without_vectors_gets_them(tmp_path):
    path = made(tmp_path, **{"delta.enableDeletionVectors": "false"})
    Upserter(path, COLUMNS, KEY, PUTS).apply(
        change({(1, "x"): 1, (2, "x"): 2}), Transaction("app", 1, {"operation": "MERGE"})
    )
    Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): 3}), Transaction("app", 2, {"operation": "MERGE"}))
    assert Snapshot.read(path).configuration["delta.enableDeletionVectors"] == "true"
    assert defining(path) == {"protocol", "metaData"}
    Upserter(path, COLUMNS, KEY, PUTS).apply(
        change({(1, "x"): 3, (2, "x"): 2}), Transaction("app", 3, {"operation": "MERGE"})
    )
    assert defining(path) == set(), "once"
    assert ours(path) == theirs(path) == {(1, "x"): 3, (2, "x"): 2}


@pytest.mark.parametrize(
    ("property_", "value", "said"),
    [("delta.appendOnly", "true", "appendOnly"), ("delta.constraints.positive", "v > 0", "checkConstraints")],
)
def test_table_with_a_rule_for_writers_is_refused(tmp_path, property_, value, said):
    path = made(tmp_path, **{property_: value})
    with pytest.raises(DeltaFeatureError, match=rf"{path}.*cannot be written.*{said}.*sink.write: merge"):
        Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): 1}), Transaction("app", 1, {"operation": "MERGE"}))
    with pytest.raises(DeltaFeatureError, match=rf"{path}.*cannot be written.*{said}.*sink.write: merge"):
        Upserter(path, COLUMNS, KEY, PUTS).replace(keys_of((1, "x")), [], Transaction("app", 1, {"operation": "MERGE"}))


def test_key_with_a_null_part_is_found_whatever_the_bounds(tmp_path):
    columns = pa.schema([pa.field("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    path = str(tmp_path / "t")
    create(PUTS, path, columns, {"delta.enableChangeDataFeed": "true"}, name="t", info={})
    upserter = Upserter(path, columns, KEY, PUTS)

    def put(number, *keys):
        rows = pa.table({"a": [a for a, _ in keys], "b": [b for _, b in keys], "v": [number] * len(keys)}, columns)
        upserter.apply(Upsert(rows.select(KEY), rows), Transaction("app", number, {"operation": "MERGE"}))

    put(1, (None, "x"), (5, "x"), (7, "x"))
    put(2, (None, "x"), (100, "x"))
    put(3, (None, "x"))
    rows = read_rows(Snapshot.read(path), columns).to_pylist()
    assert sorted((str(row["a"]), row["v"]) for row in rows) == [("100", 2), ("5", 1), ("7", 1), ("None", 3)]


def test_table_made_again_in_its_place_is_not_looked_up_in_copies_of_the_old_one(tmp_path):
    path = tmp_path / "t"
    for ids in ([1, 2, 3], [2, 3, 4]):
        if path.exists():
            shutil.rmtree(path)
        made(tmp_path)
        rows = rows_of({(id_, "x"): 0 for id_ in ids})
        pq.write_table(rows, path / "part-0.parquet", compression="none", write_statistics=False)
        size = (path / "part-0.parquet").stat().st_size
        add = {"path": "part-0.parquet", "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
        commit(PUTS, str(path), 1, [{"add": add}], {"operation": "WRITE"})
        Upserter(str(path), COLUMNS, KEY, PUTS).apply(
            change({(ids[-1], "x"): 99}), Transaction("app", 1, {"operation": "MERGE"})
        )
    assert ours(str(path)) == theirs(str(path)) == {(2, "x"): 0, (3, "x"): 0, (4, "x"): 99}
