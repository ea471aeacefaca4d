"""Where rules run, and what they read there."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from frame.limits import set_limits
from local.local_pipeline import up
from local.local_run import HOUR, SPARK, START
from local.support import change

from ebbtide.checks import Engines, VersionRange, checks_of
from ebbtide.checks._inputs import ChangeFeed, Size, TableRows
from ebbtide.checks._judged import Judged
from ebbtide.checks._queries import for_duckdb
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.cli import main
from ebbtide.delta import DataFile, Snapshot, Writer
from ebbtide.delta import _vectors as vectors
from ebbtide.operations import maintain

FACTS_ALONE = ("quarantine_rate", "schema_drift", "foreign_writes", "source_loss")
PROJECT = Path(__file__).resolve().parents[2]


class SessionAskedError(Exception):
    """Raised where Spark would be started."""


def no_session():
    raise SessionAskedError


@pytest.fixture
def pipeline(make):
    made = make()
    for n in range(1, 4):
        made.read(up(n, n))
    return made


def judged(pipeline, clock_ms=0, **bounds):
    plan = pipeline.plan
    return Judged(Engines(no_session, **bounds), plan, VersionRange.after(plan), clock_ms)


def found(pipeline, name, **how):
    [check] = [each for each in checks_of(pipeline.spec) if each.name == name]
    return [broken for batch in check.load()(judged(pipeline, **how)) for broken in batch.broken]


def test_entries_that_vectors_hide_may_stay_in_files_as_long_as_the_spec_says(make):
    set_limits(width=100)
    pipeline = make(ttl={"ttl": "1h"}, checks={"cleanup_within": "2h"})
    alive = [up(n, n) for n in range(2, 20)]
    pipeline.read(up(1, 1, "-D"), *alive, clock_ms=START)
    assert [each.count for each in found(pipeline, "expiry", clock_ms=START)] == [0, 0, 0], "no vector, no further rule"

    def cleaned(clock_ms):
        maintain(SPARK, pipeline.spec, pipeline.root, "cleanup", clock=lambda: clock_ms)
        return sum(file.vector is not None for file in pipeline.plan.state.snapshot().files.values())

    expires_ms = START + HOUR
    assert cleaned(expires_ms + HOUR // 2) == 1, "it has expired for less than half of two hours"
    for late_ms, n_files in ((2 * HOUR - 1, 0), (2 * HOUR, 1)):
        *_, hidden = found(pipeline, "expiry", clock_ms=expires_ms + late_ms)
        assert (hidden.count, [each["_rows"] for each in hidden.sample]) == (n_files, [1] * n_files)
    assert cleaned(expires_ms + HOUR) == 0, "the next cleanup has written the file again"
    assert [each.count for each in found(pipeline, "expiry", clock_ms=expires_ms + 2 * HOUR)] == [0, 0, 0]


@pytest.mark.demand("ttl-timers-bound")
def test_state_with_timers_must_expire_within_a_minute(make):
    timed = {"ttl": "1h", "cleanup": {"timers": True}}
    fields = {"function": "user_functions:HandedOver", "schema": "id BIGINT, seq BIGINT", "output_key": ["id", "entry"]}
    pipeline = make(**fields, ttl={"newest": timed, "items": "1h"})
    pipeline.read(change("+I", id=1, seq=1), change("+I", id=2, seq=1), clock_ms=START)
    ends_ms = START + HOUR

    def counts(late_ms):
        return [each.count for each in found(pipeline, "expiry", clock_ms=ends_ms + late_ms)]

    late_for_all, late_at_all, not_deleted = 0, 4, 0
    assert counts(59_999) == [late_for_all, late_at_all, not_deleted, 0]
    assert counts(60_000) == [late_for_all, late_at_all, not_deleted, 2], "the entries of the state with timers"
    pipeline.run(ends_ms)
    assert counts(60_000) == [0, 0, 0, 0]
    pipeline.spec = pipeline.with_fields(ttl={"newest": timed, "items": "1h"}, checks={"expiry_grace": "1m"})
    assert len(counts(0)) == 3, "a grace of a minute or less holds for all"


def test_state_is_held_to_the_size_that_the_spec_allows(make):
    assert "state_size" not in {check.name for check in checks_of(make().spec)}
    pipeline = make(checks={"max_state_bytes": 10, "max_state_rows": 3})
    pipeline.read(up(1, 1), up(2, 2))
    n_bytes, n_rows = found(pipeline, "state_size")
    files = pipeline.plan.state.snapshot().files.values()
    assert n_bytes.sample == [{"_files": 1, "_bytes": sum(file.size for file in files), "_rows": 3}]
    assert n_rows.count == 0, "two entries, and the file that was read"
    pipeline.read(up(3, 3))
    assert [each.count for each in found(pipeline, "state_size")] == [1, 1]


def test_spark_is_asked_for_above_the_bound_alone(pipeline):
    size = judged(pipeline).sink_rows.size()
    assert size.rows == 3
    assert not any(each.count for each in found(pipeline, "unique_key", most_rows=3, most_bytes=size.n_bytes))
    for bounds in ({"most_rows": 2}, {"most_bytes": size.n_bytes - 1}):
        with pytest.raises(SessionAskedError):
            found(pipeline, "unique_key", **bounds)


def test_file_without_a_count_of_rows_is_read_by_spark(pipeline):
    sink = Snapshot.read(pipeline.plan.sink.path)
    [file, *_] = sink.files.values()
    unknown = {"add": {**file.add, "stats": None}}
    Writer().commit(sink, [file.removed(0, data_change=False), unknown], {"operation": "OPTIMIZE"})
    assert judged(pipeline).sink_rows.size() is None
    with pytest.raises(SessionAskedError):
        found(pipeline, "unique_key")


def test_rules_over_facts_read_no_table_and_need_no_session(pipeline, monkeypatch):
    monkeypatch.setattr(TableRows, "read", None)
    monkeypatch.setattr(ChangeFeed, "read", None)
    for name in FACTS_ALONE:
        assert [each.count for each in found(pipeline, name, most_rows=0, most_bytes=0)] == [0], name


def test_rows_are_read_once_for_all_checks_of_a_run(pipeline, monkeypatch):
    reads = []
    read = TableRows.read
    monkeypatch.setattr(TableRows, "read", lambda rows: reads.append(rows.table) or read(rows))
    asked = judged(pipeline)
    for check in CHECKS:
        list(check.load()(asked))
    assert sorted(reads) == sorted([asked.sink_rows.table, asked.state_rows.table])


COLUMNS = pa.schema([("id", pa.int64())])


def changes(table, since, until):
    rows = ChangeFeed(table, since, until, COLUMNS).read().to_pylist()
    return sorted((row["_commit_version"], row["id"], row["_change_type"]) for row in rows)


def test_feed_of_commits_without_change_files_is_what_files_and_vectors_add_and_remove(pipeline):
    sink = Snapshot.read(pipeline.plan.sink.path)
    rows = pa.Table.from_pylist([{"id": 7}, {"id": 8}, {"id": 9}], judged(pipeline).sink_rows.columns)
    sink = Writer().commit(
        sink, DataFile.replacing(sink.files.values(), [DataFile.write(sink.table, "n.parquet", rows, bounded=())]), {}
    )
    [file] = sink.files.values()
    for gone in ([0, 2], [2]):
        [vector] = vectors.write(sink.table, [vectors.BitMap64(gone)])
        changed = file.with_vector(vector, data_change=True)
        sink = Writer().commit(sink, [file.removed(0, data_change=True), changed], {})
        [file] = sink.files.values()
    sink = Writer().commit(sink, [file.removed(0, data_change=False), {"add": {**file.add, "dataChange": False}}], {})
    first = sink.version - 3
    assert changes(sink.table, first - 1, sink.version) == [
        *[(first, id_, "delete") for id_ in (1, 2, 3)],
        *[(first, id_, "insert") for id_ in (7, 8, 9)],
        (first + 1, 7, "delete"),
        (first + 1, 9, "delete"),
        (first + 2, 7, "insert"),
    ]


def test_feed_is_read_from_change_files_where_a_commit_has_them(pipeline):
    pipeline.read(up(2, 9))
    version = Snapshot.read(pipeline.plan.sink.path).version
    found = changes(pipeline.plan.sink.path, version - 1, version)
    assert found == [(version, 2, "update_postimage"), (version, 2, "update_preimage")]
    assert ChangeFeed(pipeline.plan.sink.path, version, version, COLUMNS).size() == Size(0, 0)


TYPES = pa.schema(
    [
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("v", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
    ]
)


@pytest.mark.parametrize(
    "condition",
    [
        "n > 1 AND v <> 'a'",
        "day < CAST(at AS DATE)",
        "local < CAST(at AS TIMESTAMP_NTZ)",
        "v IS NULL OR NOT n IN (1, 2)",
        "n BETWEEN 1 AND 2",
    ],
)
def test_query_of_what_means_the_same_to_both_engines_runs_here(condition):
    assert for_duckdb(f"SELECT n, v FROM {{batch}} WHERE {condition}", TYPES) is not None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n FROM {batch} WHERE d > 1",
        "SELECT n FROM {batch} WHERE n = '1'",
        "SELECT n FROM {batch} WHERE day < '2026-1-1'",
        "SELECT n FROM {batch} WHERE v LIKE 'a%'",
        "SELECT n FROM {batch} WHERE length(v) > 1",
        "SELECT n FROM {batch} WHERE n / 2 > 1",
        "SELECT n FROM {batch} WHERE CAST(v AS BIGINT) > 1",
        "SELECT n FROM {batch} LIMIT 3",
        "SELECT n FROM {batch} ORDER BY n",
        "SELECT DISTINCT n FROM {batch}",
        "SELECT count(*) FROM {batch} GROUP BY n",
        "SELECT a.n FROM {batch} a JOIN {batch} b ON a.n = b.n",
        "SELECT n FROM {batch} WHERE n IN (SELECT n FROM other)",
        "SELECT n FROM other",
        "SELECT unknown FROM {batch}",
        "SELECT n FROM {batch} WHERE",
        "DELETE FROM {batch}",
    ],
)
def test_any_other_query_is_left_to_spark(query):
    assert for_duckdb(query, TYPES) is None


@pytest.mark.group("judged")
def test_command_judges_all_checks_without_spark_and_fails_where_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr("ebbtide.sessions._session.build_session", lambda *_, **__: no_session())
    folder = str(PROJECT / "pipelines" / "defs" / "shop" / "orders")

    def call(*arguments):
        return CliRunner().invoke(main, [*arguments, "--root", str(tmp_path)])

    assert "no step yet" in call("check", folder).stderr
    assert call("run", folder, "--engine", "local").exit_code == 0
    done = call("check", folder, "--json")
    assert done.exit_code == 0, done.output
    outcomes = {report["check"]: report["outcome"] for report in map(json.loads, done.stdout.splitlines())}
    assert outcomes == dict.fromkeys([*(each.name for each in CHECKS), "expectations"], "passed")
    sink = Snapshot.read(str(tmp_path / "orders" / "sink"))
    [file, *_] = sink.files.values()
    Writer().commit(sink, [file.removed(0, data_change=True)], {"operation": "DELETE"})
    broken = call("check", folder, "--only", "complete")
    assert broken.exit_code == 1
    assert "orders: complete failed" in broken.stdout
    assert "ebbtide repair " in broken.stdout
    assert call("check", folder, "--only", "no_such").exit_code == 2
