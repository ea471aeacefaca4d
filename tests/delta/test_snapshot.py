"""The log as delta-rs and we read it, and commits that only one can make."""

import json
import threading
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from ebbtide.delta import Commit, DataFile, Definition, Log, Snapshot, Transaction, Writer
from ebbtide.delta import _vectors as vectors
from ebbtide.delta._commit import transaction_mark
from ebbtide.delta._features import with_feature
from ebbtide.delta._statistics import statistics
from ebbtide.errors import (
    DamagedFileError,
    DeltaFeatureError,
    DeltaLogError,
    LeaseLostError,
    StoredFormatError,
    VersionTakenError,
)

LAST_CHARACTER = "\U0010ffff"


COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("at", pa.timestamp("us"))])
PUTS = Writer()


def rows(*ids):
    return pa.table({"id": list(ids), "v": [f"v{i}" for i in ids], "at": [i * 1_000_003 for i in ids]}, COLUMNS)


def made(tmp_path, *batches, **properties):
    """A table with a file for each batch, each in a commit of its own."""
    table = str(tmp_path / "t")
    PUTS.create(table, Definition(COLUMNS, properties), name="t", info={})
    for number, batch in enumerate(batches, 1):
        action = DataFile.write(table, f"part-{number}.parquet", batch, bounded=COLUMNS.names)
        PUTS.commit_version(table, number, [action, transaction_mark("app", number)], {"operation": "WRITE"})
    return table


def deleted(table, name, *positions):
    """Commit that rows of a file no longer count."""
    snapshot = Snapshot.read(table)
    [file] = [file for file in snapshot.files.values() if file.path == name]
    known = file.deleted_rows(table)
    [descriptor] = vectors.write(table, [known | BitMap64(positions)])
    actions = [file.removed(0, data_change=True), file.with_vector(descriptor, data_change=True)]
    PUTS.commit_version(table, snapshot.version + 1, actions, {"operation": "DELETE"})


def ids(table):
    return sorted(Snapshot.read(table).rows(COLUMNS)["id"].to_pylist())


def theirs(table):
    """The ids that delta-rs reads."""
    from deltalake import QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(table)).execute("SELECT id FROM t").read_all()
    return sorted(pa.table(found)["id"].to_pylist())


def test_statistics_that_are_cut_off_are_named():
    with pytest.raises(DeltaLogError, match=r"'a\.parquet' that are not JSON"):
        _ = DataFile({"path": "a.parquet", "size": 1, "stats": '{"numRecords": 3, "min'}).rows


def test_no_table_is_none(tmp_path):
    assert Snapshot.read(str(tmp_path / "t")) is None


def test_own_table_is_read_by_delta_rs(tmp_path):
    table = made(tmp_path, rows(1, 2), rows(3))
    found = Snapshot.read(table)
    assert (found.version, len(found.files), found.transactions) == (2, 2, {"app": 2})
    assert ids(table) == theirs(table) == [1, 2, 3]
    assert DeltaTable(table).transaction_version("app") == 2


def test_rows_of_a_vector_do_not_count_for_any_reader(tmp_path):
    table = made(tmp_path, rows(1, 2, 3, 4), rows(5))
    deleted(table, "part-1.parquet", 0, 2)
    deleted(table, "part-1.parquet", 3)
    assert ids(table) == theirs(table) == [2, 5]
    [file] = [file for file in Snapshot.read(table).files.values() if file.vector]
    assert (file.rows, file.live_rows, file.stats["tightBounds"]) == (4, 1, False)


def test_table_of_delta_rs_is_read_with_its_checkpoint(tmp_path):
    table = str(tmp_path / "t")
    for number in range(3):
        write_deltalake(table, rows(number, number + 10), mode="append")
    DeltaTable(table).create_checkpoint()
    write_deltalake(table, rows(7), mode="append")
    DeltaTable(table).delete("id = 1")
    assert ids(table) == theirs(table) == [0, 2, 7, 10, 11, 12]


def test_checkpoint_with_vectors_and_transactions_is_read_without_older_commits(tmp_path):
    table = made(tmp_path, rows(1, 2, 3), rows(4))
    deleted(table, "part-1.parquet", 1)
    before = Snapshot.read(table)
    DeltaTable(table).create_checkpoint()
    for version in range(3):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    after = Snapshot.read(table)
    assert (ids(table), after.transactions, after.version) == ([1, 3, 4], {"app": 2}, before.version)
    assert after.files.keys() == before.files.keys()
    deleted(table, "part-1.parquet", 0)
    assert ids(table) == theirs(table) == [3, 4]


def torn(part):
    part.write_bytes(part.read_bytes()[:-9])


def test_advanced_is_what_a_whole_replay_gives(tmp_path):
    table = made(tmp_path, rows(1, 2))
    start = Snapshot.read(table)
    assert start.advanced() == start
    deleted(table, "part-1.parquet", 1)
    PUTS.commit_version(table, 3, [transaction_mark("other", 5)], {"operation": "NOTHING"})
    assert start.advanced() == Snapshot.read(table)
    assert start.advanced().version == 3


def test_of_many_who_commit_a_version_one_does(tmp_path):
    table = made(tmp_path)
    won, barrier = [], threading.Barrier(8)

    def take(number):
        barrier.wait()
        try:
            PUTS.commit_version(table, 1, [transaction_mark("app", number)], {"operation": "TRY"})
        except VersionTakenError:
            return
        won.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Snapshot.read(table).transactions == {"app": won[0]}
    assert len(won) == 1
    assert not [path for path in (tmp_path / "t" / "_delta_log").iterdir() if path.name.endswith(".tmp")]


def test_statistics_bound_what_is_in_the_file(tmp_path):
    long = "x" * 40
    table = pa.table({"id": [3, 1], "v": ["a", long], "at": [1_500, 2_999]}, COLUMNS)
    stats = json.loads(DataFile.write(str(tmp_path), "f.parquet", table, bounded=COLUMNS.names)["add"]["stats"])
    assert stats["minValues"] == {"id": 1, "v": "a", "at": "1970-01-01T00:00:00.001"}
    assert stats["maxValues"] == {"id": 3, "v": long[:32] + LAST_CHARACTER, "at": "1970-01-01T00:00:00.003"}
    assert (stats["numRecords"], stats["nullCount"]) == (2, {"id": 0, "v": 0, "at": 0})


@pytest.mark.parametrize(("length", "end"), [(31, ""), (32, ""), (33, LAST_CHARACTER)])
def test_greatest_text_is_kept_whole_or_cut_behind_its_beginning(length, end):
    text = "\U0001f6a2" * length
    stats = json.loads(statistics(pa.table({"v": ["a", text]}), ["v"]))
    assert stats["maxValues"] == {"v": text[:32] + end}
    stats = json.loads(statistics(pa.table({"v": [text]}), ["v"]))
    assert stats["minValues"] == {"v": text[:32]}


@pytest.mark.parametrize("values", [[1.5, float("nan")], [Decimal(2**53 + 2)], [True], [b"a"]], ids=str)
def test_values_that_readers_compare_in_different_ways_get_no_bounds(values):
    stats = json.loads(statistics(pa.table({"v": [*values, None]}), ["v"]))
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({}, {}, {"v": 1})


@pytest.mark.parametrize(
    ("value", "least", "greatest"),
    [("12.50", 12, 13), ("-12.50", -13, -12), ("7.00", 7, 7), ("99.50", 99, None), ("-99.50", None, -99)],
)
def test_decimals_are_bounded_by_whole_numbers_of_their_type(value, least, greatest):
    rows = pa.table({"v": pa.array([Decimal(value)], pa.decimal128(4, 2))})
    stats = json.loads(statistics(rows, ["v"]))
    assert (stats["minValues"].get("v"), stats["maxValues"].get("v")) == (least, greatest)


def test_file_with_a_vector_says_that_its_bounds_are_wide_and_counts_its_rows(tmp_path):
    """A reader may take tight bounds for the least and the greatest row, and need not look at the file."""
    table = made(tmp_path, rows(1, 2, 3))
    deleted(table, "part-1.parquet", 2)
    found = Snapshot.read(table)
    [file] = found.files.values()
    assert (file.stats["tightBounds"], file.greatest("id"), file.live_rows, found.live_rows) == (False, 3, 2, 2)


def test_rows_of_a_table_are_not_counted_where_a_file_notes_none(tmp_path):
    found = Snapshot.read(made(tmp_path, rows(1, 2), rows(3)))
    assert found.live_rows == 3
    file = {"path": "other.parquet", "partitionValues": {}, "size": 1, "dataChange": True}
    assert found.after([{"add": file}]).live_rows is None


def test_version_is_advanced_so_far_and_no_further(tmp_path):
    first = Snapshot.read(made(tmp_path, rows(1), rows(2), rows(3)), 1)
    assert [first.advanced(until).version for until in (1, 2, None)] == [1, 2, 3]
    assert first.advanced(2).files.keys() == Snapshot.read(first.table, 2).files.keys()


@pytest.mark.parametrize("type_", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_year_that_python_has_not_gets_no_bounds(tmp_path, type_, value):
    """Spark's times reach from the year -290308 to 294247."""
    at = value if type_ == pa.date32() else value * 4_000_000_000
    integers = pa.array([at], pa.int32() if type_ == pa.date32() else pa.int64())
    table = pa.table({"at": integers.view(type_)})
    stats = json.loads(DataFile.write(str(tmp_path), "f.parquet", table, bounded=["at"])["add"]["stats"])
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({}, {}, {"at": 0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}}, "read.*typeWidening"),
        ({"protocol": {"minReaderVersion": 4, "minWriterVersion": 7}}, "reader version 4"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "columnMapping"),
    ],
)  # fmt: skip
def test_table_with_a_feature_that_is_not_known_is_not_read(tmp_path, change, message):
    table = made(tmp_path)
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line and "protocol" in change:
            line["protocol"] = change["protocol"]
        if "metaData" in line and "configuration" in change:
            line["metaData"]["configuration"] = change["configuration"]
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(DeltaFeatureError, match=message):
        Snapshot.read(table)


def test_a_transaction_is_committed_once_and_never_after_a_later_one(tmp_path):
    table = made(tmp_path)

    def commit_step(number):
        return PUTS.commit_once(
            Snapshot.read(table), lambda _: [], Transaction("p/sink", number, {"operation": "WRITE"})
        )

    assert commit_step(5).version == 1
    assert commit_step(5) is None
    with pytest.raises(LeaseLostError, match=r"Got: step 4, after step 5"):
        commit_step(4)
    assert Snapshot.read(table).version == 1


def test_domain_metadata_counts_until_it_is_removed_and_outlives_commits(tmp_path):
    table = made(tmp_path)
    protocol = with_feature(Snapshot.read(table).protocol, "domainMetadata", of_readers=False)
    assert "domainMetadata" not in protocol["readerFeatures"]

    def domain(name, text, removed=False):
        return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}

    PUTS.commit_version(table, 1, [{"protocol": protocol}, domain("a", "1"), domain("b", "1")], {"operation": "WRITE"})
    PUTS.commit_version(table, 2, [domain("a", "2"), domain("b", "", True)], {"operation": "WRITE"})
    assert Snapshot.read(table).domains == {"a": "2"}
    assert Snapshot.read(table, 1).advanced().domains == {"a": "2"}
    DeltaTable(table).create_checkpoint()
    for version in range(2):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    assert Snapshot.read(table).domains == {"a": "2"}


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../other/x.parquet", "a/../../x", "%2e%2e/x", "file:/etc/passwd", "file:///etc/passwd", "http://host/x", "s3://b/x", "{table}x/part"],
)  # fmt: skip
def test_file_that_is_not_in_the_tables_folder_is_refused_as_data_vector_and_sidecar(tmp_path, path):
    table = made(tmp_path, rows(1))
    path = path.format(table=table)
    with pytest.raises(DeltaLogError, match="names a file that is not in the table's folder"):
        Log(table).location_of(path)
    with pytest.raises(DeltaLogError, match="not in the table's folder"):
        vectors.read(table, {"storageType": "p", "pathOrInlineDv": path, "sizeInBytes": 1, "offset": 1})
    add = {"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True}}
    with pytest.raises(DeltaLogError, match="not in the table's folder"):
        PUTS.commit_version(table, 2, [add], {})
    Path(Log(table).commit_file(2)).write_text(json.dumps(add))  # as another client may
    with pytest.raises(DeltaLogError, match="not in the table's folder"):
        Snapshot.read(table).rows(COLUMNS)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_file_of_the_table_by_its_whole_path_is_read(tmp_path, form):
    table = made(tmp_path, rows(1))
    whole = form.format(f"{table}/part-1.parquet")
    assert Log(table).location_of(whole) == Log(table).location_of("part-1.parquet") == f"{table}/part-1.parquet"


def test_commit_of_ours_with_a_changed_byte_is_refused(tmp_path):
    table = made(tmp_path, rows(1))
    commit_path = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    commit_path.write_bytes(commit_path.read_bytes().replace(b"part-1", b"part-2"))
    with pytest.raises(DeltaLogError, match="another checksum"):
        Snapshot.read(table)


@pytest.mark.parametrize("older", [None, 1])
def test_torn_checkpoint_without_the_commits_before_it_is_neither_no_table_nor_an_older_one(tmp_path, older):
    table = made(tmp_path, rows(1), rows(2))
    log = tmp_path / "t" / "_delta_log"
    if older is not None:
        DeltaTable(table, version=older).create_checkpoint()
    DeltaTable(table).create_checkpoint()
    for version in range(3):
        Path(Log(table).commit_file(version)).unlink()
    assert ids(table) == [1, 2]
    newest = log / f"{2:020d}.checkpoint.parquet"
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.raises(DamagedFileError):
        Snapshot.read(table)


@pytest.mark.parametrize("content", ["", "\n \n", "[1]\n", '{"add"'])
def test_commit_without_a_whole_action_is_refused(tmp_path, content):
    """As a power cut leaves it, or a disk that is full."""
    table = made(tmp_path, rows(1))
    Path(Log(table).commit_file(1)).write_text(content)
    with pytest.raises(DeltaLogError, match="torn or damaged"):
        Snapshot.read(table)


def test_facts_of_a_newer_release_are_refused_and_other_metadata_is_not_ours():
    newer = {"commitInfo": {"userMetadata": json.dumps({Commit.FORMAT: 10**6})}}
    with pytest.raises(StoredFormatError):
        Commit([newer]).facts()
    for text in ("no JSON", "1", '{"of": "others"}'):
        assert Commit([{"commitInfo": {"userMetadata": text}}]).facts() is None


def test_column_is_known_to_be_null_only_where_rows_and_nulls_are_counted():
    for stats, is_null in [
        ({"numRecords": 2, "nullCount": {"v": 2}}, True),
        ({"numRecords": 2, "nullCount": {"v": 1}}, False),
        ({"numRecords": 2}, False),
        ({}, False),
        ({"nullCount": {}}, False),
    ]:
        assert DataFile({"path": "x", "stats": json.dumps(stats)}).is_all_null("v") is is_null, stats


@pytest.mark.parametrize(
    ("text", "least", "greatest"),
    [
        ("2024-01-01T00:00:00.000500+05:45", "2023-12-31T18:15:00.000Z", "2023-12-31T18:15:00.001Z"),
        ("9999-12-31T23:59:59.998500+00:00", "9999-12-31T23:59:59.998Z", "9999-12-31T23:59:59.999Z"),
        ("9999-12-31T23:59:59.999500+00:00", "9999-12-31T23:59:59.999Z", None),
    ],
)
def test_bounds_of_times_are_in_utc_and_wide(text, least, greatest):
    time = datetime.fromisoformat(text)
    rows = pa.table({"at": pa.array([time], pa.timestamp("us", "Asia/Kathmandu" if "05:45" in text else "UTC"))})
    stats = json.loads(statistics(rows, ["at"]))
    assert (stats["minValues"].get("at"), stats["maxValues"].get("at")) == (least, greatest)
