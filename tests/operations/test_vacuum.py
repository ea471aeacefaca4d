"""Vacuum: which files of a table go, and which stay, by what the log names and by their ages."""

import os

import pytest
from local.local_pipeline import LATER, up
from local.local_run import SPARK
from operating import operation_named

from ebbtide.delta import Snapshot, Writer
from ebbtide.errors import ConfigError
from ebbtide.operations import Context, maintain

DAY_S = 86_400


def unnamed(pipeline):
    return sorted(path.relative_to(pipeline.home).as_posix() for path in pipeline.home.glob("*/**/unnamed-*"))


def sink_of(pipeline):
    return Snapshot.read(str(pipeline.home / "sink"))


def age(pipeline, days):
    """Have all data files be so old."""
    for path in pipeline.home.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            written = path.stat().st_mtime - days * DAY_S
            os.utime(path, (written, written))


def keep_removed(pipeline, retention):
    """Set for how long the sink keeps files that a commit has removed."""
    found = sink_of(pipeline)
    configuration = found.configuration | {"delta.deletedFileRetentionDuration": retention}
    metadata = {"metaData": {**found.metadata, "configuration": configuration}}
    Writer().commit(found, [metadata], {"operation": "SET TBLPROPERTIES"})


def vacuum(pipeline):
    return maintain(SPARK, pipeline.spec, pipeline.root, "vacuum")


def test_vacuum_of_so_many_files_deletes_them_and_says_what_is_left(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    (pipeline.home / "sink" / "_change_data").mkdir(exist_ok=True)
    names = ("state/unnamed-1.parquet", "sink/unnamed-2.bin", "sink/_change_data/unnamed-3.parquet")
    for name in names:
        (pipeline.home / name).write_bytes(b"x")
    age(pipeline, days=8)
    operation = operation_named("vacuum")
    ctx = Context(pipeline.spec, pipeline.root, SPARK, clock=lambda: LATER)
    planned = operation.act("dry_run", ctx, operation.Params())
    assert {each["path"].rpartition("/")[2] for each in planned["files"]} == {name.rpartition("/")[2] for name in names}
    assert (planned["files_removed"], planned["bytes_removed"]) == (3, 3)
    assert len(unnamed(pipeline)) == 3
    bounded = operation.act("apply", ctx, operation.Params(max_files=2))
    assert len(unnamed(pipeline)) == 1
    assert bounded["files_left"] == 1
    assert bounded.text().endswith("1 file left, at least: the next run continues.")
    assert pipeline.rows() == {1: 1}


def test_young_file_without_a_name_stays_since_its_writer_may_commit_it_yet(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    age(pipeline, days=8)
    (pipeline.home / "sink" / "unnamed-1.parquet").write_bytes(b"x")
    vacuum(pipeline)
    assert unnamed(pipeline) == ["sink/unnamed-1.parquet"]


@pytest.mark.parametrize(("retention", "stays"), [("interval 7 days", True), ("INTERVAL 0 HOURS", False)])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_old_file_stays_for_the_retention_after_a_commit_has_removed_it(make, retention, stays, has_checkpoint):
    pipeline = make(sink={"write": "rewrite"})
    pipeline.read(up(1, 1))
    [before] = sink_of(pipeline).files.values()
    pipeline.read(up(1, 2))
    keep_removed(pipeline, retention)
    if has_checkpoint:
        pipeline.read(up(2, 2))
        Writer().trim_log(str(pipeline.home / "sink"), commits_kept=1)
    age(pipeline, days=30)
    vacuum(pipeline)
    assert (pipeline.home / "sink" / before.add["path"]).exists() is stays
    assert pipeline.rows()[1] == 2


@pytest.mark.parametrize("shows_removed", [False, True])
def test_vector_goes_with_the_last_version_that_names_it(make, shows_removed):
    pipeline = make(sink={"write": "vectors"})
    pipeline.read(*(up(number, 1) for number in range(9)))
    pipeline.read(up(1, 2))
    first = set((pipeline.home / "sink").glob("*.bin"))
    pipeline.read(up(2, 2))
    keep_removed(pipeline, "interval 2 weeks 3 days" if shows_removed else "interval 0 milliseconds")
    age(pipeline, days=30)
    vacuum(pipeline)
    assert first
    assert all(path.exists() for path in first) is shows_removed
    assert pipeline.rows() == {0: 1, 1: 2, 2: 2, **dict.fromkeys(range(3, 9), 1)}


def test_retention_that_is_no_time_is_refused(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    keep_removed(pipeline, "interval 1 month")
    with pytest.raises(
        ConfigError, match=r"sink' cannot be read\. Got: .*: interval 1 month\. Allowed: an interval such as"
    ):
        vacuum(pipeline)
