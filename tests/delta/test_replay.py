"""Checkpoints of several parts, by several writers, with sidecars: what is whole counts, what is torn does not."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ebbtide.delta import Definition, Log, Snapshot, Writer
from ebbtide.delta._commit import transaction_mark
from ebbtide.errors import DamagedFileError, DeltaFeatureError, DeltaLogError, TableMismatchError

PUTS = Writer()


def put(table, number):
    """Commit a file of this number."""
    Path(table, f"{number}.parquet").write_bytes(b"x")
    PUTS.commit_version(table, number, [add(number)], {"operation": "WRITE"})


def add(number):
    of_file = {"partitionValues": {}, "size": 1, "modificationTime": number, "dataChange": True}
    return {"add": {"path": f"{number}.parquet", **of_file}}


@pytest.fixture
def table(tmp_path):
    """A table with files 1 to 4, each added by a commit of its own."""
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(pa.schema([("a", pa.int64())])), name="t", info={})
    for number in range(1, 5):
        put(path, number)
    return path


def numbers(table, version=None):
    return sorted(int(path.partition(".")[0]) for path, _ in Snapshot.read(table, version).files)


def checkpoint(table, version=None):
    """Write a checkpoint by delta-rs; return its rows, and its path."""
    DeltaTable(table, version=version).create_checkpoint()
    version = Snapshot.read(table).version if version is None else version
    path = Path(table, Log.FOLDER, f"{version:020d}.checkpoint.parquet")
    return pq.ParquetFile(path).read(), path


def parted(table, *numbers_of_parts):
    """Write a checkpoint in so many parts, by a writer for each number; return the paths of each writer's."""
    rows, whole = checkpoint(table)
    whole.unlink()
    Path(table, Log.FOLDER, "_last_checkpoint").unlink()
    writers = []
    for n_parts in numbers_of_parts:
        paths = []
        for part in range(n_parts):
            path = whole.with_name(whole.name.replace("parquet", f"{part + 1:010d}.{n_parts:010d}.parquet"))
            pq.write_table(rows.take(list(range(part, len(rows), n_parts))), path)
            paths.append(path)
        writers.append(paths)
    return writers


def forget(table, until):
    for version in range(until + 1):
        Path(Log(table).commit_file(version)).unlink()


def gone(part):
    part.unlink()


def torn(part):
    part.write_bytes(part.read_bytes()[:-9])


@pytest.mark.parametrize("n_parts", [2, 3])
def test_checkpoint_in_parts_is_read_without_older_commits(table, n_parts):
    parted(table, n_parts)
    put(table, 5)
    forget(table, 4)
    assert numbers(table) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("harm", [gone, torn])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_checkpoint_of_which_a_part_is_torn_or_gone_does_not_count(table, number, harm):
    [paths] = parted(table, 3)
    harm(paths[number])
    assert numbers(table) == [1, 2, 3, 4], "the commits have it all"
    assert Log(table).has(4)
    put(table, 5)
    forget(table, 3)
    with pytest.raises((DeltaLogError, DamagedFileError), match=r"_delta_log|is not whole"):
        Snapshot.read(table)


@pytest.mark.parametrize("harm", [gone, torn])
def test_older_checkpoint_is_read_where_a_part_of_the_newest_is_torn_or_gone(table, harm):
    checkpoint(table, 2)
    [[part, _]] = parted(table, 2)
    forget(table, 2)
    harm(part)
    assert numbers(table) == [1, 2, 3, 4]


def test_parts_of_two_writers_are_not_put_together(table):
    two, three = parted(table, 2, 3)
    two[0].unlink()
    three[2].unlink()
    forget(table, 3)
    with pytest.raises(DeltaLogError, match="is not whole"):
        Snapshot.read(table)


def test_newest_of_several_checkpoints_counts(table):
    checkpoint(table, 1)
    checkpoint(table, 3)
    forget(table, 3)
    assert numbers(table) == [1, 2, 3, 4]


def test_commit_that_a_checkpoint_holds_is_not_applied_again(table):
    found = Snapshot.read(table)
    removes = [file.removed(0, data_change=True) for file in found.files.values()]
    PUTS.commit_version(table, 5, removes[:1], {"operation": "DELETE"})
    checkpoint(table, 4)
    forget(table, 3)
    assert numbers(table) == [2, 3, 4]
    assert numbers(table, 4) == [1, 2, 3, 4]


def test_version_that_only_an_older_checkpoint_precedes_is_not_there(table):
    checkpoint(table, 2)
    forget(table, 4)
    assert [Log(table).has(version) for version in (1, 2, 3)] == [False, True, False]
    with pytest.raises(TableMismatchError, match="no version 3"):
        PUTS.commit_version(table, 4, [], {"operation": "WRITE"})


def test_checkpoint_with_sidecars_is_read_with_them(table):
    rows, whole = checkpoint(table)
    whole.unlink()
    is_add = [row["add"] is not None for row in rows.select(["add"]).to_pylist()]
    folder = Path(table, Log.FOLDER, "_sidecars")
    folder.mkdir()
    pq.write_table(rows.filter(pa.array(is_add)), folder / "a.parquet")
    found = Snapshot.read(table)
    lines = [{"protocol": found.protocol}, {"metaData": found.metadata}, {"sidecar": {"path": "a.parquet"}}]
    main = whole.with_name(whole.name.replace("parquet", f"{uuid.uuid4()}.json"))
    main.write_text("".join(json.dumps(line) + "\n" for line in lines))
    forget(table, 4)
    assert numbers(table) == [1, 2, 3, 4]


def test_gap_of_one_commit_is_refused(table):
    for version in (1, 3):
        lost = Path(Log(table).commit_file(version))
        content = lost.read_bytes()
        lost.unlink()
        with pytest.raises(DeltaLogError, match="1 missing"):
            Snapshot.read(table)
        lost.write_bytes(content)


def test_features_that_are_not_read_are_refused_where_a_snapshot_meets_them(table):
    start = Snapshot.read(table)
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    actions = [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]
    PUTS.commit_version(table, 5, [*actions, transaction_mark("a", 1)], {"operation": "UPGRADE"})
    with pytest.raises(DeltaFeatureError, match="typeWidening"):
        start.advanced()
    assert Snapshot.read(table, any_features=True).transactions == {"a": 1}
