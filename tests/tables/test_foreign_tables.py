"""Tables as other clients write them: partitions, names in other cases, INT96, features. Each is read and written right, or refused by name."""

import json
import math
import random
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from inputs.parquet_pages import compressed_by_lzo

from ebbtide.delta import DataFile, Definition, Log, Snapshot, Transaction, Writer
from ebbtide.delta._features import with_feature
from ebbtide.errors import EbbtideError, TableMismatchError, UnsupportedFileError
from ebbtide.executors import InProcess
from ebbtide.tables._replaced_rows import Upsert
from ebbtide.tables._upsert import Upserter

PUTS = Writer()
INSTANTS = [
    datetime.fromisoformat(text)
    for text in (
        "0001-01-01T00:00:00Z",
        "1600-02-29T01:00:00Z",
        "2024-02-29T12:30:15.123456Z",
        "9999-12-31T23:59:59.999999Z",
    )
]
VALUES = {
    "n": (pa.int32(), [-1, 0, 7, None]),
    "word": (pa.string(), ["a", "b/c =%ü", "null", None]),
    "share": (pa.float64(), [0.5, -math.inf, 1e30, None]),
    "flag": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "at": (pa.timestamp("us", "UTC"), [*INSTANTS, None]),
    "local": (pa.timestamp("us"), [*[time.replace(tzinfo=None) for time in INSTANTS], None]),
    "price": (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("99999999.99"), None]),
    "raw": (pa.binary(), [b"x", "ü".encode(), None]),
    "part": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": "z"}, None]),
    "tags": (pa.list_(pa.string()), [["a", None], [], None]),
    "marks": (pa.map_(pa.string(), pa.binary()), [[("k", b"v"), ("l", None)], [], None]),
}
NESTED = {"part", "tags", "marks"}
"""Columns that a table may have beside `id`: their types, and values of each."""
UNFIT_PARTITIONS = {"share", "raw"}
"""Those that are refused as partition columns of a table to write."""


@pytest.fixture(autouse=True)
def own_copies(shell, tmp_path):
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")


def laid_out(type_, chance):
    """Return a type of the same values in a layout that another writer may note in its files."""

    def inner(field):
        return field.with_type(laid_out(field.type, chance))

    if pa.types.is_string(type_):
        plain = [pa.string(), pa.large_string(), pa.string_view()]
        return chance.choice([*plain, pa.dictionary(pa.int32(), pa.string())])
    if pa.types.is_binary(type_):
        return chance.choice([pa.binary(), pa.large_binary(), pa.binary_view()])
    if pa.types.is_struct(type_):
        return pa.struct([inner(field) for field in type_])
    if pa.types.is_map(type_):
        key = pa.field("key", chance.choice([pa.string(), pa.large_string(), pa.string_view()]), nullable=False)
        return pa.map_(key, inner(type_.item_field))
    if pa.types.is_list(type_):
        of = chance.choice([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
        return of(inner(type_.value_field))
    return type_


def as_text(value, chance):
    """A partition's value as Delta has it in the log."""
    if value is None:
        return chance.choice([None, ""])
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        is_instant = value.tzinfo is not None and chance.random() < 0.5
        return text.replace(" ", "T") + "Z" if is_instant else text
    if isinstance(value, bool):
        return str(value).lower()
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass
class Drawn:
    """A table, its rows, and the reasons to refuse it."""

    path: str
    columns: pa.Schema
    partitioned: list
    rows: list = field(default_factory=list)
    refused: list = field(default_factory=list)
    unfit: list = field(
        default_factory=list
    )  # numbers of files that are refused where they are read, and not by the lookup of a key: one for each of their reasons


def drawn(path, seed):
    """Make a table of a few random files, as of several clients."""
    chance = random.Random(seed)
    names = chance.sample(sorted(VALUES), chance.randrange(1, 6))
    columns = pa.schema([pa.field("id", pa.int64()), *[pa.field(name, VALUES[name][0]) for name in names]])
    PUTS.create(path, Definition(columns, {"delta.enableDeletionVectors": "true"}), name="t", info={})
    found = Snapshot.read(path)
    protocol = found.protocol
    configuration = dict(found.configuration)
    made = Drawn(path, columns, [name for name in names if name not in NESTED and chance.random() < 0.25])
    kind = chance.choices(["plain", "mapped", "feature"], [8, 1, 1])[0]
    if kind == "mapped":
        made.refused.append("columnMapping")
        configuration["delta.columnMapping.mode"] = chance.choice(["name", "id"])
    if kind == "feature":
        feature = chance.choice(["typeWidening", "variantType", "fromLater"])
        if feature != "variantType":  # no column has the type
            made.refused.append(feature)
        protocol = with_feature(protocol, feature)
    metadata = {**found.metadata, "partitionColumns": made.partitioned, "configuration": configuration}
    adds = [drawn_file(made, number, chance) for number in range(chance.randrange(1, 4))]
    PUTS.commit_version(path, 1, [{"metaData": metadata}, {"protocol": protocol}, *adds], {"operation": "CONVERT"})
    if kind == "plain" and chance.random() < 0.3:
        DeltaTable(path).create_checkpoint()
    return made


def drawn_file(made, number, chance):
    """Write a file of a table; return the action that adds it."""
    names = made.columns.names[1:]
    partition = {name: chance.choice(VALUES[name][1]) for name in made.partitioned}
    absent = {name for name in names if name not in partition and chance.random() < 0.1}
    rows = []
    for id_ in range(10 * number, 10 * number + chance.randrange(1, 5)):
        values = {name: None if name in absent else chance.choice(VALUES[name][1]) for name in names}
        rows.append({"id": id_, **values, **partition})
    made.rows += rows
    texts = {name: as_text(value, chance) for name, value in partition.items()}
    if texts.get("raw"):
        made.refused.append("bytes as a partition's value")
    if texts.get("at") and not texts["at"].endswith("Z"):
        made.refused.append("a time without a zone")
        made.unfit.append(number)
    stored = [column for column in made.columns if column.name not in partition and column.name not in absent]
    table = pa.Table.from_pylist(rows, pa.schema(stored))
    if "part" in table.column_names and chance.random() < 0.1:
        made.refused.append("differ by case alone")
        made.unfit.append(number)
        nested = pa.struct([("X", pa.int64()), ("y", pa.string())])
        values = [row["part"] and {"X": row["part"]["x"], "y": row["part"]["y"]} for row in rows]
        table = table.set_column(table.column_names.index("part"), "part", pa.array(values, nested))
    table = table.rename_columns([name.upper() if chance.random() < 0.15 else name for name in table.column_names])
    if chance.random() < 0.05:
        made.refused.append("differ by case alone")
        table = table.append_column(table.column_names[0].swapcase(), table.column(0))
    if chance.random() < 0.6:
        laid = [column.with_type(laid_out(column.type, chance)) for column in table.schema]
        table = pa.Table.from_pylist(table.to_pylist(), pa.schema(laid))
    path = Path(made.path, f"{number}.parquet")
    pq.write_table(table, path, use_deprecated_int96_timestamps=chance.random() < 0.5)
    add = {
        "path": path.name,
        "partitionValues": texts,
        "size": path.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
    }
    if chance.random() < 0.7:
        add["stats"] = json.dumps({"numRecords": len(rows)})
    return {"add": add}


def in_order(rows):
    return sorted(rows, key=lambda row: row["id"])


def read(made):
    return in_order(Snapshot.read(made.path).rows(made.columns).to_pylist())


def hold(path, seed):
    """Hold that a drawn table is read right, and then written right; or refused by name, where it must be."""
    made = drawn(path, seed)
    if made.refused:
        with pytest.raises(EbbtideError, match="|".join(made.refused)):
            read(made)
    else:
        assert read(made) == in_order(made.rows)
    *earlier, last = made.rows
    new = {**made.rows[0], "id": last["id"]}
    rows = pa.Table.from_pylist([new], made.columns)
    upserter = Upserter(made.path, made.columns, ["id"], PUTS)
    made.refused += [f"partition column {name}" for name in made.partitioned if name in UNFIT_PARTITIONS]
    reads_no_unfit = last["id"] // 10 not in made.unfit
    if len(made.refused) == len(made.unfit) and made.unfit and reads_no_unfit:
        upserter.apply(Upsert(rows.select(["id"]), rows), Transaction("app", 1, {"operation": "MERGE"}))
        return
    if made.refused:
        version = Log(path).versions()[-1]
        with pytest.raises(EbbtideError, match="|".join(made.refused)):
            upserter.apply(Upsert(rows.select(["id"]), rows), Transaction("app", 1, {"operation": "MERGE"}))
        assert Log(path).versions()[-1] == version
        return
    upserter.apply(Upsert(rows.select(["id"]), rows), Transaction("app", 1, {"operation": "MERGE"}))
    assert read(made) == in_order([*earlier, new])
    upserter.fold(InProcess(), everything=True)
    assert read(made) == in_order([*earlier, new])


@pytest.mark.parametrize("seed", range(30))
def test_drawn_table_is_read_and_written_right_or_refused(tmp_path, seed):
    hold(str(tmp_path / "t"), seed)


@pytest.mark.grid
@pytest.mark.parametrize("first", range(30, 1030, 50))
def test_many_drawn_tables_are_read_and_written_right_or_refused(tmp_path, first):
    for seed in range(first, first + 50):
        hold(str(tmp_path / str(seed)), seed)


@pytest.mark.parametrize("name", [name for name in VALUES if name not in {*NESTED, "raw", "at"}])
def test_partition_of_delta_rs_is_read_as_delta_rs_reads_it(tmp_path, name):
    path = str(tmp_path / "t")
    type_, values = VALUES[name]
    written = [value for value in values if value != Decimal("-1.50")]  # delta-rs does not read what it makes of that
    rows = [{"id": number, name: value} for number, value in enumerate(written)]
    columns = pa.schema([("id", pa.int64()), (name, type_)])
    write_deltalake(path, pa.Table.from_pylist(rows, columns), partition_by=[name])
    made = Drawn(path, columns, [name])
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    theirs = pa.table(query).select(columns.names).cast(columns)
    assert read(made) == in_order(theirs.to_pylist()) == rows


def put_file(path, table, columns, **more):
    """Make a table of one file that another client wrote."""
    PUTS.create(path, Definition(columns), name="t", info={})
    pq.write_table(table, Path(path, "0.parquet"), **more)
    size = Path(path, "0.parquet").stat().st_size
    add = {"path": "0.parquet", "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    PUTS.commit_version(path, 1, [{"add": add}], {"operation": "WRITE"})


def test_lists_that_another_writer_has_as_views_are_read_at_any_depth(tmp_path):
    path = str(tmp_path / "t")
    part = pa.struct([("tags", pa.list_(pa.string()))])
    columns = pa.schema([("id", pa.int64()), ("parts", pa.list_(part)), ("marks", pa.map_(pa.string(), part))])
    given = [
        {"id": 1, "parts": [{"tags": ["a", None]}, None, {"tags": []}], "marks": [("k", {"tags": ["b"]})]},
        {"id": 2, "parts": None, "marks": None},
        {"id": 3, "parts": [{"tags": None}, {"tags": ["c", "d"]}], "marks": [("k", None), ("l", {"tags": ["e"]})]},
    ]
    viewed = pa.struct([("tags", pa.large_list_view(pa.string_view()))])
    theirs = pa.schema([("id", pa.int64()), ("parts", pa.list_view(viewed)), ("marks", pa.map_(pa.string(), viewed))])
    put_file(path, pa.Table.from_pylist(given, theirs), columns)
    rows = Snapshot.read(path).rows(columns)
    assert rows.schema == columns
    assert rows.to_pylist() == given


def test_file_in_a_compression_that_arrow_lacks_is_a_fault_of_ours_and_no_damage(tmp_path):
    path = str(tmp_path / "t")
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    put_file(path, pa.table({"id": [1], "v": ["a"]}), columns)
    compressed_by_lzo(Path(path, "0.parquet"), "v")
    with pytest.raises(UnsupportedFileError, match=r"a fault of Ebbtide.*LZO.*'ebbtide repair' replaces"):
        Snapshot.read(path).rows(columns)


def test_key_in_a_file_with_names_in_another_case_is_found(tmp_path):
    path = str(tmp_path / "t")
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    put_file(path, pa.table({"ID": [3, 4], "V": ["b", "b"]}), columns)
    made = Drawn(path, columns, [])
    rows = pa.table({"id": [3], "v": ["new"]}, columns)
    upserter = Upserter(path, columns, ["id"], PUTS)
    upserter.apply(Upsert(rows.select(["id"]), rows), Transaction("app", 1, {"operation": "MERGE"}))
    assert read(made) == [{"id": 3, "v": "new"}, {"id": 4, "v": "b"}]
    upserter.fold(InProcess(), everything=True)
    assert read(made) == [{"id": 3, "v": "new"}, {"id": 4, "v": "b"}]


def test_value_that_the_table_cannot_hold_is_refused_with_file_and_column(tmp_path):
    path = str(tmp_path / "t")
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    nanoseconds = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns", "UTC"))})
    put_file(path, nanoseconds, columns, version="2.6")
    with pytest.raises(TableMismatchError, match=r"0\.parquet' does not fit .*column 'at'.*Allowed: timestamp"):
        read(Drawn(path, columns, []))


@pytest.mark.parametrize("text", ["2024-02-30", "tomorrow", "2024-02-29 12:00:00"])
def test_partition_value_of_another_type_is_refused(tmp_path, text):
    path = str(tmp_path / "t")
    columns = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    put_file(path, pa.table({"id": [1]}), columns)
    [file] = Snapshot.read(path).files.values()
    with pytest.raises(TableMismatchError, match="column 'day'"):
        DataFile({**file.add, "partitionValues": {"day": text}}).read(path, columns)


def test_file_of_which_no_column_is_asked_for_has_as_many_nulls_as_rows(tmp_path):
    path = str(tmp_path / "t")
    columns = pa.schema([("later", pa.string())])
    put_file(path, pa.table({"id": [1, 2]}), columns)
    assert Snapshot.read(path).rows(columns)["later"].to_pylist() == [None, None]
