"""Rows by partitions: their values as text, which reads back as the same, and the folders of their files."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from ebbtide.delta import DataFile, Definition, KeyBounds, Snapshot, Writer, write_files
from ebbtide.errors import TableMismatchError

VALUES = {
    "flag": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [-128, 127, None]),
    "number": (pa.int64(), [-(2**63), 0, 2**63 - 1, None]),
    "word": (pa.string(), ["a", "null", "e u/%ü=:{}[]^\"'\\#?*\t~!@&+,;", "x" * 300, "\U0001f600", None]),
    "day": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, 0, 1, 5, UTC), None]),
    "local": (pa.timestamp("us"), [*map(datetime.fromisoformat, ("1600-02-29", "2024-02-29T12:30:15.123456")), None]),
    "price": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("0.0000000001"), Decimal(10) ** 27, None]),
}


def drawn(seed):
    """Return rows, and the columns that they are partitioned by."""
    chance = random.Random(seed)
    names = chance.sample(sorted(VALUES), chance.randrange(1, 4))
    rows = [
        {"id": number, **{name: chance.choice(VALUES[name][1]) for name in names}}
        for number in range(chance.randrange(1, 40))
    ]
    columns = pa.schema([("id", pa.int64()), *((name, VALUES[name][0]) for name in names)])
    return pa.Table.from_pylist(rows, columns), names


@pytest.mark.parametrize("seed", range(30))
def test_rows_come_back_from_the_files_and_the_values_of_their_partitions(tmp_path, seed):
    rows, names = drawn(seed)
    table = str(tmp_path / "t")
    actions = Definition(rows.schema).actions(table_id="t", name="t", partitioned=names)
    Writer().commit_version(table, 0, actions, {})
    adds = write_files(table, rows, rows.column_names, data_change=True, partitioned=names)
    Writer().commit(Snapshot.read(table), adds, {})
    found = Snapshot.read(table).rows(rows.schema)
    assert found.sort_by("id").to_pylist() == rows.to_pylist()
    files = [DataFile(add["add"]) for add in adds]
    assert len({repr(sorted(file.partition.items())) for file in files}) == len(files), "one for each partition"
    assert all(names and set(file.partition) == set(names) for file in files)
    for file in files:
        of_file = file.read(table, rows.schema)["id"].to_pylist()
        assert of_file == sorted(of_file), "in the order of the rows"
        assert not set(names) & file.stats["nullCount"].keys()


def parts(folder, name, **more):
    """The files that all values of a column are written to, one for each, and the rows of each."""
    type_, values = VALUES[name]
    rows = pa.table({name: pa.array(values, type_), "id": range(len(values)), **more})
    adds = write_files(str(folder), rows, (), data_change=True, partitioned=[name, *more])
    files = [DataFile(add["add"]) for add in adds]
    return rows, [(file, file.read(str(folder), rows.schema).to_pylist()) for file in files]


def test_files_are_where_spark_writes_those_of_their_values(tmp_path):
    _, found = parts(tmp_path, "word", day=pa.nulls(6, pa.date32()))
    folders = {rows[0]["word"]: file.path.rpartition("/")[0] for file, rows in found}
    no_day = "/day=__HIVE_DEFAULT_PARTITION__"
    assert folders == {
        "a": f"word=a{no_day}",
        "null": f"word=null{no_day}",
        "e u/%ü=:{}[]^\"'\\#?*\t~!@&+,;": "word=e%20u%252F%2525%C3%BC%253D%253A%257B%7D%255B%255D%255E%2522%2527"
        f"%255C%2523%253F%252A%2509~%21%40%26%2B%2C%3B{no_day}",
        "x" * 300: "",
        "\U0001f600": f"word=%F0%9F%98%80{no_day}",
        None: f"word=__HIVE_DEFAULT_PARTITION__{no_day}",
    }


def test_empty_text_is_refused_since_it_would_become_null(tmp_path):
    rows = pa.table({"id": [1, 2], "word": ["a", ""]})
    with pytest.raises(TableMismatchError, match="partitioned by 'word', whose value is an empty text"):
        write_files(str(tmp_path), rows, (), data_change=True, partitioned=["word"])


def test_files_of_other_partition_columns_are_not_committed(tmp_path):
    table = str(tmp_path / "t")
    rows = pa.table({"id": [1], "word": ["a"]})
    actions = Definition(rows.schema).actions(table_id="t", name="t", partitioned=["word"])
    Writer().commit_version(table, 0, actions, {})
    adds = write_files(table, rows, ["id"], data_change=True)
    with pytest.raises(TableMismatchError, match=r"has partitioned .* Got: partition columns word\. Allowed: .* none"):
        Writer().commit(Snapshot.read(table), adds, {})
    assert Snapshot.read(table).version == 0


@pytest.mark.parametrize("name", VALUES)
def test_keys_of_other_partitions_are_not_looked_for_in_a_file(tmp_path, name):
    keys, found = parts(tmp_path, name)
    assert len(found) == len(keys)
    for file, rows in found:
        may_be_held = KeyBounds(keys).may_hold(file)
        assert keys.filter(pa.array(may_be_held)).to_pylist() == rows


def test_value_of_a_partition_that_cannot_be_read_leaves_no_key_out():
    keys = pa.table({"day": pa.array([date(2024, 2, 29)])})
    file = DataFile({"path": "f", "partitionValues": {"day": "tomorrow"}})
    assert KeyBounds(keys).may_hold(file).all()
