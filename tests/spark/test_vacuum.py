"""What grows with time has an end: files that no version names, commits, turns of the lease."""

import os

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, write
from deltalake import DeltaTable
from operating import operation_named

from ebbtide import run
from ebbtide.amounts import amount
from ebbtide.delta import Log, Snapshot, Writer
from ebbtide.operations import Context, maintain
from ebbtide.sessions import executor_of


def keep_nothing_old(table):
    """Have VACUUM and the log's cleanup keep nothing that the newest version does not need."""
    found = Snapshot.read(table)
    retentions = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
    properties = found.configuration | dict.fromkeys(retentions, "interval 0 hours")
    metadata = {"metaData": {**found.metadata, "configuration": properties}}
    Writer().commit(found, [metadata], {"operation": "SET TBLPROPERTIES"})


def rows(home, spec):
    """The rows of the sink, by key."""
    found = Snapshot.read(str(home / "sink"))
    read = found.rows(spec.sink_table.columns)
    return sorted(read.to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize(
    "is_planned",
    [False, pytest.param(True, marks=pytest.mark.grid)],  # without Spark: tests/operations/test_vacuum.py
)
def test_vacuum_deletes_what_no_version_needs_and_the_pipeline_goes_on(spark, tmp_path, is_planned):
    root, source = str(tmp_path / "root"), tmp_path / "in"
    spec = plain_spec(source, order={"sequence": ["seq"]})
    write(source, [change("+I", n, "a", n) for n in range(9)], [change("+U", n, "b", 9 + n) for n in range(5)])
    run(LOCAL, spec, root)
    maintain(LOCAL, spec, root, "compaction")
    home = tmp_path / "root" / spec.name
    (home / "sink" / "part-of-a-step-that-died.parquet").write_bytes(b"x")
    (home / "staged" / "9").mkdir(parents=True)
    (home / "staged" / "9" / "left.arrow").write_bytes(b"x")
    names = (
        ".spec.json.9.tmp",
        f"sink/_delta_log/.{7:020d}.json.9.tmp",
        "checkpoint/offsets/2",  # of an earlier release
    )
    unfinished = [home / name for name in names]
    (home / "checkpoint" / "offsets").mkdir(parents=True)
    for file in unfinished:
        file.touch()
    for file in home.rglob("*"):
        os.utime(file, (10**9, 10**9))
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")  # tasks that list a table
    for name in ("state", "sink"):
        keep_nothing_old(str(home / name))
    before = rows(home, spec)
    on_disk = sorted(path for path in home.rglob("*") if path.suffix in {".parquet", ".bin"})
    sizes = {path: path.stat().st_size for path in on_disk}
    planned = planned_and_bounded(spark, spec, root, on_disk) if is_planned else None
    report = maintain(spark, spec, root, "vacuum")
    assert report.step is None
    gone = gone_of(on_disk)
    assert gone
    if planned is not None:
        assert {each["path"].rpartition("/")[2] for each in planned["files"]} == {path.name for path in gone}
        assert planned["files_removed"] == len(gone)
        assert planned["bytes_removed"] == sum(sizes[path] for path in gone)
    assert report["stored_files_after"] < report["stored_files_before"]
    assert report["stored_bytes_after"] < report["stored_bytes_before"]
    assert "on disk" in report.text()
    assert not (home / "staged").exists()
    assert not any(file.exists() for file in unfinished)
    for name in ("state", "sink"):
        named = {uri.rpartition("/")[2] for uri in DeltaTable(str(home / name)).file_uris()}
        assert {path.name for path in (home / name).glob("*.parquet")} == named
        assert len(Log(str(home / name)).versions()) <= 2
    assert rows(home, spec) == before
    write(source, [change("+U", 1, "c", 99)], first=2)
    assert [step.step for step in run(LOCAL, spec, root).steps] == [4]
    assert {row["v"] for row in sink(spark, tmp_path / "root", spec) if row["id"] == 1} == {"c"}, "Spark reads it"
    assert maintain(LOCAL, spec, root, "cleanup").text().endswith("found nothing to do; 9 entries.")


def gone_of(on_disk):
    """The data files and vectors that are not there any more."""
    return [path for path in on_disk if not path.exists() and "_delta_log" not in path.parts]


def planned_and_bounded(spark, spec, root, on_disk):
    """Plan a vacuum, and make one of two files; return the plan."""
    vacuum = operation_named("vacuum")
    planned = vacuum.act("dry_run", Context(spec, root, executor_of(spark)), vacuum.Params())
    assert all(path.exists() for path in on_disk), "a dry run deletes nothing"
    assert sum(place["files"] for place in planned["places"]) == planned["files_removed"]
    bounded = vacuum.act("apply", Context(spec, root, executor_of(spark)), vacuum.Params(max_files=2))
    assert len(gone_of(on_disk)) == 2
    assert bounded["files_left"] == planned["files_removed"] - 2 > 0
    assert bounded.text().endswith(f"{amount(bounded['files_left'], 'file')} left, at least: the next run continues.")
    return planned
