"""A function of the project makes a stream of Spark, and runs read it: each micro-batch is applied once, wherever the run ends."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters.spark_cluster import written_spec
from frame.interrupting import killed_before
from frame.waiting import until
from inputs.retracting import changelog
from local.support import plain

import ebbtide.spark
from ebbtide import refresh, run
from ebbtide.cli import main
from ebbtide.errors import ConfigError, SourceLostError, SourceReadError
from ebbtide.inspect import Lag
from ebbtide.runtime import Observer, Plan

ARRIVAL = {"order": "arrival", "materializer": {"retraction_grace": "1h"}}


@pytest.fixture
def source(spark, tmp_path):
    """Writes files that the functions of `spark_streams` read; each is a micro-batch."""
    spark.conf.set("spark.test.in", str(tmp_path / "in"))
    for name in ("rows", "orders", "customers"):
        (tmp_path / "in" / name).mkdir(parents=True)

    def put(*rows, name="rows"):
        folder = tmp_path / "in" / name
        path = folder / f"{len(list(folder.iterdir())):04}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_700_000_000 + int(path.stem), 1_700_000_000 + int(path.stem)))  # Spark reads by age

    yield put
    spark.conf.unset("spark.test.in")


def of_function(name="rows", columns="id BIGINT NOT NULL, n BIGINT", **more):
    source = {"type": "spark", "function": f"spark_streams:{name}"}
    fields = {"source": source, "format": {"type": "plain", "row": None}, "order": {"sequence": ["n"]}}
    return plain(columns, **{**fields, **more})


def row(kind, id_, n, **more):
    return {"kind": kind, "id": id_, "n": n, **more}


def shown(spec, tmp_path):
    snapshot = Plan.under(str(tmp_path / "root"), spec).sink.snapshot()
    return {found["id"]: found["n"] for found in snapshot.rows(spec.sink_table.columns).to_pylist()}


def checkpoints(tmp_path):
    return sorted(path.name for path in (tmp_path / "root" / "t" / "query").iterdir())


def test_run_reads_all_that_is_there_and_the_next_one_goes_on(spark, source, tmp_path):
    spec = of_function()
    root = str(tmp_path / "root")
    source(row("+I", 1, 1), row("+I", 2, 1))
    source(row("+U", 1, 2), row("-D", 2, 2), row("?", 3, 1))
    first = run(spark, spec, root)
    assert [step.records for step in first.steps] == [2, 3]
    assert shown(spec, tmp_path) == {1: 2}
    assert Plan.under(root, spec).quarantine.size() == 1
    assert run(spark, spec, root).steps == []
    query = checkpoints(tmp_path)
    source(row("+I", 4, 3))
    assert [step.records for step in run(spark, spec, root).steps] == [1]
    assert shown(spec, tmp_path) == {1: 2, 4: 3}
    assert checkpoints(tmp_path) == query


def test_refresh_begins_a_new_query(spark, source, tmp_path):
    spec = of_function(**ARRIVAL)
    root = str(tmp_path / "root")
    source(row("+I", 1, 1))
    source(row("-D", 1, 1), row("+I", 1, 2))
    run(spark, spec, root)
    before = checkpoints(tmp_path)
    refresh(spark, spec, root)
    assert shown(spec, tmp_path) == {1: 2}
    [after] = checkpoints(tmp_path)
    assert [after] != before
    source(row("-D", 1, 2))
    run(spark, spec, root)
    assert shown(spec, tmp_path) == {}


def test_new_columns_are_taken_in(spark, source, tmp_path):
    spec = of_function(schema_evolution_mode="evolve")
    source(row("+I", 1, 1, more="a"))
    run(spark, spec, str(tmp_path / "root"))
    rows = spark.read.format("delta").load(str(tmp_path / "root" / "t" / "sink")).select("id", "more")
    assert [found.asDict() for found in rows.collect()] == [{"id": 1, "more": "a"}]


def test_run_that_goes_on_reads_what_comes_and_makes_way(spark, source, tmp_path):
    """Maintenance between two micro-batches ends the query with the lease; it begins again where it was."""
    spec = of_function(**ARRIVAL, run="continuous", trigger_interval="100ms")
    root = str(tmp_path / "root")
    source(row("+I", 1, 1))
    stop = threading.Event()
    steps = []

    def go_on():
        run(spark, spec, root, stop=stop, on_progress=lambda step: steps.append(step.kind))

    going = threading.Thread(target=go_on)
    going.start()
    try:
        until(lambda: len(steps) == 1)
        source(row("-D", 1, 1), row("+I", 1, 2))
        until(lambda: len(steps) == 2)
        spec_file = written_spec(tmp_path / "spec", spec)
        assert commanded("compact", str(spec_file), "--root", root).exit_code == 0
        source(row("-D", 1, 2), row("+I", 2, 7))
        until(lambda: shown(spec, tmp_path) == {2: 7})
    finally:
        stop.set()
        going.join()
    assert not [query for query in spark.streams.active if query.name == spec.name]


def commanded(*arguments):
    return CliRunner().invoke(main, arguments)


@pytest.mark.demand("sum-join")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.grid) for seed in range(2, 8))])
def test_sink_of_a_join_equals_the_join_of_the_tables_however_runs_end(spark, source, tmp_path, seed):
    chance = random.Random(seed)
    orders, orders_left = changelog(
        chance, range(12), lambda key: {"id": key, "cid": chance.randrange(4), "n": chance.randrange(99)}, 8
    )
    customers, customers_left = changelog(chance, range(4), lambda key: {"cid": key, "name": f"c{chance.random()}"}, 3)
    for name, files in (("orders", orders), ("customers", customers)):
        for rows in files:
            source(*rows, name=name)
    spec = of_function("joined", "id BIGINT NOT NULL, n BIGINT, name STRING", **ARRIVAL)
    root = str(tmp_path / "root")
    for place in ("the sink performs", "a batch is decided", "tables are folded"):
        with killed_before(place):
            run(spark, spec, root)
    run(spark, spec, root)
    names = {found["cid"]: found["name"] for found in customers_left}
    truth = {found["id"]: (found["n"], names[found["cid"]]) for found in orders_left if found["cid"] in names}
    rows = Plan.under(root, spec).sink.snapshot().rows(spec.sink_table.columns).to_pylist()
    assert {found["id"]: (found["n"], found["name"]) for found in rows} == truth
    assert truth


@pytest.mark.launched
@pytest.mark.parametrize("n_kills", [1, pytest.param(4, marks=pytest.mark.grid)])
def test_run_by_command_is_killed_and_the_next_one_applies_the_rest_once(source, tmp_path, n_kills):
    n_files = 12
    for number in range(n_files):
        source(row("+I", number, 1), row("+I", 99, number))
        source(row("-D", 99, number))
    spec = of_function(**ARRIVAL)
    folder = written_spec(tmp_path / "spec", spec)
    command = [sys.executable, "-m", "ebbtide.cli", "run", str(folder), "--root", str(tmp_path / "root")]
    command += ["--conf", f"spark.test.in={tmp_path / 'in'}"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    chance = random.Random(7)
    for _ in range(n_kills):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True) as killed:
            steps = (line for line in killed.stderr if " batch " in line)
            for _ in range(chance.randrange(1, 4)):
                next(steps)
            os.killpg(killed.pid, signal.SIGKILL)
    subprocess.run(command, check=True, env=env, capture_output=True)
    assert shown(spec, tmp_path) == dict.fromkeys(range(n_files), 1)


def test_query_whose_checkpoint_is_gone_is_refused_until_the_loss_is_accepted(spark, source, tmp_path):
    spec = of_function()
    root = str(tmp_path / "root")
    source(row("+I", 1, 1))
    run(spark, spec, root)
    (tmp_path / "root" / "t" / "query").rename(tmp_path / "gone")
    source(row("+I", 2, 1))
    with pytest.raises(SourceLostError, match=r"its checkpoint is not there.*Restore the folder"):
        run(spark, spec, root)
    run(spark, spec, root, accept_loss=True)
    assert shown(spec, tmp_path) == {1: 1, 2: 1}
    source(row("+I", 3, 1))
    run(spark, spec, root)
    assert shown(spec, tmp_path) == {1: 1, 2: 1, 3: 1}


def test_rewind_before_the_checkpoint_is_refused_by_the_next_run(spark, source, tmp_path):
    spec = of_function()
    root = str(tmp_path / "root")
    for number in range(3):
        source(row("+I", number, 1))
    run(spark, spec, root)
    rewound = ["rewind", str(written_spec(tmp_path / "spec", spec)), "--to-step", "1", "--apply"]
    assert commanded(*rewound, "--root", root).exit_code == 0
    source(row("+I", 3, 1))
    with pytest.raises(SourceLostError, match=r"Got: micro-batch 3. Allowed: micro-batch 1.*'ebbtide refresh'"):
        run(spark, spec, root)
    refresh(spark, spec, root)
    assert shown(spec, tmp_path) == dict.fromkeys(range(4), 1)


def test_server_of_metrics_neither_starts_the_query_nor_moves_it(spark, source, tmp_path):
    spec = of_function(run="continuous", trigger_interval="100ms")
    root = str(tmp_path / "root")
    stop = threading.Event()
    seen = []

    class Scraper(Observer):
        def look(self, look):
            asked = threading.Thread(target=lambda: seen.append(look.steps.plan.source.discover({}, 0, None)))
            asked.start()
            asked.join()
            stop.set()

    source(row("+I", 1, 1))
    run(spark, spec, root, stop=stop, observers=[Scraper()])
    assert [(found.streams, found.span) for found in seen] == [(False, None)] * len(seen)
    assert seen


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("table", ConfigError, r"gives no rows.*Got: DataFrame that is no stream. Allowed: def name\(spark\)"),
        ("broken", ConfigError, r"gives no rows.*Got: KeyError: 'orders'"),
        ("missing", ConfigError, r"gives no rows.*has no attribute 'missing'"),
        ("failing", SourceReadError, r"The query of 't' has failed.*no such thing"),
    ],
)
def test_function_without_rows_is_refused_by_name(spark, source, tmp_path, name, error, message):
    source(row("+I", 1, 1))
    with pytest.raises(error, match=message):
        run(spark, of_function(name), str(tmp_path / "root"))


def test_pipeline_is_looked_at_without_its_query(spark, source, tmp_path):
    spec = of_function()
    root = str(tmp_path / "root")
    source(row("+I", 1, 1))
    run(spark, spec, root)
    assert Lag.of(spec, root, 0).line() == "t: known once a run asks the query of Spark"
    assert commanded("status", str(written_spec(tmp_path / "spec", spec)), "--root", root).exit_code == 0
    with pytest.raises(ConfigError, match=r"reads its rows by itself.*Got: source.type: spark, with a function"):
        ebbtide.spark.into(spec, root)
    with pytest.raises(ConfigError, match=r"cannot run without Spark. Got: rows of a stream of Spark"):
        run(ebbtide.InProcess(), spec, root)
