"""The range of the hashes of a file's keys: no key is left out, and what cannot be relied on says nothing."""

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from ebbtide.columns import key_hashes
from ebbtide.delta import DataFile, IndexCache, write_files

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.decimal128(9, 2)), ("kind", pa.string())])
TAG = "ebbtideKeyRange"


def drawn(chance, n_rows):
    def maybe(value):
        return value if chance.random() < 0.9 else None

    rows = [
        (
            maybe(chance.randrange(100)),
            maybe(chance.choice("xyz")),
            maybe(Decimal(chance.randrange(99)) / 4),
            chance.choice("pq"),
        )
        for _ in range(n_rows)
    ]
    return pa.table(list(zip(*rows, strict=True)), COLUMNS)


def written(path, rows, key, **of):
    cache = IndexCache(path, key, COLUMNS, **of)
    [action] = write_files(path, rows, (), data_change=True, copies=cache)
    return cache, DataFile(action["add"])


@pytest.mark.parametrize("key", [["a"], ["b", "a"], ["c", "b"]])
@pytest.mark.parametrize("where", [None, ("kind", "p")])
def test_every_key_of_a_file_is_in_its_range_and_few_others(tmp_path, key, where):
    chance = random.Random(1)
    for number in range(12):
        rows = drawn(chance, chance.choice([1, 2, 50]))
        cache, file = written(str(tmp_path / f"t{number}"), rows, key, where=where)
        counted = rows if where is None else rows.filter(pa.array(kind == "p" for kind in rows["kind"].to_pylist()))
        hashes = key_hashes(counted, key)
        hashes.sort()
        own = cache.range_of(file)
        assert own == file.key_range()
        assert own.rows_of(hashes) == slice(0, len(hashes))
        if len(hashes):  # to the first 16 bits
            assert int(hashes[0]) - own.least < 2**48 > own.greatest - int(hashes[-1])


def test_range_of_other_keys_rows_or_types_says_nothing(tmp_path):
    rows = drawn(random.Random(2), 9).slice(0, 2)
    path = str(tmp_path / "t")
    _, file = written(path, rows, ["a"])
    assert not file.key_range().is_all
    as_text = COLUMNS.set(0, pa.field("a", pa.string()))
    others = (["b"], COLUMNS, None), (["a"], COLUMNS, ("kind", "p")), (["a"], as_text, None)
    for key, columns, where in others:
        assert IndexCache(path, key, columns, where=where).range_of(file).is_all


@pytest.mark.parametrize(
    "bounds", ["", "-", "-00", "-0000-fff", "-ffff-0000", "-0000-10000", "-x-y", "-1-2-3", "--1-2"]
)
def test_range_that_cannot_be_read_says_nothing(tmp_path, bounds):
    cache, file = written(str(tmp_path / "t"), drawn(random.Random(3), 1), ["a"])
    identity = file.tags[TAG].partition("-")[0]
    torn = DataFile({**file.add, "tags": {**file.tags, TAG: identity + bounds}})
    is_range = bounds == "-0000-fff"
    assert cache.range_of(torn).is_all is not is_range
    assert cache.range_of(DataFile({**file.add, "tags": {}})).is_all


def test_tag_describes_one_file_alone(tmp_path):
    _, file = written(str(tmp_path / "t"), drawn(random.Random(4), 5), ["a"])
    tagged = DataFile({**file.add, "tags": {**file.tags, "made": "here"}})
    assert tagged.tags_of_rows == {"made": "here"}
