"""A query of Spark hands its micro-batches to a pipeline: each is applied once, wherever the query or the process ends."""

import json
import random

import pytest
from frame.interrupting import killed_before
from inputs.retracting import KINDS, changelog
from local.support import plain

import ebbtide.spark
from ebbtide import run
from ebbtide.errors import ConfigError, SourceLostError
from ebbtide.runtime import Plan

ROWS = "kind STRING, id BIGINT, n BIGINT, price DECIMAL(20,2), at TIMESTAMP, raw BINARY"
COLUMNS = "id BIGINT NOT NULL, n BIGINT, price DECIMAL(20,2), at TIMESTAMP, raw BINARY"


def of_spark(**more):
    fields = {"source": {"type": "spark"}, "format": {"type": "plain", "row": None}, "order": {"sequence": ["n"]}}
    return plain(COLUMNS, **{**fields, **more})


@pytest.fixture
def stream(spark, tmp_path):
    """Runs a stream over files of rows into a pipeline, until all files are read; a file is a micro-batch."""
    (tmp_path / "in").mkdir()

    def run_stream(spec, *files, name="query", **how):
        for rows in files:
            number = len(list((tmp_path / "in").iterdir()))
            (tmp_path / "in" / f"{number:04}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        read = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        writer = read.writeStream.foreachBatch(ebbtide.spark.into(spec, str(tmp_path / "root"), **how))
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination()

    return run_stream


def shown(spec, tmp_path):
    snapshot = Plan.under(str(tmp_path / "root"), spec).sink.snapshot()
    return {row["id"]: row["n"] for row in snapshot.rows(spec.sink_table.columns).to_pylist()}


def last(spec, tmp_path):
    _, facts = Plan.under(str(tmp_path / "root"), spec).state.last()
    return facts


def row(kind, id_, n, **more):
    return {"kind": kind, "id": id_, "n": n, **more}


def test_micro_batches_are_steps_and_a_query_goes_on_where_it_stopped(stream, tmp_path):
    spec = of_spark()
    stream(spec, [row("+I", 1, 1), row("+I", 2, 1)], [row("+U", 1, 2), row("-D", 2, 2), {"kind": "?", "id": 3}])
    assert shown(spec, tmp_path) == {1: 2}
    assert last(spec, tmp_path).step == 2
    stream(spec, [row("+I", 4, 3)])
    assert shown(spec, tmp_path) == {1: 2, 4: 3}
    assert last(spec, tmp_path).step == 3
    assert Plan.under(str(tmp_path / "root"), spec).quarantine.size() == 1


def test_values_arrive_as_spark_has_them(spark, tmp_path):
    spec = of_spark()
    rows = spark.sql(
        "SELECT '+I' AS kind, 1L AS id, 9007199254740993L AS n, CAST('123456789012345678.90' AS DECIMAL(20,2)) AS price, "
        "TIMESTAMP '2026-01-02 03:04:05.678901+02:00' AS at, X'00FF10' AS raw UNION ALL SELECT '+I', 2L, 1L, NULL, NULL, NULL"
    )
    ebbtide.spark.upsert(rows, spec, str(tmp_path / "root"))
    names = ["id", "n", "price", "at", "raw"]
    stored = spark.read.format("delta").load(str(tmp_path / "root" / "t" / "sink")).select(*names)
    assert sorted(stored.collect()) == sorted(rows.select(*names).collect())


@pytest.mark.parametrize("place", ["a batch is decided", "the sink performs", "tables are folded"])
def test_micro_batch_whose_step_died_is_applied_once(stream, tmp_path, place):
    spec = of_spark(order="arrival")
    stream(spec, [row("+I", 1, 1)])
    with killed_before(place):
        with pytest.raises(Exception, match="InterruptedError"):
            stream(spec, [row("+I", 1, 2)])
        raise InterruptedError
    stream(spec)
    assert shown(spec, tmp_path) == {1: 2}
    assert last(spec, tmp_path).step == 2
    stream(spec, [row("-D", 1, 2)])
    assert shown(spec, tmp_path) == {1: 1}, "each row was added once"


def test_frame_is_applied_once_by_its_number(spark, tmp_path):
    spec = of_spark(order="arrival")
    root = str(tmp_path / "root")
    rows = spark.createDataFrame([("+I", 1, 1)], "kind STRING, id BIGINT, n BIGINT")
    for _ in range(2):
        ebbtide.spark.upsert(rows, spec, root, batch=0)
    assert last(spec, tmp_path).step == 1
    with pytest.raises(
        SourceLostError, match=r"was not given some micro-batches.*Got: micro-batch 2. Allowed: micro-batch 1"
    ):
        ebbtide.spark.upsert(rows, spec, root, batch=2)
    ebbtide.spark.upsert(rows, spec, root)
    assert last(spec, tmp_path).step == 2


def test_another_query_is_refused_unless_it_is_expected(stream, tmp_path):
    spec = of_spark()
    stream(spec, [row("+I", 1, 1)], [row("+I", 2, 2)])
    with pytest.raises(Exception, match="was given the rows of another query"):
        stream(spec, name="another")
    stream(spec, name="a third", new_query=True)
    assert shown(spec, tmp_path) == {1: 1, 2: 2}


def test_what_is_not_handed_over_rightly_is_refused_by_name(spark, tmp_path):
    root = str(tmp_path / "root")
    with pytest.raises(
        ConfigError, match=r"reads its rows by itself.*Got: source.type: files. Allowed: spark, without a function"
    ):
        ebbtide.spark.into(plain(source={"path": "in"}), root)
    frame = spark.range(1)
    with pytest.raises(ConfigError, match="are of no query"):
        ebbtide.spark.into(of_spark(), root)(frame, 0)
    streaming = spark.readStream.format("rate").load()
    with pytest.raises(ConfigError, match=r"are a stream.*Use writeStream"):
        ebbtide.spark.upsert(streaming, of_spark(), root)
    with pytest.raises(ConfigError, match="gets its rows from a query of Spark"):
        run(spark, of_spark(), root)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.grid) for seed in range(2, 8))])
def test_sink_of_a_streaming_join_equals_the_join_of_the_tables(spark, tmp_path, seed):
    chance = random.Random(seed)
    orders, orders_left = changelog(
        chance, range(12), lambda id_: {"id": id_, "cid": chance.randrange(4), "n": chance.randrange(99)}, 8
    )
    customers, customers_left = changelog(chance, range(4), lambda id_: {"cid": id_, "name": f"c{chance.random()}"}, 3)
    sides = {
        "o": ("kind STRING, id BIGINT, cid BIGINT, n BIGINT", orders),
        "c": ("kind STRING, cid BIGINT, name STRING", customers),
    }
    streams = {}
    for side, (schema, files) in sides.items():
        (tmp_path / side).mkdir()
        for number, rows in enumerate(files):
            (tmp_path / side / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        read = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(tmp_path / side))
        streams[side] = read.alias(side)
    joined = streams["o"].join(streams["c"], "cid").selectExpr(KINDS, "id", "o.n", "name")
    spec = plain(
        "id BIGINT NOT NULL, n BIGINT, name STRING",
        source={"type": "spark"},
        format={"type": "plain", "row": None},
        order="arrival",
        materializer={"retraction_grace": "1h"},
    )

    def run_join():
        apply = ebbtide.spark.into(spec, str(tmp_path / "root"))
        writer = joined.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path / "query"))
        writer.trigger(availableNow=True).start().awaitTermination()

    for place in ("the sink performs", "a batch is decided"):
        with killed_before(place):
            with pytest.raises(Exception, match="InterruptedError"):
                run_join()
            raise InterruptedError
    run_join()
    names = {row["cid"]: row["name"] for row in customers_left}
    truth = {row["id"]: (row["n"], names[row["cid"]]) for row in orders_left if row["cid"] in names}
    rows = Plan.under(str(tmp_path / "root"), spec).sink.snapshot().rows(spec.sink_table.columns).to_pylist()
    assert {row["id"]: (row["n"], row["name"]) for row in rows} == truth
    assert truth
