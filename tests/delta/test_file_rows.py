"""Rows of a file come from its copy or from the file itself: the same ones, whatever is missing, damaged, or too large for the space."""

import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from frame.circumstances import assume
from frame.limits import set_limits
from frame.stored_names import HASH, KEYS
from frame.thinned import thinned
from pyroaring import BitMap64

from ebbtide.columns import key_hashes
from ebbtide.delta import DataFile, Definition, IndexCache, KeyIndex, Log, LostRows, Snapshot, Writer, write_files
from ebbtide.delta import _copy_files as copy_files
from ebbtide.delta import _key_index as key_index
from ebbtide.delta._copy_files import ChangedCopyError, Copy
from ebbtide.storage import ParquetFile

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("n", pa.int64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("of", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("list", pa.list_(pa.int64())),
        ("none", pa.struct([("a", pa.int64())])),
    ]
)


def rows_of(keys, chance):
    """Rows whose values repeat little; some are null, one is longer than a block."""

    def some(value):
        return None if chance.random() < 0.1 else value

    return pa.table(
        {
            "key": list(keys),
            "n": [some(chance.randrange(2**40)) for _ in keys],
            "flag": [some(chance.random() < 0.5) for _ in keys],
            "text": [some("x" * chance.choice([0, 3, 40, 40, 40_000])) for _ in keys],
            "at": [some(chance.randrange(10**15)) for _ in keys],
            "of": [some({"a": some(7), "b": some(f"b{key}")}) for key in keys],
            "list": [some([1] * chance.randrange(4)) for _ in keys],
            "none": [None for _ in keys],
        },
        SCHEMA,
    )


class Lookups:
    """A table of several files, and what it should show: key to rows, of all files."""

    def __init__(self, folder, chance, max_bytes=10**9):
        self.path, self.copies, self.chance, self.max_bytes = str(folder / "t"), folder / "copies", chance, max_bytes
        self.files, self.expected = [], {}
        self.restart()

    def restart(self):
        """Begin again as another process would."""
        self.cache = IndexCache(self.path, ["key"], SCHEMA, folder=self.copies, max_bytes=self.max_bytes)

    def add(self, keys, *, by_us=True):
        rows = rows_of(keys, self.chance)
        [action] = write_files(self.path, rows, [], data_change=True, copies=self.cache if by_us else None)
        self.files.append(DataFile(action["add"]))
        for row in rows.to_pylist():
            self.expected.setdefault(row["key"], []).append(row)

    def refuse_wrong(self, keys):
        wanted, hashes, _ = KeyIndex.in_hash_order(pa.table({"key": pa.array(keys, pa.string())}), ["key"])
        found = {}
        for file in self.files:
            index = self.cache.index_of(file)
            numbers, key_numbers = index.find(wanted, hashes)
            rows = index.rows.take(numbers).to_pylist()
            assert [row["key"] for row in rows] == wanted["key"].take(pa.array(key_numbers)).to_pylist()
            own = pq.read_table(file.location(self.path)).take(pa.array(index.positions[numbers]))
            assert own["key"].to_pylist() == [row["key"] for row in rows]
            for row in rows:
                found.setdefault(row["key"], []).append(row)
        assert found == {key: self.expected[key] for key in keys if key in self.expected}


@pytest.fixture
def lookups(tmp_path):
    return Lookups(tmp_path, random.Random(3))


@pytest.mark.parametrize("seed", thinned(range(6), 3))
def test_lookups_equal_a_plain_map_whatever_becomes_of_the_copies(tmp_path, seed):
    chance = random.Random(seed)
    set_limits(attached_from=chance.choice([1, 10**9]), row_group=50, stored_row_group=50)
    table = Lookups(tmp_path, chance, max_bytes=chance.choice([300_000, 10**9]))
    for _ in range(25):
        deed = chance.choice(["add", "foreign", "restart", "lose", "damage", "look up", "look up", "look up all"])
        copies = sorted(tmp_path.glob("copies/*.arrow"))
        if deed in ("add", "foreign"):
            table.add([f"k{chance.randrange(2000)}" for _ in range(chance.choice([1, 200]))], by_us=deed == "add")
        elif deed == "lose" and copies:
            chance.choice(copies).unlink()
        elif deed == "damage" and copies:
            copy = chance.choice(copies)
            damaged = bytearray(copy.read_bytes())
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            copy.unlink()  # it is mapped: what is mapped must not change
            copy.write_bytes(bytes(damaged))
            table.restart()
        elif deed == "restart":
            table.restart()
        known = sorted(table.expected)
        n_keys = len(known) if deed == "look up all" else min(chance.choice([1, 20]), len(known))
        table.refuse_wrong([*chance.sample(known, n_keys), "absent"])


def test_copy_that_was_written_to_is_not_used_and_made_again(lookups):
    lookups.add([f"k{number}" for number in range(3000)])
    [path] = lookups.copies.iterdir()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.unlink()  # it is mapped: what is mapped must not change
    path.write_bytes(bytes(damaged))
    with pytest.raises(ChangedCopyError):
        Copy(path)
    lookups.restart()
    lookups.refuse_wrong([f"k{number}" for number in range(3000)])
    assert path.read_bytes() != bytes(damaged)
    copy_files.note_use(path)
    assert len(Copy(path).rows) == 3000


@pytest.mark.parametrize("is_attached", [True, False])
def test_host_without_copies_takes_the_attached_index_and_computes_none(lookups, monkeypatch, is_attached):
    set_limits(attached_from=1)
    lookups.add([f"k{number}" for number in range(300)], by_us=is_attached)
    shutil.rmtree(lookups.copies, ignore_errors=True)
    lookups.restart()
    computed = []
    compute = IndexCache._computed
    monkeypatch.setattr(IndexCache, "_computed", lambda *asked: computed.append(asked) or compute(*asked))
    lookups.refuse_wrong([f"k{number}" for number in range(300)])
    assert bool(computed) != is_attached


@pytest.mark.parametrize(
    "changed",
    [
        {"key": ["n"]},
        {"where": ("text", "x")},
        {"columns": pa.schema([("key", pa.large_string()), *list(SCHEMA)[1:]])},
    ],
    ids=["key", "where", "type"],
)
def test_attached_index_of_other_keys_or_rows_is_not_taken(lookups, changed):
    set_limits(attached_from=1)
    lookups.add(["a", "b", "c"])
    [file] = lookups.files
    own = {"table": lookups.path, "key": ["key"], "columns": SCHEMA, "folder": lookups.copies}
    assert IndexCache(**own)._attached(file) is not None
    assert IndexCache(**{**own, **changed})._attached(file) is None


def test_damaged_attached_index_is_computed(lookups):
    set_limits(attached_from=1)
    lookups.add([f"k{number}" for number in range(300)])
    [file] = lookups.files
    hashes, _ = lookups.cache._attached(file)
    content = Path(file.location(lookups.path)).read_bytes()
    at = content.index(hashes.tobytes())
    Path(file.location(lookups.path)).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    shutil.rmtree(lookups.copies)
    lookups.restart()
    assert lookups.cache._attached(file) is None
    lookups.refuse_wrong([f"k{number}" for number in range(300)])


def test_other_readers_read_the_rows_of_a_file_with_an_index(tmp_path):
    set_limits(attached_from=1)
    puts, path = Writer(), str(tmp_path / "t")
    puts.create(path, Definition(SCHEMA, {"delta.enableDeletionVectors": "false"}), name="t", info={})
    cache = IndexCache(path, ["key"], SCHEMA, folder=tmp_path / "copies")
    rows = rows_of(["a", "b", "c"], random.Random(1))
    adds = write_files(path, rows, [], data_change=True, copies=cache)
    puts.commit(Snapshot.read(path), adds, {})
    assert cache._attached(DataFile(adds[0]["add"])) is not None
    assert DeltaTable(path).to_pyarrow_table().cast(SCHEMA).equals(rows)


def test_rows_of_a_file_are_read_by_position_and_null_columns_are_not_decoded(lookups):
    set_limits(stored_row_group=10)
    lookups.add([f"k{number}" for number in range(95)])
    [file] = lookups.files
    location = file.location(lookups.path)
    whole = ParquetFile(location).read()
    for positions in (np.array([94, 3, 3, 50]), np.arange(27, 61), np.arange(95), np.array([12]), np.arange(0)):
        found = ParquetFile(location).read(SCHEMA.names, positions=positions)
        assert found.equals(whole.take(pa.array(positions)))
    assert "none" not in ParquetFile(location).read(SCHEMA.names, without_nulls=True).column_names


def test_tables_that_need_more_than_the_space_have_no_copies_made_in_turns(tmp_path, monkeypatch):
    table = Lookups(tmp_path, random.Random(1))
    for number in range(12):
        table.add([f"{number}/{key}" for key in range(300)])
    need = sum(path.stat().st_size for path in tmp_path.glob("copies/*.arrow"))
    shutil.rmtree(tmp_path / "copies")
    table.max_bytes = need // 3
    written = []
    write = copy_files.write
    monkeypatch.setattr(copy_files, "write", lambda path, rows: written.append(path) or write(path, rows))
    for _ in range(4):
        table.restart()
        before = len(written)
        table.refuse_wrong([f"{number}/{key}" for number in range(12) for key in range(0, 300, 7)])
    assert len(written) == before, "the last process made none"
    kept = list(tmp_path.glob("copies/*.arrow"))
    assert any(not path.name.endswith(KEYS) for path in kept)
    assert sum(path.stat().st_size for path in kept) <= table.max_bytes


def copies_with_rows(lookups):
    return [path for path in lookups.copies.glob("*.arrow") if not path.name.endswith(KEYS)]


def test_rows_are_copied_once_as_many_were_read_as_the_file_has(lookups):
    set_limits(row_group=50)
    lookups.add([f"k{number}" for number in range(300)], by_us=False)
    for number in range(5):
        lookups.refuse_wrong([f"k{number}"])
        assert copies_with_rows(lookups) == []
    lookups.refuse_wrong(["k7"])
    assert len(copies_with_rows(lookups)) == 1


@pytest.mark.parametrize(("max_bytes", "n_copies"), [(10**9, 1), (10, 0)])
def test_rows_that_will_all_be_read_are_copied_where_there_is_room(tmp_path, max_bytes, n_copies):
    lookups = Lookups(tmp_path, random.Random(1), max_bytes=max_bytes)
    lookups.add([f"k{number}" for number in range(300)], by_us=False)
    [file] = lookups.files
    lookups.cache.index_of(file).rows.prepare()
    assert len(copies_with_rows(lookups)) == n_copies


def test_only_a_copy_with_rows_is_given_to_those_who_would_read_all(lookups):
    lookups.add(["a", "b"])
    lookups.add(["c", "d"], by_us=False)
    with_rows, with_keys = lookups.files
    lookups.cache.index_of(with_keys)
    assert lookups.cache.opened(with_rows) is not None
    assert lookups.cache.opened(with_keys) is None


def test_copies_of_indices_that_were_closed_go_with_their_files(lookups):
    lookups.add(["a", "b"])
    lookups.cache.only(lookups.files)
    lookups.cache.close()
    lookups.cache.only([])
    assert list(lookups.copies.iterdir()) == []


def test_copies_in_a_folder_that_is_now_of_another_user_are_not_read(lookups, monkeypatch):
    lookups.add(["a", "b"])
    lookups.restart()
    assume("a folder of another user")
    mapped = []
    monkeypatch.setattr(key_index, "Copy", lambda path: mapped.append(path) or Copy(path))
    lookups.refuse_wrong(["a", "b"])
    assert mapped == []


def test_hashes_of_erased_keys_go_with_the_file_that_had_them(lookups):
    set_limits(attached_from=1)
    lookups.add([f"k{number}" for number in range(300)])
    [file] = lookups.files
    erased = key_hashes(pa.table({"key": ["k7"]}), ["key"]).tobytes()
    assert erased in Path(file.location(lookups.path)).read_bytes()
    [add] = file.written_without(lookups.path, BitMap64([7]), SCHEMA, [])
    left = Log(lookups.path).location_of(add["add"]["path"])
    assert erased not in Path(left).read_bytes()
    assert HASH not in ParquetFile(left).read().column_names


@pytest.mark.parametrize("max_bytes", [10**9, 10])
def test_rows_that_a_vector_hides_keep_their_numbers_with_and_without_a_copy(tmp_path, max_bytes):
    lookups = Lookups(tmp_path, random.Random(1), max_bytes=max_bytes)
    keys = [f"k{number}" for number in range(300)]
    lookups.add(keys, by_us=False)
    [file] = lookups.files
    [_, hidden] = Snapshot(lookups.path, 0, {}, {}).deleting([LostRows(file, BitMap64([0, 7]), is_whole=False)])
    lookups.files = [DataFile(hidden["add"])]
    lookups.refuse_wrong(keys[:20])


@pytest.mark.parametrize("by_us", [True, False])
def test_rows_that_follow_each_other_have_the_columns_that_are_asked_for(lookups, by_us):
    lookups.add([f"k{number}" for number in range(300)], by_us=by_us)
    [file] = lookups.files
    rows = lookups.cache.index_of(file).rows
    assert rows.is_copied is by_us
    part = rows.slice(5, 9, ["none", "n"])
    assert part.schema == pa.schema([SCHEMA.field("none"), SCHEMA.field("n")])
    assert part.equals(rows.take(np.arange(5, 9), ["none", "n"]))


def test_copy_with_rows_takes_the_place_of_the_one_without(lookups):
    lookups.add(["a", "b"], by_us=False)
    [file] = lookups.files
    index = lookups.cache.index_of(file)
    assert [path.name.endswith(KEYS) for path in lookups.copies.glob("*.arrow")] == [True]
    index.rows.prepare()
    assert [path.name.endswith(KEYS) for path in lookups.copies.glob("*.arrow")] == [False]
