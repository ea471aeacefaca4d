"""Upserts by vectors and by rewriting files: one row per key, also beside other writers, and a change feed."""

import random
from itertools import product
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from frame.circumstances import assume
from frame.limits import set_limits
from frame.thinned import graded, thinned
from local.local_run import make_partitioned

from ebbtide.columns import key_hashes
from ebbtide.delta import DataFile, Definition, IndexCache, Log, Snapshot, Transaction, Writer
from ebbtide.delta._copy_files import Copy
from ebbtide.errors import DeltaFeatureError, TableMismatchError
from ebbtide.executors import InProcess
from ebbtide.tables._replaced_rows import Upsert
from ebbtide.tables._upsert import Upserter

COLUMNS = pa.schema(
    [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string(), nullable=False), ("v", pa.int64())]
)
KEY = ["a", "b"]
PUTS = Writer()


class Part(NamedTuple):
    """A part of a step's changes."""

    upsert: Upsert

    def middle(self):
        return 0

    def __call__(self):
        return self.upsert


@pytest.fixture(autouse=True)
def own_copies(shell, tmp_path):
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    set_limits(rows_per_file=7)


def merge(number):
    return Transaction("app", number, {"operation": "MERGE"})


def made(tmp_path, *partitioned, **properties):
    path = str(tmp_path / "t")
    make_partitioned(path, Definition(COLUMNS, {"delta.enableChangeDataFeed": "true", **properties}), *partitioned)
    return path


def rows_of(values):
    return pa.table({"a": [a for a, _ in values], "b": [b for _, b in values], "v": list(values.values())}, COLUMNS)


def ours(path):
    return {(row["a"], row["b"]): row["v"] for row in Snapshot.read(path).rows(COLUMNS).to_pylist()}


def value_at(chance, number, at):
    """A value; some steps have few, so that rows of several keys are in one partition by it."""
    return chance.choice([None, number * 100 + at, at % 2, at % 2])


def fed(path):
    """The rows that delta-rs makes of the table's change feed."""
    changes = pa.table(DeltaTable(path).load_cdf(starting_version=0).read_all()).to_pylist()
    found = {}
    for row in sorted(changes, key=lambda row: (row["_commit_version"], row["_change_type"] in LEFT)):
        if row["_change_type"] in LEFT:
            found[row["a"], row["b"]] = row["v"]
        else:
            assert found.pop((row["a"], row["b"])) == row["v"]
    return found


LEFT = ("insert", "update_postimage")


def theirs(path):
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT a, b, v FROM t").read_all()
    rows = pa.table(found).to_pylist()
    values = {(row["a"], row["b"]): row["v"] for row in rows}
    assert len(values) == len(rows), "a key has two rows"
    return values


def change(values, deleted=(), **more):
    keys = rows_of({**dict.fromkeys(deleted, 0), **values}).select(KEY)
    return Upsert(keys, rows_of(values), **more)


PARTITIONED = ((), ("b",), ("v",), ("v", "b"))
"""By nothing, by a part of the key, by what an update changes, and by both."""


WAYS = ((True, True), (True, False), (False, True))
"""By vectors with a change feed of files, by vectors with one that readers derive from these, and by rewriting files."""


@pytest.mark.parametrize(
    ("way", "folded"), graded(product(WAYS, (1, 4, 100)), [(WAYS[0], 1), (WAYS[1], 100), (WAYS[2], 4)])
)
@pytest.mark.parametrize("seed", thinned(range(3), 3))
@pytest.mark.parametrize("partitioned", PARTITIONED, ids="_".join)
@pytest.mark.demand("sum-violation")
def test_every_key_has_its_last_row(tmp_path, way, seed, folded, partitioned):
    by_vectors, with_images = way
    set_limits(width=2)
    chance, want = random.Random(seed), {}
    path = made(tmp_path, *partitioned)
    for number in range(1, 12):
        upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=by_vectors, with_images=with_images)  # as in a new run
        keys = [(chance.randrange(12), chance.choice("xy")) for _ in range(9)]
        deleted, values = set(keys[:3]), {key: value_at(chance, number, at) for at, key in enumerate(keys[3:])}
        deleted -= values.keys()
        upserter.apply(change(values, deleted), merge(number))
        if number % folded == 0:
            upserter.fold(InProcess(), everything=number % 3 == 0)
        want = {key: value for key, value in want.items() if key not in deleted} | values
        assert ours(path) == theirs(path) == want
        assert fed(path) == want
    has_vectors = any(file.vector for file in Snapshot.read(path).files.values())
    assert partitioned or has_vectors is (by_vectors and folded > 1)


@pytest.mark.parametrize("partitioned", [(), ("b", "v")], ids="_".join)
def test_small_files_of_a_partition_are_joined_and_a_table_of_many_partitions_is_left_alone(tmp_path, partitioned):
    set_limits(width=4, rows_per_file=1_000)
    path = made(tmp_path, *partitioned)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    for number in range(1, 17):
        upserter.apply(change({(number, b): 1 for b in "uvwxyz"}), merge(number))
        upserter.fold(InProcess())
        files = Snapshot.read(path).files.values()
        n_partitions = len({repr(file.partition) for file in files})
        assert len(files) <= n_partitions * 6
    joined = [Log(path).commit(version).info()["operation"] for version in Log(path).versions()].count("OPTIMIZE")
    assert joined <= 5, "not after each step"
    assert fed(path) == ours(path) == theirs(path)


@pytest.mark.parametrize("by_vectors", [True, False])
@pytest.mark.parametrize("seed", graded(range(3), [0]))
def test_changes_in_parts_make_the_rows_and_the_feed_that_they_make_at_once(tmp_path, by_vectors, seed):
    chance = random.Random(seed)
    shown = {}
    for how in ("at once", "in parts"):
        path = made(tmp_path / how)
        upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=by_vectors)
        upserter.apply(change({(n, "x"): n for n in range(12)}), merge(1))
        upserter.apply(change({(n, "x"): 10 * n for n in range(12, 15)}), merge(2))
        shown[how] = upserter
    for number in range(3, 7):
        keys = chance.sample([(n, "x") for n in range(20)], 12)
        deleted, values = keys[:4], {key: number * 100 + key[0] for key in keys[4:]}
        parts = [change({key: values[key]}) for key in values] + [change({}, deleted=[key]) for key in deleted]
        shown["at once"].apply(change(values, deleted), merge(number))
        pieces = [Part(part) for part in parts]
        shown["in parts"].apply_pieces(InProcess(), pieces, merge(number))
    paths = [str(tmp_path / how / "t") for how in shown]
    assert ours(paths[0]) == ours(paths[1]) == theirs(paths[1])
    feeds = [pa.table(DeltaTable(path).load_cdf(starting_version=3).read_all()).to_pylist() for path in paths]
    names = ("_commit_version", "_change_type", "a", "b", "v")
    at_once, in_parts = [sorted(tuple(row[name] for name in names) for row in feed) for feed in feeds]
    assert at_once == in_parts


def halves(values):
    """Divide rows by the first bit of their keys' hashes, as tasks do."""
    keys = list(values)
    is_upper = key_hashes(rows_of(values), KEY) >= 2**63
    return [
        change({key: values[key] for key, upper in zip(keys, is_upper, strict=True) if upper == half})
        for half in (False, True)
    ]


def test_tasks_keep_to_the_files_of_their_own_keys_through_folds(tmp_path, shell):
    set_limits(rows_per_file=10**6, width=2, least_rows_of_range=100)
    path, want = made(tmp_path), {}
    chance = random.Random(3)
    for number in range(1, 8):
        values = {(chance.randrange(2000), "x"): number for _ in range(700)}
        upserter = Upserter(path, COLUMNS, KEY, PUTS)
        upserter.apply_pieces(InProcess(), [Part(half) for half in halves(values)], merge(number))
        upserter.fold(InProcess())
        want |= values
        assert ours(path) == theirs(path) == want
    files = list(Snapshot.read(path).files.values())
    in_half = [{keys.least >> 63, keys.greatest >> 63} for keys in (file.key_range() for file in files)]
    assert sorted(in_half, key=sum) == [{0}] * (len(files) // 2) + [{1}] * (len(files) // 2), "no file has keys of both"
    shell.export(EBBTIDE_CACHE=tmp_path / "of a new host")
    assume("another process")
    lower, _ = halves(dict.fromkeys(want, 9))
    Upserter(path, COLUMNS, KEY, PUTS).apply_pieces(InProcess(), [Part(lower)], merge(9))
    assert len(list((tmp_path / "of a new host").glob("*.arrow"))) == len(files) // 2 + 1, "and the new file"


class Hosts(InProcess):
    """Stands for several hosts; dies in the work, or behind it.

    Args:
        n: Number of the hosts.
        dies_at: Number of the item that it dies at; None: it lives.
    """

    def __init__(self, n, dies_at=None):
        super().__init__(threads=1)
        self._n, self._dies_at = n, dies_at

    n_hosts = property(lambda self: self._n)
    parallelism = property(lambda self: self._n)

    def map(self, work, items, **how):
        found = super().map(work, items[: self._dies_at], **how)
        if self._dies_at is not None and items:
            raise InterruptedError
        return found


class MortalWriter(Writer):
    """Dies before or behind a commit, once its place is set."""

    dies = None

    def commit_version(self, *given):
        if self.dies != "before":
            super().commit_version(*given)
        if self.dies:
            raise InterruptedError


def wide(path, n_hosts):
    """The files with keys of several hosts."""
    ranges = [file.key_range() for file in Snapshot.read(path).files.values()]
    return [keys for keys in ranges if keys.greatest - keys.least > 2**64 // n_hosts]


@pytest.mark.parametrize("by_vectors", [True, False])
@pytest.mark.parametrize("partitioned", [(), ("b",)], ids="_".join)
@pytest.mark.parametrize("seed", graded(range(4), [0]))
def test_large_files_of_all_keys_are_cut_by_ranges_on_several_hosts_whatever_dies(
    tmp_path, by_vectors, partitioned, seed
):
    set_limits(rows_per_file=200, small_bytes=0, least_rows_of_range=4)
    chance, want = random.Random(seed), {}
    path = made(tmp_path, *partitioned)

    def step(number, n_rows, n_deleted, by_tasks):
        keys = [(chance.randrange(2000), chance.choice("xy")) for _ in range(n_rows)]
        values, deleted = dict.fromkeys(keys, number), chance.sample(sorted(want), n_deleted)
        values = {key: value for key, value in values.items() if key not in deleted}
        writer = MortalWriter()
        upserter = Upserter(path, COLUMNS, KEY, writer, by_vectors=by_vectors)  # as in a new run
        parts = [*halves(values), change({}, deleted)] if by_tasks else [change(values, deleted)]
        upserter.apply_pieces(InProcess(threads=1), [Part(part) for part in parts], merge(number))
        for key in deleted:
            del want[key]
        want.update(values)
        return upserter, writer

    for number in range(1, 5):  # by one process
        step(number, 400, min(60, len(want)), by_tasks=False)
    assert wide(path, 3)
    for number, place in enumerate([0, 1, 9, "before", "behind", None, None, None, None], start=5):
        upserter, writer = step(number, 20, 3, by_tasks=True)
        executor = Hosts(3, place if isinstance(place, int) else None)
        writer.dies = place if isinstance(place, str) else None
        before = len(wide(path, 3))
        if place is None:
            upserter.fold(executor)
            assert before - len(wide(path, 3)) <= executor.parallelism, "a few in each step"
        else:
            with pytest.raises(InterruptedError):
                upserter.fold(executor)
        assert ours(path) == theirs(path) == want
        assert fed(path) == want
    assert not [keys for keys in wide(path, 3) if keys.is_all]
    assert ours(path) == theirs(path) == fed(path) == want


def test_file_that_another_client_changes_while_it_is_cut_keeps_its_own_rows(tmp_path):
    set_limits(rows_per_file=200, small_bytes=0, least_rows_of_range=4)
    path = made(tmp_path)
    values = {(n, "x"): 1 for n in range(100)}
    Upserter(path, COLUMNS, KEY, PUTS).apply(change(values), merge(1))

    class Disturbed(Hosts):
        def map(self, work, items, **how):
            found = super().map(work, items, **how)
            if items:
                Upserter(path, COLUMNS, KEY, PUTS).apply(change({}, deleted=[(7, "x")]), merge(2))
            return found

    del values[7, "x"]
    Upserter(path, COLUMNS, KEY, PUTS).fold(Disturbed(2), everything=True)
    assert ours(path) == theirs(path) == values
    Upserter(path, COLUMNS, KEY, PUTS).fold(Hosts(2), everything=True)
    assert ours(path) == theirs(path) == values
    assert not wide(path, 2)


def test_cut_files_are_opened_by_the_host_of_their_keys(tmp_path, shell):
    set_limits(rows_per_file=10**6, small_bytes=0, least_rows_of_range=4)
    path = made(tmp_path)
    values = {(n, "x"): 1 for n in range(2000)}
    Upserter(path, COLUMNS, KEY, PUTS).apply(change(values), merge(1))
    Upserter(path, COLUMNS, KEY, PUTS).fold(Hosts(4), everything=True)
    shell.export(EBBTIDE_CACHE=tmp_path / "of a new host")
    assume("another process")
    lower, _ = halves(dict.fromkeys(values, 9))
    Upserter(path, COLUMNS, KEY, PUTS).apply_pieces(InProcess(), [Part(lower)], merge(2))
    copied = len(list((tmp_path / "of a new host").glob("*.arrow")))
    assert (len(Snapshot.read(path).files), copied) == (8 // 2 + 1, 8 // 2 + 1), (
        "half of the eight files and the new one; the rest is empty"
    )


@pytest.mark.parametrize("process", ["same", "another"])
def test_each_file_is_mapped_once_in_a_process_and_read_from_its_copy_in_the_next(tmp_path, monkeypatch, process):
    path = made(tmp_path)
    Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): 1}), merge(1))
    if process == "another":
        assume("another process")
    mapped, computed = [], []
    open_copy, compute = Copy.__init__, IndexCache._computed
    monkeypatch.setattr(Copy, "__init__", lambda copy, at: mapped.append(at) or open_copy(copy, at))
    monkeypatch.setattr(IndexCache, "_computed", lambda *asked: computed.append(asked) or compute(*asked))
    for number in range(2, 5):
        Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): number}), merge(number))
    assert (len(mapped), computed) == (3 if process == "same" else 4, [])


def test_feed_shows_each_row_before_and_after(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(1, "x"): 1, (2, "x"): 2, (3, "x"): 3}), merge(1))
    upserter.apply(change({(1, "x"): 10, (4, "x"): 4}, deleted=[(2, "x"), (9, "x")]), merge(2))
    feed = pa.table(DeltaTable(path).load_cdf(starting_version=2).read_all()).to_pylist()
    found = sorted((row["_change_type"], row["a"], row["v"]) for row in feed)
    assert found == [
        ("delete", 2, 2),
        ("insert", 4, 4),
        ("update_postimage", 1, 10),
        ("update_preimage", 1, 1),
    ]
    [cdc] = [action["cdc"] for action in Log(path).commit(2) if "cdc" in action]
    file = tmp_path / "t" / cdc.pop("path")
    assert cdc == {"partitionValues": {}, "size": file.stat().st_size, "dataChange": False}, "as in Delta's protocol"
    first, second = Log(path).commit(1), Log(path).commit(2)
    [gone] = [action["remove"] for action in second if "remove" in action]
    [came] = [action["add"] for action in second if "add" in action and "deletionVector" not in action["add"]]
    [shortened] = [action["add"] for action in second if "add" in action and "deletionVector" in action["add"]]
    assert gone["dataChange"]
    assert came["dataChange"]
    assert shortened["dataChange"]
    assert second.info()["operation"] == "MERGE"
    assert first.info()["timestamp"] <= gone["deletionTimestamp"] <= second.info()["timestamp"]


def files_with(path, values):
    """Write a data file; return the actions that add it."""
    return [DataFile.write(path, "ready.parquet", rows_of(values), bounded=("a",))]


def keys_of(*keys):
    return rows_of(dict.fromkeys(keys, 0)).select(KEY)


@pytest.mark.parametrize("by_vectors", [True, False])
def test_replaced_keys_have_only_the_rows_of_the_new_files(tmp_path, by_vectors):
    path = made(tmp_path, **{"delta.enableDeletionVectors": "false"})
    upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=by_vectors)
    upserter.apply(change({(n, "x"): n for n in range(5)}), merge(1))
    gone = keys_of((1, "x"), (2, "x"), (9, "x"))
    adds = files_with(path, {(1, "x"): 10, (9, "x"): 90})
    upserter.replace(gone, adds, Transaction("app", 2, {"operation": "MERGE", "userMetadata": "{}"}))
    want = {(0, "x"): 0, (1, "x"): 10, (3, "x"): 3, (4, "x"): 4, (9, "x"): 90}
    assert ours(path) == theirs(path) == want
    info = Log(path).commit(2).info()
    assert (info["operation"], info["userMetadata"]) == ("MERGE", "{}")
    assert Snapshot.read(path).transactions == {"app": 2}
    has_vectors = any(file.vector for file in Snapshot.read(path).files.values())
    assert has_vectors is by_vectors
    assert defining(path) == ({"protocol", "metaData"} if by_vectors else set())
    upserter.replace(keys_of((0, "x")), [], merge(2))
    assert ours(path) == want, "a step is applied once"
    upserter.apply(change({(3, "x"): 30}), merge(3))
    assert ours(path) == theirs(path) == want | {(3, "x"): 30}


def test_replace_of_new_keys_only_adds_their_rows(tmp_path):
    path = made(tmp_path, **{"delta.enableDeletionVectors": "false"})
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.replace(keys_of((1, "x")), files_with(path, {(1, "x"): 1}), merge(1))
    assert {kind for action in Log(path).commit(1) for kind in action} == {"commitInfo", "add", "txn"}
    assert ours(path) == {(1, "x"): 1}


def test_feed_without_images_has_no_change_files(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=False, with_images=False)
    upserter.apply(change({(1, "x"): 1, (2, "x"): 2}), merge(1))
    upserter.apply(change({(1, "x"): 10}), merge(2))
    assert not [action for action in Log(path).commit(2) if "cdc" in action]
    assert ours(path) == theirs(path) == {(1, "x"): 10, (2, "x"): 2}


@pytest.mark.parametrize("by_vectors", [True, False])
def test_delete_of_absent_rows_changes_no_file(tmp_path, by_vectors):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS, by_vectors=by_vectors)
    upserter.apply(change({(1, "x"): 1, (2, "x"): 2}), merge(1))
    for number in (2, 3):
        upserter.apply(change({}, deleted=[(1, "x")]), merge(number))
    assert {kind for action in Log(path).commit(3) for kind in action} == {"commitInfo", "txn"}


def test_rows_below_a_truncate_are_deleted_from_a_file_with_a_vector(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(7)}), merge(1))
    upserter.apply(change({}, deleted=[(0, "x"), (1, "x")]), merge(2))
    below = change({}, is_below=lambda rows: rows["v"].to_numpy() < 4, floor_columns=("v",))
    upserter.apply(below, merge(3))
    assert ours(path) == theirs(path) == {(n, "x"): n for n in (4, 5, 6)}


def test_upsert_is_computed_again_after_a_foreign_commit(tmp_path, monkeypatch):
    """Another writer joins all files into one just before the commit."""
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(20)}), merge(1))

    commit_version = Writer.commit_version

    def late(puts, table, version, actions, info):
        monkeypatch.setattr(Writer, "commit_version", commit_version)
        snapshot = Snapshot.read(table)
        joined = DataFile.write(table, "joined.parquet", snapshot.rows(COLUMNS), bounded=(), data_change=False)
        removes = [file.removed(0, data_change=False) for file in snapshot.files.values()]
        puts.commit_version(table, snapshot.version + 1, [joined, *removes], {"operation": "OPTIMIZE"})
        puts.commit_version(table, version, actions, info)

    monkeypatch.setattr(Writer, "commit_version", late)
    upserter.apply(change({(5, "x"): 500}, deleted=[(6, "x")]), merge(2))
    want = {(n, "x"): n for n in range(20) if n != 6} | {(5, "x"): 500}
    assert ours(path) == theirs(path) == want


def test_rewritten_file_has_no_rows_that_a_vector_deleted(tmp_path):
    path = made(tmp_path)
    Upserter(path, COLUMNS, KEY, PUTS).apply(change({(n, "x"): n for n in range(5)}), merge(1))
    Upserter(path, COLUMNS, KEY, PUTS).apply(change({}, deleted=[(0, "x"), (3, "x")]), merge(2))
    Upserter(path, COLUMNS, KEY, PUTS, by_vectors=False).apply(change({(1, "x"): 10}), merge(3))
    assert ours(path) == theirs(path) == {(1, "x"): 10, (2, "x"): 2, (4, "x"): 4}


def test_single_file_is_rewritten_only_if_it_has_deleted_rows(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(5)}), merge(1))
    upserter.fold(InProcess(), everything=True)
    assert Snapshot.read(path).version == 1
    upserter.apply(change({}, deleted=[(0, "x")]), merge(2))
    upserter.fold(InProcess(), everything=True)
    joined = Snapshot.read(path)
    [file] = joined.files.values()
    assert (file.vector, file.rows, joined.version) == (None, 4, 3)
    changed = [action.get("add") or action.get("remove") for action in Log(path).commit(3)]
    assert [file["dataChange"] for file in changed if file] == [False, False]
    assert ours(path) == theirs(path) == {(n, "x"): n for n in range(1, 5)}


def test_deleted_table_is_refused_by_name(tmp_path):
    path = str(tmp_path / "gone")
    with pytest.raises(TableMismatchError, match=f"^The table at '{path}' is gone"):
        Upserter(path, COLUMNS, KEY, PUTS).apply(change({}), merge(1))


def test_text_keys_are_found_without_statistics(tmp_path):
    path = made(tmp_path)
    key = ["b", "a"]
    upserter = Upserter(path, COLUMNS, key, PUTS)
    upserter.apply(change({(1, "x"): 1, (2, "y"): 2}), merge(1))
    upserter.apply(change({(2, "y"): 3}, deleted=[(1, "x")]), merge(2))
    assert ours(path) == {(2, "y"): 3}


def test_large_file_of_deleted_rows_is_rewritten_with_the_small_files(tmp_path):
    set_limits(rows_per_file=5_000, small_bytes=4_000, width=2)
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    upserter.apply(change({(n, "x"): n for n in range(2_000)}), merge(1))
    upserter.apply(change({}, deleted=[(n, "x") for n in range(1, 2_000)]), merge(2))
    for number in (3, 4):
        upserter.apply(change({(number, "y"): number}), merge(number))
    upserter.fold(InProcess())
    [file] = Snapshot.read(path).files.values()
    assert (file.vector, file.rows) == (None, 3)
    assert ours(path) == {(0, "x"): 0, (3, "y"): 3, (4, "y"): 4}


def test_files_of_a_table_with_a_rule_for_writers_are_not_joined(tmp_path):
    path = made(tmp_path)
    upserter = Upserter(path, COLUMNS, KEY, PUTS)
    for number in (1, 2):
        upserter.apply(change({(number, "x"): number}), merge(number))
    found = Snapshot.read(path)
    metadata = {**found.metadata, "configuration": {**found.configuration, "delta.appendOnly": "true"}}
    PUTS.commit_version(path, found.version + 1, [{"metaData": metadata}], {"operation": "SET TBLPROPERTIES"})
    with pytest.raises(DeltaFeatureError, match=f"{path}.*appendOnly"):
        upserter.fold(InProcess(), everything=True)


def defining(path):
    """Return the kinds of actions in the newest commit that define the table."""
    actions = Log(path).commit(Log(path).versions()[-1])
    return {kind for action in actions for kind in action} & {"protocol", "metaData"}


def test_table_made_without_vectors_gets_them(tmp_path):
    path = made(tmp_path, **{"delta.enableDeletionVectors": "false"})
    Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): 1, (2, "x"): 2}), merge(1))
    Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): 3}), merge(2))
    assert Snapshot.read(path).configuration["delta.enableDeletionVectors"] == "true"
    assert defining(path) == {"protocol", "metaData"}
    Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): 3, (2, "x"): 2}), merge(3))
    assert defining(path) == set(), "once"
    assert ours(path) == theirs(path) == {(1, "x"): 3, (2, "x"): 2}


@pytest.mark.parametrize(
    ("property_", "value", "feature"),
    [("delta.appendOnly", "true", "appendOnly"), ("delta.constraints.positive", "v > 0", "checkConstraints")],
)
def test_table_with_a_rule_for_writers_is_refused(tmp_path, property_, value, feature):
    path = made(tmp_path, **{property_: value})
    with pytest.raises(DeltaFeatureError, match=rf"{path}.*cannot be written.*{feature}.*CREATE OR REPLACE TABLE"):
        Upserter(path, COLUMNS, KEY, PUTS).apply(change({(1, "x"): 1}), merge(1))
    with pytest.raises(DeltaFeatureError, match=rf"{path}.*cannot be written.*{feature}.*CREATE OR REPLACE TABLE"):
        Upserter(path, COLUMNS, KEY, PUTS).replace(keys_of((1, "x")), [], merge(1))


def test_key_with_a_null_column_is_found_outside_of_the_bounds(tmp_path):
    columns = pa.schema([pa.field("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(columns, {"delta.enableChangeDataFeed": "true"}), name="t", info={})
    upserter = Upserter(path, columns, KEY, PUTS)

    def put(number, *keys):
        rows = pa.table({"a": [a for a, _ in keys], "b": [b for _, b in keys], "v": [number] * len(keys)}, columns)
        upserter.apply(Upsert(rows.select(KEY), rows), merge(number))

    put(1, (None, "x"), (5, "x"), (7, "x"))
    put(2, (None, "x"), (100, "x"))
    put(3, (None, "x"))
    rows = Snapshot.read(path).rows(columns).to_pylist()
    assert sorted((str(row["a"]), row["v"]) for row in rows) == [("100", 2), ("5", 1), ("7", 1), ("None", 3)]
