"""Encodings of Parquet files: every reader gets the values that were written, of all types; values that repeat have a dictionary."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from ebbtide.delta import DataFile, Definition, Writer
from ebbtide.storage import ParquetFile

AT = datetime(2026, 1, 2, tzinfo=UTC)
DAY = date(2026, 1, 2)
LEAST, GREATEST = -(2**63), 2**63 - 1
MADE = {
    "byte": (pa.int8(), lambda n: n % 256 - 128),
    "short": (pa.int16(), lambda n: n % 65_536 - 32_768),
    "int": (pa.int32(), lambda n: n * 7_919 % 2**32 - 2**31),
    "long": (pa.int64(), lambda n: (LEAST + n, GREATEST - n, n, -n)[n % 4]),
    "date": (pa.date32(), lambda n: DAY - timedelta(days=n % 300_000)),
    "at": (pa.timestamp("us", tz="UTC"), lambda n: AT + timedelta(microseconds=n * n)),
    "local": (pa.timestamp("us"), lambda n: AT.replace(tzinfo=None) - timedelta(seconds=n)),
    "text": (pa.string(), lambda n: "é" * (n % 5) + f"{n:x}"),
    "raw": (pa.binary(), lambda n: n.to_bytes(n % 9 + 4, "big")),
    "decimal": (pa.decimal128(20, 2), lambda n: Decimal(n) / 100),
    "double": (pa.float64(), lambda n: n / 3),
    "flag": (pa.bool_(), lambda n: n % 3 == 0),
    "a.b": (pa.int64(), lambda n: n),
    "struct": (
        pa.struct({"x": pa.int64(), "y": pa.struct({"z": pa.string()})}),
        lambda n: {"x": n, "y": {"z": str(n)}},
    ),
    "list": (pa.list_(pa.struct({"x": pa.int64()})), lambda n: [{"x": n}] * (n % 3)),
    "map": (pa.map_(pa.string(), pa.int64()), lambda n: [(str(n), n)]),
}
DIFFERENCES, LENGTHS, DICTIONARY = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "RLE_DICTIONARY"


def table_of(chance, n_rows, n_values, nulls, names=tuple(MADE)):
    """Rows of all types: so many values in any order, some of them null."""
    numbers = [chance.randrange(n_values) for _ in range(n_rows)]
    return pa.table(
        {
            name: pa.array([None if chance.random() < nulls else MADE[name][1](n) for n in numbers], MADE[name][0])
            for name in names
        }
    )


def encodings_of(path):
    """The encodings of each column of a file."""
    group = pq.read_metadata(path).row_group(0)
    return {group.column(i).path_in_schema: set(group.column(i).encodings) for i in range(group.num_columns)}


@pytest.mark.parametrize("seed", range(6))
def test_file_has_the_rows_for_arrow_and_duckdb_and_any_share_that_repeats(tmp_path, seed):
    chance = random.Random(seed)
    n_rows = chance.choice([1, 4_095, 4_096, 6_000])
    rows = table_of(chance, n_rows, chance.choice([1, 50, 10**6]), chance.choice([0, 0.3, 1]))
    file = ParquetFile(str(tmp_path / "f.parquet"))
    file.write(rows, row_group_size=chance.choice([1_500, 10_000]))
    assert file.read().equals(rows)
    by_duckdb = duckdb.sql(f"SELECT * FROM '{file.location}'").to_arrow_table()
    assert by_duckdb.cast(rows.schema).equals(rows)


@pytest.mark.parametrize("nulls", [0, 0.3])
def test_values_that_hardly_repeat_have_no_dictionary(tmp_path, nulls):
    names = tuple(name for name in MADE if name not in ("byte", "short"))
    path = str(tmp_path / "f.parquet")
    ParquetFile(path).write(table_of(random.Random(1), 5_000, 10**6, nulls, names), row_group_size=10_000)
    found = encodings_of(path)
    for name in ("int", "long", "date", "at", "local", "a.b", "struct.x"):
        assert DIFFERENCES in found[name], name
    for name in ("text", "raw", "struct.y.z"):
        assert LENGTHS in found[name], name
    for name in ("decimal", "double", "list.list.element.x", "map.key_value.key"):
        assert DICTIONARY in found[name], name


def test_values_that_repeat_and_those_of_few_rows_have_one(tmp_path):
    path = str(tmp_path / "f.parquet")
    for n_rows, n_values in ((5_000, 1_000), (4_095, 10**6)):
        ParquetFile(path).write(table_of(random.Random(1), n_rows, n_values, 0, ("int", "text")), row_group_size=10_000)
        assert all(DICTIONARY in each for each in encodings_of(path).values())


def test_columns_that_share_a_path_are_written_as_they_are(tmp_path):
    rows = pa.table({"a.b": pa.array(range(5_000)), "a": [{"b": str(number)} for number in range(5_000)]})
    file = ParquetFile(str(tmp_path / "f.parquet"))
    file.write(rows, row_group_size=10_000)
    assert file.read().equals(rows)


def test_delta_rs_reads_them(tmp_path):
    names = tuple(name for name in MADE if name not in ("a.b", "map"))
    rows = table_of(random.Random(1), 5_000, 10**6, 0.1, names)
    table = str(tmp_path)
    Writer().create(table, Definition(rows.schema), name="t", info={})
    Writer().commit_version(
        table, 1, [DataFile.write(table, "part-1.parquet", rows, bounded=())], {"operation": "WRITE"}
    )
    found = QueryBuilder().register("t", DeltaTable(table)).execute("SELECT * FROM t").read_all()
    assert pa.table(found).select(rows.column_names).cast(rows.schema).equals(rows)


@pytest.mark.spark
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_them(spark, tmp_path, vectorized):
    names = tuple(name for name in MADE if name != "map")
    rows = table_of(random.Random(1), 6_000, 10**6, 0.1, names)
    ParquetFile(str(tmp_path / "ours.parquet")).write(rows, row_group_size=4_000)
    pq.write_table(rows, tmp_path / "plain.parquet", use_dictionary=False, coerce_timestamps="us", store_schema=False)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        ours, plain = (spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("ours", "plain"))
        assert ours.count() == 6_000
        assert ours.exceptAll(plain).count() == plain.exceptAll(ours).count() == 0
        wide = spark.read.schema("int BIGINT, text STRING").parquet(str(tmp_path / "ours.parquet"))
        assert wide.selectExpr("sum(int)").first()[0] == pc.sum(rows["int"]).as_py()
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
