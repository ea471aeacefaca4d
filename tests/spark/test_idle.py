"""What is judged without Spark, over tables that Spark made."""

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, write
from local.local_run import die_behind_a_decision

from ebbtide import run
from ebbtide.delta import Snapshot
from ebbtide.errors import DeltaLogError, LateFileError, SourceReadError
from ebbtide.ledger import Lease
from ebbtide.runtime import idle_run

pytestmark = pytest.mark.spark
START = 1_000_000_000_000
HOUR, DAY = 3_600_000, 86_400_000


def nothing_to_do(spec, root, clock_ms):
    return idle_run(spec, root, clock_ms) is not None


def ledger_of(root, spec):
    return str(root / spec.name / "ledger")


@pytest.mark.grid
def test_nothing_to_do_is_certain_or_denied(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    root = str(tmp_path)
    assert not nothing_to_do(spec, root, START), "no step yet"
    run(LOCAL, spec, root)
    assert nothing_to_do(spec, root, START)
    assert not nothing_to_do(plain_spec(tmp_path / "in", key=["seq"]), root, START), (
        "a changed spec is refused by the run"
    )
    with Lease(ledger_of(tmp_path, spec), spec.name, 60):
        assert not nothing_to_do(spec, root, START), "it is being run"
    assert nothing_to_do(spec, root, START)
    write(tmp_path / "in", [change("+I", 2, "b", 2)], first=1)
    assert not nothing_to_do(spec, root, START), "a new file"
    run(LOCAL, spec, root)
    assert nothing_to_do(spec, root, START)
    (tmp_path / "in" / "0000.jsonl").rename(tmp_path / "in" / "0000a.jsonl")
    with pytest.raises(LateFileError):
        idle_run(spec, root, START)
    (tmp_path / "in" / "0000a.jsonl").unlink()
    assert nothing_to_do(spec, root, START), "a file that was read and archived"
    write(tmp_path / "in", [change("+I", 3, "c", 3)], first=2)
    die_behind_a_decision(LOCAL, tmp_path, spec)
    assert not nothing_to_do(spec, root, START), "a batch that is in no table yet"
    with pytest.raises(SourceReadError):
        idle_run(plain_spec(tmp_path / "nowhere"), root, START)


@pytest.mark.grid
def test_what_is_due_is_seen_and_what_has_expired_is_not_seen_again(spark, tmp_path):
    rows = [change("+I", n, "a", n) for n in (1, 2)]
    spec = plain_spec(write(tmp_path / "in", rows), order={"sequence": ["seq"]}, ttl={"ttl": "1d", "expire_live": True})
    root = str(tmp_path)
    [batch] = run(LOCAL, spec, root, clock=lambda: START).steps
    start = batch.clock.now_ms
    assert nothing_to_do(spec, root, start + DAY - 1)
    assert not nothing_to_do(spec, root, start + DAY)
    [tick] = run(LOCAL, spec, root, clock=lambda: start + DAY).steps
    assert (tick.kind, tick.metrics["expired"]) == ("tick", 2)
    assert nothing_to_do(spec, root, start + 9 * DAY), "the stored old versions count no more"
    kept_downtime = plain_spec(tmp_path / "in", **{**spec.model_dump(include={"order", "ttl"}), "downtime_over": "1h"})
    assert not nothing_to_do(kept_downtime, root, start + DAY + 1), "a run is a sign of life"


def test_tombstone_is_due_and_a_row_that_lives_is_not(spark, tmp_path):
    rows = [change("+I", 1, "a", 1), change("-D", 2, "b", 2)]
    spec = plain_spec(write(tmp_path / "in", rows), order={"sequence": ["seq"]}, ttl="1d")
    [batch] = run(LOCAL, spec, str(tmp_path), clock=lambda: START).steps
    assert nothing_to_do(spec, str(tmp_path), batch.clock.now_ms + DAY - 1)
    assert not nothing_to_do(spec, str(tmp_path), batch.clock.now_ms + DAY)
    run(LOCAL, spec, str(tmp_path), clock=lambda: batch.clock.now_ms + DAY)
    assert nothing_to_do(spec, str(tmp_path), batch.clock.now_ms + 9 * DAY), "the row is none of the ttl's"


@pytest.mark.grid
def test_data_files_are_those_that_spark_reads(spark, tmp_path):
    table = str(tmp_path / "t")
    for n in range(12):
        mode = "overwrite" if n == 5 else "append"
        spark.range(n, n + 3).coalesce(1).write.format("delta").mode(mode).save(table)
    assert any(path.name.endswith(".checkpoint.parquet") for path in (tmp_path / "t" / "_delta_log").iterdir())
    files = Snapshot.read(table).files.values()
    read = {path.removeprefix("file:") for path in spark.read.format("delta").load(table).inputFiles()}
    assert {file.location(table) for file in files} == read
    assert {(file.rows, file.least("id"), file.greatest("id")) for file in files} == {
        (3, n, n + 2) for n in range(5, 12)
    }
    commits = tmp_path / "t" / "_delta_log"
    (commits / f"{11:020d}.json").rename(commits / f"{12:020d}.json")
    with pytest.raises(DeltaLogError, match="1 missing"):
        Snapshot.read(table)
