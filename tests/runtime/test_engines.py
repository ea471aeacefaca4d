"""Where a run makes its steps: by what there is to read, by the spec, and by what only Spark can do."""

import pytest
from local.local_pipeline import LocalPipeline, up
from local.local_run import SPARK
from local.support import plain

from ebbtide import Automatic, InProcess, run
from ebbtide.runtime._engines import Engine, OtherEngineError, in_own_steps
from ebbtide.sessions import OnSpark
from ebbtide.sources import Discovery, Span

OPENED = object()
TRANSFORM = {"schema": "id BIGINT, m INT", "key": ["id"], "select": {"id": "id", "m": "n + 1"}}
TOPIC_OF_200_000 = Discovery(streams=True, span=Span({}, {0: 0}, {0: 200_000}))


def no_spark():
    raise AssertionError("Spark was opened")


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        ({}, Automatic, "nothing to read"),
        ({"engine": "local"}, InProcess, "engine: local"),
        ({"engine": "spark"}, OnSpark, "engine: spark"),
        ({"transform": TRANSFORM}, OnSpark, "it has a transform, which Spark evaluates"),
        ({"sink": {"table_properties": {"team": "shop"}}}, Automatic, "nothing to read"),
    ],
)
def test_engine_follows_the_spec(fields, kind, reason):
    chosen = Engine.for_spec(Automatic(lambda: OPENED), plain(**fields), "root")
    assert type(chosen.executor) is kind
    assert chosen.reason.startswith(reason)


def test_root_whose_files_the_jvm_writes_needs_spark():
    chosen = Engine.for_spec(Automatic(lambda: OPENED), plain(), "hdfs://host/tables")
    assert chosen.executor.spark() is OPENED
    assert chosen.text() == "on Spark: its root is 'hdfs://host/tables'"


def test_session_that_a_caller_made_is_used_whatever_the_spec_says():
    chosen = Engine.for_spec(SPARK, plain(engine="spark"), "root")
    assert chosen.executor is SPARK
    assert chosen.for_found(TOPIC_OF_200_000) is chosen


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Discovery(parts=(("a", 1_000), ("b", None))), "in this process: 1,000 bytes to read"),
        (Discovery(parts=(("a", 64 * 2**20),)), "in this process: 67,108,864 bytes to read"),
        (
            Discovery(parts=(("a", 64 * 2**20), ("b", 1))),
            "on Spark: 67,108,865 bytes to read, more than 67,108,864 bytes",
        ),
        (TOPIC_OF_200_000, "on Spark: 200,000 records to read, more than 100,000 records"),
        (Discovery(), "in this process: 0 records to read"),
    ],
)
def test_engine_follows_what_there_is_to_read(found, text):
    chosen = Engine.for_spec(Automatic(lambda: OPENED, {"spark.master": "yarn"}), plain(), "root").for_found(found)
    assert chosen.text() == text


def opened_by(**fields):
    """Return the engine of a run on one machine, that its steps are cut for."""
    executor = Automatic(lambda: OPENED)
    return Engine.for_spec(executor, in_own_steps(executor, plain(**fields), "root"), "root")


@pytest.mark.parametrize("sizes", [[2**20] * 1_000, [64 * 2**20] * 9, [10]])
def test_backlog_of_any_size_stays_here_in_steps_that_fit(sizes):
    parts = tuple((f"{number:04}", size) for number, size in enumerate(sizes))
    chosen = opened_by().for_found(Discovery(parts=parts))
    assert chosen.text() == f"in this process: {sum(sizes):,} bytes to read"


def test_file_larger_than_a_step_here_goes_to_spark_and_the_run_comes_back():
    here = opened_by()
    large = Discovery(parts=(("a", 64 * 2**20 + 1),))
    with pytest.raises(OtherEngineError, match="67,108,865 bytes"):
        here.refuse_other(large)
    there = here.for_found(large)
    assert there.executor.spark() is OPENED
    there.refuse_other(None)
    there.refuse_other(large)
    with pytest.raises(OtherEngineError):
        there.refuse_other(Discovery())
    assert there.for_found(Discovery()).executor.has_spark is False


@pytest.mark.parametrize(
    ("fields", "has_cluster", "n_bytes"),
    [
        ({}, False, 64 * 2**20),
        ({"max_bytes_per_step": 2**30}, False, 64 * 2**20),
        ({"max_bytes_per_step": 1_000}, False, 1_000),
        ({"max_bytes_per_step": 2**30}, True, 2**30),
    ],
)
def test_steps_are_cut_where_they_are_made_here(fields, has_cluster, n_bytes):
    executor = Automatic(no_spark, {"spark.master": "yarn" if has_cluster else "local[2]"})
    spec = plain(source={"path": "in", "records": "value", **fields})
    assert in_own_steps(executor, spec, "root").source.max_bytes_per_step == n_bytes


@pytest.mark.parametrize("fields", [{"engine": "spark"}, {"engine": "local"}, {"transform": TRANSFORM}])
def test_steps_of_an_engine_that_is_settled_stay_as_they_are(fields):
    spec = plain(**fields)
    assert in_own_steps(Automatic(no_spark), spec, "root") is spec
    assert in_own_steps(SPARK, plain(), "root") == plain()


@pytest.mark.parametrize(
    ("settings", "variable", "has_cluster"),
    [
        ({}, None, False),
        ({"spark.master": "local[4]"}, "spark://host:7077", False),
        ({"spark.master": "yarn"}, None, True),
        ({}, "spark://host:7077", True),
    ],
)
def test_cluster_is_known_by_the_settings(settings, variable, has_cluster, shell):
    shell.unset("SPARK_CONF_DIR", "SPARK_HOME", "EBBTIDE_MASTER")
    if variable:
        shell.export(EBBTIDE_MASTER=variable)
    assert Automatic(no_spark, settings).has_cluster is has_cluster


def test_local_engine_of_the_spec_reads_whatever_there_is():
    chosen = Engine.for_spec(Automatic(no_spark), plain(engine="local"), "root").for_found(TOPIC_OF_200_000)
    assert chosen.text() == "in this process: engine: local"
    chosen.refuse_other(TOPIC_OF_200_000)


def test_run_that_goes_on_refuses_more_than_it_reads_here():
    chosen = Engine.for_spec(Automatic(no_spark), plain(), "root")
    chosen.refuse_other(None)
    chosen.refuse_other(Discovery())
    with pytest.raises(OtherEngineError, match="200,000 records"):
        chosen.refuse_other(TOPIC_OF_200_000)


def test_what_only_spark_has_opens_it():
    class Opened:
        def sql(self, query):
            return query

    assert Automatic(Opened).spark().sql("SELECT 1") == "SELECT 1"


def test_small_run_starts_no_spark_and_says_where_it_ran(tmp_path):
    pipeline = LocalPipeline(tmp_path)
    pipeline.put(up(1, 1))
    summary = run(Automatic(no_spark), pipeline.spec, pipeline.root)
    assert summary.totals["inserted"] == 1
    assert summary.as_dict()["engine"] == f"in this process: {len(up(1, 1)) + 1} bytes to read"
