"""Topics of a real broker, read by runs without Spark: what is read, and what is refused because it would be lost."""

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import confluent_kafka
import dagster as dg
import killing
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from frame.alert_rules import fires
from frame.interrupting import killed_before
from frame.limits import set_limits
from frame.waiting import PATIENCE_S
from killing import PLACES
from local.fleet_support import NAMES, Project
from local.local_pipeline import LATER, up
from local.local_run import SPARK
from local.metrics_support import samples_of, text_of
from local.support import SHOP, UNAVAILABLE, envelope, evenly, lines_of, shop
from local.support import spec as debezium
from oracles.judging import n_broken
from oracles.shop_truth import same_as_truth
from servers.certificates import Authority
from servers.kafka_broker import PASSWORD, USER, free_port
from servers.kafka_support import TopicPipeline, over_topic, plainly, records_of

import ebbtide
from ebbtide import UpsertPipeline, UpsertPipelines, load
from ebbtide.cli import main
from ebbtide.dagster import ClockResource, StorageResource, pipeline_definitions
from ebbtide.dagster.sensors import _observation, topics_sensor
from ebbtide.errors import (
    ConfigError,
    QuarantineThresholdError,
    SourceLostError,
    SourceReadError,
    SourceUnavailableError,
)
from ebbtide.inspect import Lag, MetricsAtRest, WatchedFleet, WatchedRun
from ebbtide.runtime import Look, Plan, SourceSteps
from ebbtide.runtime import _reading as reading
from ebbtide.runtime._finding import RecordsOfBatch
from ebbtide.runtime._following import Faults, Following
from ebbtide.sources import Client, Discovery, KafkaSource, SourceSettings, Span
from ebbtide.sources._kafka import client as client_module
from ebbtide.sources._kafka import source as source_module
from ebbtide.sources._kafka.client import topic_names
from ebbtide.sources._kafka.reading import Reading, first_times
from ebbtide.sources._kafka.topic import ask, identify
from ebbtide.tables import Selection

KILLS = ("the records are staged", "the state is committed")
"""Before and after the decision of the second step."""
SUPPORT = str(Path(killing.__file__).parent)
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": "${EBBTIDE_TEST_PASSWORD}",
}
SHOP_CLOCK = 1_800_000_000_000
DO = "import json, sys; sys.path.insert(0, sys.argv[1]); from killing import do; do(json.loads(sys.argv[2]))"
pytestmark = pytest.mark.group("broker")  # one broker for all


@pytest.fixture(autouse=True)
def _apart():
    set_limits(rows_in_driver=20_000)  # tests on Spark set it for their process
    set_limits(records_in_driver=20_000)


@pytest.fixture
def topic(broker, request):
    name = request.node.name.translate(str.maketrans("[] ", "...")) + "." + str(time.monotonic_ns())
    broker.create(name, 3, retention_ms="-1")  # records may be of 1970
    return name


@pytest.fixture
def over(broker, topic, tmp_path):
    return lambda **fields: TopicPipeline(tmp_path, broker, topic, **fields)


def each_record_is_of_one_step(spec, root):
    """Steps are numbered without a gap, and each begins where the one before it ended."""
    steps = sorted((facts for _, facts in Plan.under(str(root), spec).state.steps()), key=lambda facts: facts.step)
    positions = [facts.source.position for facts in steps if facts.cause.what == "batch"]
    begins = [position["from"] for position in positions[1:]]
    ends = [position["to"] for position in positions[:-1]]
    return begins == ends and [facts.step for facts in steps] == list(range(1, len(steps) + 1))


def do_apart(order):
    """What an order asks for, in a process of its own; how that ended."""
    command = [sys.executable, "-c", DO, SUPPORT, json.dumps(order)]
    return subprocess.run(command, timeout=120, check=False).returncode


@cache
def shop_records(name):
    """A shop pipeline's records over three partitions, a thousand of them redelivered: of the join an order's changes stay in theirs."""
    if name == "orders":
        lines = [line for line in lines_of(SHOP / "capture") if b'"topic": "shop.public.orders"' in line]
        records = records_of(lines)
    else:
        lines = lines_of(SHOP / "join")
        records = [{"partition": json.loads(line)["row"]["order_id"] % 3, "value": line} for line in lines]
    half = len(records) // 2
    return [*records[: half + 500], *records[half - 500 :]]


def shop_topic(name, broker, topic, n_steps):
    n_records = len(shop_records(name))
    return over_topic(shop(name), broker, topic, max_records_per_step=-(-n_records // n_steps))


@pytest.mark.parametrize(
    ("name", "n_steps"),
    [
        ("orders", 8),
        pytest.param("order_balances", 1, marks=pytest.mark.grid),
        pytest.param("orders", 1, marks=pytest.mark.grid),
        pytest.param("order_balances", 8, marks=pytest.mark.grid),
    ],
)
def test_shop_table_from_three_partitions_redelivered_equals_the_truth(broker, topic, tmp_path, name, n_steps):
    broker.put(topic, shop_records(name))
    spec = shop_topic(name, broker, topic, n_steps)
    summary = ebbtide.run(SPARK, spec, str(tmp_path), clock=lambda: SHOP_CLOCK)
    assert len([step for step in summary.steps if step.kind == "batch"]) == n_steps
    known = sum(summary.totals[count] for count in ("duplicates", "superseded", "redelivered"))
    assert known >= 700  # tombstones count as none of them
    assert same_as_truth(spec, tmp_path)


def follow_to_the_end(broker, topic, spec, root, left):
    """A run that goes on, to which the next records come at each step, until there are none."""
    stop = threading.Event()

    def put_next(step=None):
        if left:
            broker.put(topic, left.pop(0))
        elif not Lag.of(spec, str(root), SHOP_CLOCK).backlog.total_records:
            stop.set()

    put_next()
    following = Following(interval_ms=1)
    return ebbtide.run(
        SPARK, spec, str(root), clock=lambda: SHOP_CLOCK, follow=following, on_progress=put_next, stop=stop
    )


@pytest.mark.parametrize("n_steps", [pytest.param(1, marks=pytest.mark.grid), 8])
@pytest.mark.parametrize("name", [pytest.param("orders", marks=pytest.mark.grid), "order_balances"])
def test_shop_table_that_is_followed_equals_the_truth(broker, topic, tmp_path, name, n_steps):
    spec = shop_topic(name, broker, topic, 1)
    follow_to_the_end(broker, topic, spec, tmp_path, evenly(shop_records(name), n_steps))
    assert same_as_truth(spec, tmp_path)


@pytest.mark.grid  # of a few records: test_run_that_died_in_its_second_step_is_finished_by_the_next
@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("name", ["orders", "order_balances"])
def test_shop_table_whose_run_is_killed_in_a_step_equals_the_truth(broker, topic, tmp_path, name, follows):
    now, *later = evenly(shop_records(name), 2 if follows else 1)
    broker.put(topic, now)
    spec = shop_topic(name, broker, topic, 8)
    given = json.dumps(spec.model_dump(mode="json", by_alias=True, exclude_unset=True))
    order = {"works": [("sequence", "run", given, SHOP_CLOCK, {"follows": follows})], "root": str(tmp_path)}
    for place in KILLS:
        assert do_apart(order | {"place": PLACES[place]}) == -signal.SIGKILL
    if follows:
        follow_to_the_end(broker, topic, spec, tmp_path, later)
    else:
        ebbtide.run(SPARK, spec, str(tmp_path), clock=lambda: SHOP_CLOCK)
    assert same_as_truth(spec, tmp_path)
    assert each_record_is_of_one_step(spec, tmp_path)


def test_run_goes_on_where_the_last_one_ended_and_its_facts_say_from_where_to_where(over):
    pipeline = over()
    pipeline.send(up(1, 1), up(2, 1))
    pipeline.send(up(3, 1), partition=2)
    assert [step.records for step in pipeline.run().steps if step.kind == "batch"] == [3]
    assert pipeline.ranges() == ({"0": 0, "1": 0, "2": 0}, {"0": 2, "1": 0, "2": 1})
    assert pipeline.is_idle()
    pipeline.send(up(1, 2))
    assert not pipeline.is_idle()
    pipeline.run()
    assert pipeline.ranges() == ({"0": 2, "1": 0, "2": 1}, {"0": 3, "1": 0, "2": 1})
    assert pipeline.rows() == {1: 2, 2: 1, 3: 1}


def test_brokers_are_asked_once_a_run_and_a_topic_that_is_gone_is_refused_with_nothing_thrown_away(
    over, broker, monkeypatch
):
    pipeline = over()
    pipeline.send(up(1, 1))
    pipeline.run()
    asked = Mock(side_effect=ask)
    monkeypatch.setattr(source_module, "ask", asked)
    pipeline.send(up(2, 1))
    pipeline.run()
    assert asked.call_count == 1
    assert pipeline.is_idle()
    assert asked.call_count == 2
    broker.delete(pipeline.topic)
    for work in ("run", "refresh"):
        with pytest.raises(SourceReadError, match="There is no topic"):
            pipeline.do(work)
    with pytest.raises(SourceReadError, match="There is no topic"):
        pipeline.is_idle()
    assert pipeline.rows() == {1: 1, 2: 1}


def test_steps_have_about_as_many_bytes_as_they_may_by_the_size_of_the_last_one_s_records(over):
    set_limits(first_offsets=4)
    pipeline = over(source={"max_bytes_per_step": 10_000})
    pipeline.send(*(up(n, 1, v="x" * 100) for n in range(40)), *(up(40 + n, 1, v="x" * 4_900) for n in range(9)))
    records = [step.records for step in pipeline.run().steps if step.kind == "batch"]
    # Twice as many each time, then too many large ones at once, and from then on two of these.
    assert records == [4, 8, 16, 21]
    pipeline.send(*(up(60 + n, 1, v="x" * 4_900) for n in range(5)))
    n_offsets = int(Path(pipeline.home, "plan.json.offsets").read_text())
    assert 3 <= n_offsets <= 5  # 21 records of 2.2 KB
    records = [step.records for step in pipeline.run().steps if step.kind == "batch"]
    assert (sum(records), records[1:]) == (5, [5 - records[0]])
    assert len(pipeline.rows()) == 54


@pytest.mark.parametrize("n_anew", [1, 8])
def test_topic_made_anew_is_refused_with_fewer_or_more_records_and_refresh_reads_it_if_the_loss_is_accepted(
    over, broker, n_anew
):
    pipeline = over()
    pipeline.send(up(1, 1), up(2, 1), up(3, 1))
    pipeline.run()
    broker.delete(pipeline.topic)
    broker.create(pipeline.topic, 3)
    pipeline.send(*(up(10 + number, 1) for number in range(n_anew)))
    for _ in range(2):
        with pytest.raises(SourceLostError, match=r"deleted and recreated.*topic id.*ebbtide refresh"):
            pipeline.run()
        with pytest.raises(SourceLostError):
            pipeline.is_idle()
    with pytest.raises(SourceLostError, match=r"would lose.*all that was read of .*topic"):
        pipeline.do("refresh")
    assert pipeline.rows() == {1: 1, 2: 1, 3: 1}
    pipeline.do("refresh", accept_loss=True)
    assert pipeline.rows() == {10 + number: 1 for number in range(n_anew)}


def recreated_after_a_step(pipeline, *values):
    """Return a listener that recreates the topic once a step was made, with other records."""

    def on_progress(step):
        if step.step == 1:
            pipeline.broker.delete(pipeline.topic)
            pipeline.broker.create(pipeline.topic, 3)
            pipeline.send(*values)

    return on_progress


@pytest.mark.parametrize("follows", [False, True])
def test_topic_made_anew_between_two_steps_of_a_run_is_refused_before_the_second_is_decided(over, follows):
    pipeline = over(source={"max_records_per_step": 2})
    pipeline.send(*(up(number, 1) for number in range(5)))
    recreate = recreated_after_a_step(pipeline, *(up(10 + number, 1) for number in range(9)))
    how = {"follow": Following(interval_ms=1)} if follows else {}
    with pytest.raises(SourceLostError, match=r"deleted and recreated.*topic id.*ebbtide refresh"):
        pipeline.run(on_progress=recreate, **how)
    assert pipeline.ranges() == ({"0": 0, "1": 0, "2": 0}, {"0": 2, "1": 0, "2": 0})
    assert pipeline.rows() == {0: 1, 1: 1}
    pipeline.run(accept_loss=True)
    assert set(pipeline.rows()) == {0, 1, *range(10, 19)}
    assert [lost.partition(" was deleted")[0] for lost in pipeline.losses()] == [f"Topic '{pipeline.topic}'"]


def test_records_that_retention_took_before_they_were_read_are_refused(over, broker):
    pipeline = over()
    pipeline.send(up(1, 1), up(2, 1))
    pipeline.run()
    broker.delete_below(pipeline.topic, {0: 2})
    assert pipeline.run().totals["records"] == 0  # they were read
    pipeline.send(up(3, 1), up(4, 1))
    broker.delete_below(pipeline.topic, {0: 3})
    with pytest.raises(SourceLostError, match=r"partition 0: 2 is next, it has only from 3.*ebbtide refresh"):
        pipeline.run()


def test_records_deleted_between_plan_and_reading_are_refused_and_nothing_is_committed(over, broker, monkeypatch):
    pipeline = over()
    pipeline.send(up(1, 1), up(2, 1))
    stage = reading.stage

    def stage_late(*args):
        broker.delete_below(pipeline.topic, {0: 1})
        return stage(*args)

    monkeypatch.setattr(reading, "stage", stage_late)
    with pytest.raises(SourceLostError, match=r"deleted while they were to be read"):
        pipeline.run()
    assert pipeline.plan.state.last() is None


def test_other_start_counts_as_long_as_no_step_has_read(over):
    pipeline = over(quarantine={"max_rows_per_step": 1})
    pipeline.send("{", "[", up(1, 1))
    with pytest.raises(QuarantineThresholdError):
        pipeline.run()
    pipeline.spec = pipeline.with_fields(source={"start": {"offsets": {0: 2}}})
    pipeline.run()
    assert (pipeline.rows(), pipeline.last.read.records) == ({1: 1}, 1)
    pipeline.spec = pipeline.with_fields(source={"start": "earliest"})
    pipeline.send(up(2, 2))
    pipeline.run()
    assert pipeline.last.read.records == 1, "from now on steps record where reading goes on"


@pytest.mark.parametrize(
    ("start", "rows"),
    [
        ("earliest", {1, 2, 3, 4}),
        ("latest", {4}),
        ({"timestamp": "1970-01-01T00:00:02Z"}, {2, 3, 4}),
        ({"offsets": {0: 2}}, {3, 4}),
    ],
)
def test_first_step_begins_where_the_spec_says_as_of_the_first_run(over, start, rows):
    pipeline = over(source={"start": start})
    for second in (1, 2, 3):
        value = up(second, 1).encode()
        pipeline.broker.put(pipeline.topic, [{"partition": 0, "value": value, "timestamp": 1_000 * second}])
    pipeline.run()  # of the latest there is nothing, and no step
    pipeline.send(up(4, 1))
    pipeline.run()
    assert set(pipeline.rows()) == rows


def test_refresh_whose_start_the_topic_has_no_more_is_refused_and_leaves_the_tables(over, broker):
    pipeline = over(source={"start": {"offsets": {0: 2}}})
    pipeline.send(*(up(number, 1) for number in range(5)))
    pipeline.run()
    broker.delete_below(pipeline.topic, {0: 4})
    with pytest.raises(ConfigError, match=r"partition 0: 2\. Allowed: partition 0: 4 to 5"):
        pipeline.do("refresh")
    assert set(pipeline.rows()) == {2, 3, 4}


def test_refresh_from_the_end_of_a_topic_is_refused_and_leaves_the_tables(over):
    pipeline = over(source={"start": "latest"})
    pipeline.run()
    pipeline.send(up(1, 1), up(2, 1))
    pipeline.run()
    with pytest.raises(ConfigError, match=r"read no present record.*source.start: latest.*backfill start"):
        pipeline.do("refresh")
    assert set(pipeline.rows()) == {1, 2}
    pipeline.spec = pipeline.with_fields(source={"start": "earliest"})
    pipeline.do("refresh")
    assert set(pipeline.rows()) == {1, 2}


def test_refresh_without_records_that_were_read_is_refused_and_leaves_the_tables(over, broker):
    pipeline = over()
    pipeline.send(*(up(number, 1) for number in range(4)))
    pipeline.run()
    pipeline.send(up(4, 1), partition=1)
    pipeline.run()
    broker.delete_below(pipeline.topic, {0: 3})
    with pytest.raises(SourceLostError, match=r"partition 0: 0 to 4 was read, 3 to 4 is there\. Allowed"):
        pipeline.do("refresh")
    assert set(pipeline.rows()) == set(range(5))
    pipeline.do("refresh", accept_loss=True)
    assert (set(pipeline.rows()), len(pipeline.losses())) == ({3, 4}, 1)
    pipeline.do("refresh")
    assert len(pipeline.losses()) == 1, "reading began at 3 since"


def test_refresh_from_a_later_start_is_refused_until_the_loss_is_accepted(over):
    pipeline = over()
    pipeline.send(up(1, 1), up(2, 1))
    pipeline.run()
    pipeline.spec = pipeline.with_fields(source={"start": {"offsets": {0: 1}}})
    with pytest.raises(SourceLostError, match="partition 0: 0 to 2 was read, 1 to 2 is there"):
        pipeline.do("refresh")
    pipeline.do("refresh", accept_loss=True)
    assert set(pipeline.rows()) == {2}


def test_steps_tell_where_the_first_batch_began_over_a_rewind_and_of_steps_that_did_not_tell(over):
    pipeline = over(source={"start": {"offsets": {0: 1}}})
    pipeline.send(up(1, 1), up(2, 1))
    pipeline.run()
    pipeline.send(up(3, 1))
    pipeline.run()
    pipeline.do("rewind")
    assert pipeline.rows() == {2: 1}
    assert [step.records for step in pipeline.run().steps if step.kind == "batch"] == [1], "back in the topic, too"
    assert pipeline.rows() == {2: 1, 3: 1}
    assert pipeline.last.source.start["from"] == {"0": 1, "1": 0, "2": 0}
    with pipeline.stepper() as stepper:
        last = stepper.head.facts
        older = last.model_copy(update={"source": last.source.model_copy(update={"start": None})})
        stepper.head = replace(stepper.head, facts=older)
        assert stepper.source_start.start == {0: 2, 1: 0, 2: 0}, "the last batch's, as the incarnation is new"


def test_aborted_transactions_and_compacted_records_leave_holes_that_end_no_range(over, broker, topic):
    pipeline = over()
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions(10)
    for number, ending in enumerate(["commit", "abort", "commit", "abort"]):
        producer.begin_transaction()
        for id_ in range(3):
            producer.produce(topic, up(10 * number + id_, 1).encode(), partition=0)
        producer.flush(10)  # or what is aborted would never be sent
        getattr(producer, f"{ending}_transaction")(10)
    assert pipeline.run().totals["records"] == 6
    assert pipeline.ranges()[1]["0"] == 16  # twelve records and four markers
    assert set(pipeline.rows()) == {0, 1, 2, 20, 21, 22}
    producer.begin_transaction()
    producer.produce(topic, up(50, 1).encode(), partition=0)
    producer.flush(10)
    assert pipeline.run().totals["records"] == 0  # nothing of an open one
    producer.commit_transaction(10)
    assert pipeline.run().totals["records"] == 1


def test_compacted_topic_has_holes_that_end_no_range(broker, topic, over):
    compacted = f"{topic}.compacted"
    settings = {"segment_bytes": str(2**20), "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": "1"}
    broker.create(compacted, 1, cleanup_policy="compact", **settings)
    pipeline = over(source={"topic": compacted, "max_records_per_step": 40})
    filler = "x" * 30_000
    records = [
        {"partition": 0, "key": str(n % 4).encode(), "value": up(n % 4, n, v=filler).encode()} for n in range(200)
    ]
    broker.put(compacted, records)
    wait_until(lambda: len(offsets_of(broker, compacted)) < 150)
    there = offsets_of(broker, compacted)
    steps = [step.records for step in pipeline.run().steps if step.kind == "batch"]
    assert sum(steps) <= len(there)
    assert pipeline.ranges()[1]["0"] == 200
    assert pipeline.rows() == {0: 196, 1: 197, 2: 198, 3: 199}


def test_record_of_20_mb_is_read_where_it_may_be_and_else_is_bad(over, broker):
    large = up(1, 1, v="x" * 20_000_000).encode()
    strict = over()
    broker.put(strict.topic, [{"partition": 0, "value": large}], **{"message.max.bytes": 30_000_000})
    strict.run()
    [bad] = strict.plan.quarantine.records(Selection()).to_pylist()
    assert (bad["reason"], len(bad["raw"]) < 17_000_000) == ("too_large", True)
    lenient = over(quarantine={"max_record_bytes": 32 * 2**20})
    lenient.root = f"{strict.root}.lenient"
    lenient.run()
    assert lenient.rows() == {1: 1}


def test_partition_that_is_added_while_a_run_goes_on_is_read_from_its_first_record(over, broker):
    set_limits(whole_look_s=0.1)
    pipeline = over()
    pipeline.send(up(1, 1))
    stop = threading.Event()

    def on_progress(step):
        if step.step == 1:
            broker.add_partition(pipeline.topic, 4)
            pipeline.send(up(2, 2), up(3, 3), partition=3)
        elif len(pipeline.rows()) == 3:
            stop.set()

    pipeline.follow(Following(interval_ms=1), on_progress, stop)
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}
    assert pipeline.ranges()[1]["3"] == 2


def offsets_of(broker, topic):
    """The offsets of the records that a topic of one partition has."""
    settings = {
        "bootstrap.servers": broker.servers,
        "group.id": "look",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(10)
        if message is None or message.error():
            consumer.close()
            return found
        found.append(message.offset())


def wait_until_read_up_to(broker, topic, end):
    """A transaction ends at the brokers some time after its producer's call."""
    wait_until(lambda: everything_of(broker, topic)[0].end[0] == end)


def wait_until_listed(broker, topic):
    """The controller knows of a topic before the broker lists it."""
    client = Client(broker.servers, {}, "test")
    wait_until(lambda: topic in topic_names(client))


def wait_until(is_so):
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_delete_of_which_only_the_tombstone_came_fails_the_check_and_one_that_came_whole_does_not(
    broker, topic, tmp_path
):
    set_limits(records_in_driver=0)  # by tasks
    spec = over_topic(debezium("id BIGINT NOT NULL, n INT", source={"path": "unused"}), broker, topic)
    rows = [json.dumps(envelope("c", n, after={"id": n, "n": n})) for n in (1, 2)]
    broker.put(topic, [{"partition": 0, "key": b'{"id": %d}' % n, "value": row} for n, row in enumerate(rows, 1)])
    gone = json.dumps(envelope("d", 3, before={"id": 1, "n": 0}))
    broker.put(topic, [{"partition": 0, "key": b'{"id": 1}', "value": value} for value in (gone, None)])
    assert ebbtide.run(SPARK, spec, str(tmp_path)).totals["lone_tombstones"] == 0
    tables = Plan.under(str(tmp_path), spec)
    assert n_broken(tables, "source_loss") == 0
    broker.put(topic, [{"partition": 0, "key": b'{"id": 2}', "value": None}])
    [step] = ebbtide.run(SPARK, spec, str(tmp_path)).steps
    assert (step.counts["lone_tombstones"], "1 lone tombstones" in step.line()) == (1, True)
    assert n_broken(tables, "source_loss") == 1


def test_tombstones_large_records_and_bytes_that_are_no_text_are_counted_or_quarantined_and_can_be_replayed(over):
    pipeline = over(quarantine={"max_record_bytes": 2_000})
    large = up(7, 1, text="x" * 3_000_000).encode()
    values = [up(1, 1).encode(), None, b"\xff{", large, b"{", b""]
    records = [{"partition": 0, "value": value, "key": b"\xfe"} for value in values[:2]]
    records += [{"partition": 0, "value": value, "key": b"k"} for value in values[2:]]
    pipeline.broker.put(pipeline.topic, records, **{"message.max.bytes": 10_000_000})
    summary = pipeline.run()
    assert (summary.totals["records"], summary.totals["quarantined"]) == (6, 4)
    bad = pipeline.plan.quarantine.records(Selection()).to_pylist()
    assert [record["reason"] for record in bad] == ["not_utf8", "too_large", "bad_json", "bad_json"]
    assert [record["origin"]["position"] for record in bad] == [2, 3, 4, 5]
    assert len(bad[1]["raw"]) <= 2_001 + 200
    assert json.loads(bad[2]["raw"])["key"] == "k"
    pipeline.do("drop")


@pytest.mark.parametrize(
    "order", [(0, 1, 2), *(pytest.param(order, marks=pytest.mark.grid) for order in ((0, 2, 1), (1, 0, 2)))]
)
def test_value_left_out_as_its_row_changed_the_key_is_found_by_headers_in_other_steps(over, order):
    debezium = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}}
    pipeline = over(**debezium, schema="id BIGINT NOT NULL, n BIGINT, v STRING", key=["id"])
    gone = envelope("d", 2, before={"id": 1, "n": 0, "v": None})
    left_out = envelope("c", 2, after={"id": 2, "n": 2, "v": UNAVAILABLE})
    records = [
        {"partition": 0, "value": json.dumps(envelope("c", 1, after={"id": 1, "n": 1, "v": "long"}))},
        {"partition": 1, "value": json.dumps(left_out), "headers": [("__debezium.oldkey", b'{"id":1}')]},
        {"partition": 2, "value": json.dumps(gone), "headers": [("__debezium.newkey", b'{"id":2}')]},
    ]
    for each in order:
        pipeline.broker.put(pipeline.topic, [records[each]])
        pipeline.run()
    [row] = pipeline.table("sink", pipeline.spec.sink_table.columns)
    assert (row["id"], row["v"]) == (2, "long")


def test_by_arrival_partitions_interleave_by_the_greatest_time_so_far_then_by_their_number(over):
    pipeline = over(order="arrival")
    sent = [(0, 1, 10), (0, 2, 5), (1, 3, 7), (1, 4, 12), (2, 5, 10)]
    for partition, n, time_ms in sent:
        value = up(1, n, "+I").encode()
        pipeline.broker.put(pipeline.topic, [{"partition": partition, "value": value, "timestamp": time_ms}])
    pipeline.run()
    # 3 at 7; then, all at 10, partition 0 with 1 and 2 and partition 2 with 5; then 4 at 12.
    assert pipeline.rows() == {1: 4}
    batch = pipeline.plan.source.batch(SPARK, pipeline.last.source.position, 1_000_000)
    [order] = batch.records.run(lambda given: json.dumps(_values_in_order(given)))
    assert json.loads(order) == [3, 1, 2, 5, 4]


def _values_in_order(batches):
    rows = [row for batch in batches for row in batch.to_pylist()]
    rows.sort(key=lambda row: (row["part"], row["line"]))
    return [json.loads(row["value"])["row"]["n"] for row in rows]


def test_record_whose_transform_fails_is_quarantined_with_its_place(over):
    pipeline = over(
        transform={"schema": "id BIGINT, n INT", "select": {"id": "id", "n": "1 / n"}, "key": ["id"]},
    )
    assert pipeline.spec.has_transform
    pipeline.send(up(1, 0), up(2, 1))
    offset = pipeline.plan.source.discover({}, 0).span.to_json()
    batch = pipeline.plan.source.batch(SPARK, offset, 1_000_000)
    found = RecordsOfBatch(batch.records, pipeline.plan.decoding, 3)([(3, 0, 1)])
    [(origin, raw)] = found.values()
    assert (origin["source"], origin["partition"], origin["position"]) == (pipeline.topic, 0, 1)
    assert json.loads(json.loads(raw)["value"])["row"]["id"] == 2


def test_broker_topic_password_and_variable_that_are_wrong_are_named(over, broker, shell):
    to_sasl = {"bootstrap_servers": broker.sasl_servers, "properties": SASL}
    shell.unset("EBBTIDE_TEST_PASSWORD")
    with pytest.raises(ConfigError, match=r"a variable that is not set.*EBBTIDE_TEST_PASSWORD"):
        over(source=to_sasl).run()
    shell.export(EBBTIDE_TEST_PASSWORD="wrong-password")
    with pytest.raises(SourceReadError, match=r"refuse the client's credentials.*sasl.password") as refused:
        over(source=to_sasl).run()
    assert "wrong-password" not in str(refused.value)
    set_limits(answer_s=2.0)
    with pytest.raises(SourceUnavailableError, match=r"do not answer.*Connection refused.*bootstrap_servers"):
        over(source={"bootstrap_servers": f"127.0.0.1:{free_port()}"}).run()
    with pytest.raises(SourceReadError, match=r"There is no topic 'none'.*source.topic"):
        over(source={"topic": "none"}).run()


def test_certificates_of_an_authority_that_is_not_trusted_are_named_and_those_of_one_that_is_let_in(
    over, broker, tmp_path
):
    other = Authority(tmp_path, "other")
    pipelines = {}
    for authority in (other, broker.authority):
        properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority.path)}
        pipelines[authority] = over(source={"bootstrap_servers": broker.ssl_servers, "properties": properties})
    with pytest.raises(SourceReadError, match=r"No secure connection.*certificate.*ssl"):
        pipelines[other].run()
    trusted = pipelines[broker.authority]
    trusted.send(up(1, 1))
    trusted.run()
    assert trusted.rows() == {1: 1}


def test_scram_over_tls_lets_in_who_has_the_password(over, broker, shell, tmp_path):
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": "${EBBTIDE_TEST_PASSWORD}",
        "ssl.ca.location": str(broker.authority.path),
    }
    pipeline = over(source={"bootstrap_servers": broker.scram_servers, "properties": properties})
    pipeline.send(up(1, 1))
    shell.export(EBBTIDE_TEST_PASSWORD="wrong-password")
    with pytest.raises(SourceReadError, match=r"refuse the client's credentials.*sasl.password") as refused:
        pipeline.run()
    assert "wrong-password" not in str(refused.value)
    shell.export(EBBTIDE_TEST_PASSWORD=PASSWORD)
    pipeline.run()
    assert pipeline.rows() == {1: 1}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()], "it stands in no file"


def test_client_that_may_describe_a_topic_and_not_read_it_is_told_at_once(over, broker, shell):
    shell.export(EBBTIDE_TEST_PASSWORD=PASSWORD)
    pipeline = over(source={"bootstrap_servers": broker.sasl_servers, "properties": SASL})
    pipeline.send(up(1, 1))
    broker.permit(ResourceType.TOPIC, pipeline.topic, AclOperation.DESCRIBE)
    with pytest.raises(SourceReadError, match=r"may not read topic.*TOPIC_AUTHORIZATION_FAILED.*Read"):
        pipeline.run()
    broker.permit(ResourceType.TOPIC, pipeline.topic, AclOperation.READ)
    # Of a group nothing is needed: it is never joined.
    broker.permit(ResourceType.GROUP, "ebbtide-t", AclOperation.ALL, AclPermissionType.DENY)
    pipeline.run()
    assert pipeline.rows() == {1: 1}


def test_credentials_that_are_refused_while_records_are_to_be_read_are_told_at_once(over, broker):
    pipeline = over()
    pipeline.send(up(1, 1))
    found = pipeline.plan.source.discover({}, 0).span
    settings = Client(broker.sasl_servers, {**SASL, "sasl.password": "wrong-password"}, "test").settings()
    reading = Reading(settings, in_order=False, max_value_bytes=1_000)
    with pytest.raises(SourceReadError, match=r"refuse the client's credentials.*sasl.password"):
        list(reading(found))


def test_silence_of_the_brokers_names_the_last_error(over):
    set_limits(silence_s=1.5)
    pipeline = over()
    pipeline.send(up(1, 1))
    found = pipeline.plan.source.discover({}, 0).span
    settings = Client(f"127.0.0.1:{free_port()}", {}, "test").settings()
    reading = Reading(settings, in_order=False, max_value_bytes=1_000)
    with pytest.raises(SourceUnavailableError, match=r"Got: partition 0; last error: _(ALL_BROKERS_DOWN|TRANSPORT): "):
        list(reading(found))


@pytest.mark.parametrize(("place", "kind"), [("a batch is decided", "batch"), ("the sink is written", "replay")])
def test_run_that_died_in_its_second_step_is_finished_by_the_next(over, place, kind):
    """Killed by SIGKILL: the grid's, above, and over files `test_crashes.py`."""
    pipeline = over(source={"max_records_per_step": 6})
    pipeline.send(*(up(number % 5, number) for number in range(6)))
    pipeline.run()
    pipeline.send(*(up(number % 5, number) for number in range(6, 12)))
    with killed_before(place):
        pipeline.run()
    assert [(step.kind, step.records) for step in pipeline.run().steps] == [(kind, 6)]
    assert pipeline.rows() == {0: 10, 1: 11, 2: 7, 3: 8, 4: 9}
    assert pipeline.ranges() == ({"0": 6, "1": 0, "2": 0}, {"0": 12, "1": 0, "2": 0})


def test_records_that_come_while_a_run_goes_on_are_read_and_facts_follow_on_each_other(over):
    pipeline = over()
    pipeline.send(up(1, 1))
    stop = threading.Event()

    def on_progress(step):
        if step.step < 3:
            pipeline.send(up(step.step + 1, 1), partition=step.step)
        else:
            stop.set()

    pipeline.follow(Following(interval_ms=1), on_progress, stop)
    assert pipeline.rows() == {1: 1, 2: 1, 3: 1}
    assert pipeline.ranges() == ({"0": 1, "1": 1, "2": 0}, {"0": 1, "1": 1, "2": 1})


def test_topic_that_has_no_record_yet_is_followed(over):
    pipeline = over()
    stop = threading.Event()
    pipeline.follow(
        Following(interval_ms=1), lambda step: stop.set() if step.records else pipeline.send(up(1, 1)), stop
    )
    assert pipeline.rows() == {1: 1}
    assert pipeline.ranges() == ({"0": 0, "1": 0, "2": 0}, {"0": 1, "1": 0, "2": 0})


def test_looks_are_made_by_one_client_until_it_fails_or_its_settings_are_others(broker, topic, monkeypatch):
    client = Client(broker.servers, {}, topic)
    client_module._kept.clear()  # one of another test has the same settings
    made = Mock(side_effect=client_module.Connection)
    monkeypatch.setattr(client_module, "Connection", made)
    for _ in range(5):
        ask(client, topic)
        identify(client, topic)
    assert made.call_count == 1
    for fails in (KafkaException(KafkaError(KafkaError._TRANSPORT)), SourceUnavailableError("gone")):
        with monkeypatch.context() as patch:
            patch.setattr(client_module.Asking, "answer", failing_if_kept(fails))
            assert identify(client, topic).identity["topic"] == topic
    assert made.call_count == 3
    identify(replace(client, name="another pipeline"), topic)
    assert made.call_count == 3, "pipelines share it"
    with pytest.raises(SourceReadError, match="There is no topic"):
        identify(client, f"{topic}.none")
    assert made.call_count == 4, "the answer of an old one is not believed"
    ask(replace(client, properties={"client.id": "other"}), topic)
    assert made.call_count == 5


# Its twin over files: tests/cli/test_following.py::test_fleet_that_was_killed_goes_on_with_all_its_pipelines
@pytest.mark.grid
def test_fleet_over_topics_that_was_killed_goes_on_with_all_of_them(broker, tmp_path):
    project = Project(tmp_path, broker=broker)
    for name in NAMES:
        project.put(name, 3)
    killed = project.follow("--engine", "local")
    project.wait(killed, "a")
    for name in NAMES:
        project.put(name, 50)
    killed.kill()
    killed.communicate(timeout=PATIENCE_S)
    again = project.follow("--engine", "local")
    for name in NAMES:
        project.put(name, 5)
    project.wait(again, *NAMES)
    again.terminate()
    again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0


def failing_if_kept(error):
    answer = client_module.Asking.answer

    def answer_or_fail(asking, future):
        if asking.is_kept:
            raise error
        return answer(asking, future)

    return answer_or_fail


def test_slow_brokers_have_the_whole_time_for_each_question(broker, topic, monkeypatch):
    clock = itertools.count(0, 3)  # each answer takes as long
    now = [next(clock)]
    answer = client_module.Asking.answer

    def slow(asking, future):
        result = answer(asking, future)
        now[0] = next(clock)
        are_late.append(asking.is_late)
        return result

    are_late = []
    monkeypatch.setattr(client_module.Asking, "answer", slow)
    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    single = f"{topic}.single"
    broker.create(single)
    ask(Client(broker.servers, {}, "test"), single)
    assert are_late == [False] * 4, "cluster, topic, earliest and latest"


@pytest.mark.grid
def test_broker_that_is_away_for_a_while_is_waited_for(over, broker, monkeypatch):
    pipeline = over()
    pipeline.send(up(1, 1))
    stop = threading.Event()
    faults = []

    def wait_after(self, error):
        faults.append(error)
        broker.start()
        pipeline.send(up(2, 1))
        return 0.0

    monkeypatch.setattr(Faults, "wait_after", wait_after)
    set_limits(answer_s=1.0)
    pipeline.follow(Following(interval_ms=1), lambda step: broker.stop() if step.step == 1 else stop.set(), stop)
    assert [type(fault) for fault in faults] == [SourceUnavailableError]
    assert pipeline.rows() == {1: 1, 2: 1}


@pytest.mark.grid
def test_partition_without_a_leader_is_waited_for_and_told(over, broker, topic):
    lost = topic + ".lost"
    with broker.beside() as second:
        broker.create_on(lost, 1, 2)
        pipeline = over(source={"topic": lost})
        broker.put(lost, [*plainly(up(1, 1)), *plainly(up(2, 1), partition=1)])
        second.kill()
        reported = ""
        while "has no leader" not in reported:  # at first the other brokers do not know yet
            with pytest.raises(SourceUnavailableError) as raised:
                pipeline.run()
            reported = str(raised.value)
    assert f"A partition of topic '{lost}' has no leader" in reported


def test_lag_is_told_per_partition_and_by_the_oldest_record(over, broker, topic):
    pipeline = over()
    for partition, age_ms, change in ((0, 7_000, up(1, 1)), (0, 6_000, up(2, 2)), (2, 5_000, up(3, 3))):
        broker.put(topic, plainly(change, partition=partition, timestamp=LATER - age_ms))
    found = Lag.of(pipeline.spec, pipeline.root, LATER)
    assert (dict(found.backlog.records), found.behind_ms) == ({0: 2, 1: 0, 2: 1}, 7_000)
    assert found.text() == "waiting: 3 records (partition 0: 2, 2: 1), the oldest for 7 s"
    reported = {name: value.value for name, value in _observation(pipeline.spec, found).metadata.items()}
    assert reported == {
        "held_records": 0,
        "waiting_records": 3,
        "waiting_records_0": 2,
        "waiting_records_1": 0,
        "waiting_records_2": 1,
        "waiting_seconds": 7.0,
        "waiting_seconds_0": 7.0,
        "waiting_seconds_1": 0.0,
        "waiting_seconds_2": 5.0,
    }
    pipeline.run()
    done = Lag.of(pipeline.spec, pipeline.root, LATER)
    assert done.text() == "nothing waits"
    assert {value.value for value in _observation(pipeline.spec, done).metadata.values()} == {0}, "no gap in a plot"
    broker.put(topic, plainly(up(1, 4), partition=2, timestamp=LATER - 1_000))
    again = Lag.of(pipeline.spec, pipeline.root, LATER)
    assert (dict(again.backlog.records), again.behind_ms) == ({0: 0, 1: 0, 2: 1}, 1_000)
    assert again.fingerprint != found.fingerprint


def test_lag_has_the_oldest_record_of_each_partition_where_much_waits(over, broker, topic):
    long = "x" * 3_000
    broker.put(topic, [{"partition": n % 3, "value": long, "timestamp": LATER - n} for n in range(2_100)])
    pipeline = over()
    for read in (1, 2, 3):
        found = Lag.of(pipeline.spec, pipeline.root, LATER)
        assert dict(found.backlog.oldest_ms) == {0: LATER, 1: LATER - 1, 2: LATER - 2}, read


class Watched(Consumer):
    """A consumer of which is known what it gave, where it could wait for some, and how many bytes and answers it got of the brokers."""

    given: list
    n_bytes: list
    n_fetches: list

    def __init__(self, settings):
        def note(text):
            reported = json.loads(text)
            self.n_bytes.append(reported["rx_bytes"])
            self.n_fetches.append(sum(each["req"].get("Fetch", 0) for each in reported["brokers"].values()))

        super().__init__({**settings, "statistics.interval.ms": 10, "stats_cb": note})

    def consume(self, n, timeout):
        messages = super().consume(n, timeout=timeout)
        if messages or timeout:
            self.given.append(messages)
        return messages


@pytest.fixture
def watched(monkeypatch):
    Watched.given = []
    Watched.n_bytes = [0]
    Watched.n_fetches = [0]
    monkeypatch.setattr(confluent_kafka, "Consumer", Watched)
    return Watched


def everything_of(broker, topic):
    """What is there of a topic, and what reads it."""
    client = Client(broker.servers, {}, "test")
    found = KafkaSource(client, topic, SourceSettings("test")).beginning()
    return found, Reading(client.settings(), in_order=False, max_value_bytes=2**20)


def test_range_that_ends_behind_a_transaction_is_read_without_a_wait(broker, topic, watched):
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.commit_transaction(10)
    wait_until_read_up_to(broker, topic, 2)  # a record and a marker
    whole, reading = everything_of(broker, topic)
    n_waited = 0
    for _ in range(4):
        watched.given.clear()
        assert sum(len(batch) for batch in reading(whole)) == 1
        first = next(number for number, messages in enumerate(watched.given) if messages)
        n_waited += not all(watched.given[first:])
    assert n_waited < 4  # held back for half a second, the end is waited for each time


def test_small_step_over_many_partitions_takes_little_more_of_the_brokers_than_it_reads(broker, watched):
    wide = f"wide.{time.monotonic_ns()}"
    broker.create(wide, 32)
    records = [{"partition": n % 32, "value": "x" * 1_000} for n in range(32 * 200)]
    broker.put(wide, records, **{"batch.size": 16_384})
    whole, reading = everything_of(broker, wide)
    batches = list(reading(whole.first(320)))
    assert [len(batch) for batch in batches] == [10] * 32
    assert max(watched.n_bytes) < 5_000_000, "of 6,400,000"


def test_task_holds_no_more_of_all_its_partitions_than_it_may(broker, topic):
    set_limits(reading_held_bytes=2**20)
    values = ["x" * 100_000] * 90
    broker.put(topic, [{"partition": n % 3, "value": value} for n, value in enumerate(values)])
    whole, reading = everything_of(broker, topic)
    places = []
    for batch in reading(whole):
        places += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    n_changes = sum(one != other for (one, _), (other, _) in itertools.pairwise(places))
    assert n_changes > 2, "none is held until its end"
    assert sorted(places) == sorted(places, key=lambda place: place[0]) == [(p, n) for p in range(3) for n in range(30)]


def test_lag_takes_few_records_more_than_one_of_each_partition_in_few_answers(over, broker, watched):
    pipeline = over(source={"topic": f"wide.{time.monotonic_ns()}"})
    wide = pipeline.spec.source.topic
    broker.create(wide, 48, retention_ms="-1")
    records = [{"partition": n % 48, "value": "x" * 1_000, "timestamp": LATER - n % 48} for n in range(48 * 200)]
    broker.put(wide, records, **{"batch.size": 16_384})
    found = Lag.of(pipeline.spec, pipeline.root, LATER)
    assert dict(found.behind_ms_of) == {number: number for number in range(48)}
    assert sum(len(messages) for messages in watched.given) < 2 * 48
    assert max(watched.n_fetches) < 24


def test_what_an_open_transaction_holds_is_told_with_how_long_and_launches_nothing(over, broker, topic):
    pipeline = over()
    pipeline.send(up(1, 1))
    pipeline.run()
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, up(2, 2).encode(), partition=0, timestamp=LATER - 9_000)
    producer.flush(10)
    broker.put(topic, plainly(up(3, 3), up(4, 4), timestamp=LATER - 8_000))
    broker.put(topic, plainly(up(5, 5), partition=1, timestamp=LATER - 7_000))
    found = Lag.of(pipeline.spec, pipeline.root, LATER)
    assert found.text() == (
        "waiting: 1 record (partition 1: 1), held by an open transaction: 3 records (partition 0: 3), the oldest for 9 s"
    )
    pipeline.run()
    found = Lag.of(pipeline.spec, pipeline.root, LATER)
    assert (found.backlog.is_empty, found.behind_ms, found.as_dict()["held"]) == (True, 9_000, {0: 3})
    assert found.text() == "held by an open transaction: 3 records (partition 0: 3), the oldest for 9 s"
    plotted = {name: value.value for name, value in _observation(pipeline.spec, found).metadata.items()}
    assert (plotted["held_records"], plotted["waiting_records"], plotted["waiting_seconds"]) == (3, 0, 9.0)
    scraped = samples_of(MetricsAtRest.of([pipeline.spec], pipeline.root, LATER).text)
    assert (scraped["ebbtide_lag_records",], scraped["ebbtide_lag_seconds",]) == (0, 9)
    assert fires("EbbtideOpenTransaction", scraped, scraped)
    watched = WatchedRun(pipeline.spec, pipeline.root, 60, lambda: LATER)
    with pipeline.stepper() as stepper:
        watched.look(Look(SourceSteps(stepper), Discovery(), 0))
        fleet = WatchedFleet([watched], pipeline.root)
        fleet.measure()
    of_run = samples_of(text_of(fleet))
    names = ("ebbtide_lag_records", "ebbtide_lag_held_records", "ebbtide_lag_seconds", "ebbtide_state_rows")
    assert [of_run[name,] for name in names] == [scraped[name,] for name in names]
    [sensor] = pipeline_definitions(pipeline.spec).sensors
    resources = {"storage": StorageResource(root=pipeline.root), "clock": ClockResource()}
    cursor = json.dumps({"seen": {pipeline.spec.name: found.fingerprint}})
    with dg.build_sensor_context(dg.DagsterInstance.ephemeral(), cursor, resources=resources) as context:
        looked = sensor(context)
    assert (looked.run_requests, len(looked.asset_events)) == ([], 1), "its age is plotted, though nothing comes"
    producer.commit_transaction(10)
    wait_until_read_up_to(broker, topic, 5)
    done = Lag.of(pipeline.spec, pipeline.root, LATER).backlog
    assert (dict(done.records), dict(done.held)) == ({0: 4, 1: 0, 2: 0}, {})


def put_aborted(broker, topic, n):
    """Records of a transaction that was aborted, in partition 0."""
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    for _ in range(n):
        producer.produce(topic, b"aborted", partition=0)
    producer.flush(10)
    producer.abort_transaction(10)


def test_lag_tells_no_time_of_a_partition_where_only_aborted_records_wait(broker, topic):
    put_aborted(broker, topic, 3)
    broker.put(topic, plainly("behind them"))
    wait_until_read_up_to(broker, topic, 5)
    settings = Client(broker.servers, {}, "test").settings()
    aborted, whole = (Span({"topic": topic}, {0: 0}, {0: end}) for end in (4, 5))
    assert first_times(settings, aborted) == {}
    assert set(first_times(settings, whole)) == {0}


def test_new_proposes_a_spec_by_the_records_of_a_topic(broker, topic, tmp_path, shell):
    lines = [line for line in lines_of(SHOP / "capture") if b'"topic": "shop.public.orders"' in line]
    broker.put(topic, records_of(lines))
    (tmp_path / "pyproject.toml").touch()
    shell.cd(tmp_path)
    asked = ["new", "orders", "--bootstrap-servers", broker.servers, "--topic", topic, "--sample", "500", "--json"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["records"] > 400, report["bad_records"]) == (True, 0)
    spec = UpsertPipeline.load("pipelines/defs/orders")
    assert (spec.source.topic, spec.key, spec.sequence) == (topic, ["order_id"], ("_lsn",))
    absent = CliRunner().invoke(main, [*asked[:1], "other", *asked[2:5], "no.such.topic"])
    assert absent.exit_code == 5
    assert "There is no topic 'no.such.topic'" in absent.stderr


def test_sample_goes_on_behind_aborted_records_and_tombstones_until_it_has_as_many_as_asked_for(broker, topic):
    put_aborted(broker, topic, 20)
    broker.put(topic, [{"partition": 0, "value": None, "key": b"k"}] * 20)
    broker.put(topic, plainly(*(up(number, 1) for number in range(9))))
    wait_until_read_up_to(broker, topic, 50)
    lines = map(json.loads, KafkaSource(Client(broker.servers, {}, "test"), topic, SourceSettings("test")).sample(5))
    values = [line["value"] for line in lines if line["value"] is not None]
    assert values[:5] == [up(number, 1) for number in range(5)]


def test_new_proposes_one_file_for_all_topics_of_a_pattern_and_those_left_out_are_told(broker, topic, tmp_path, shell):
    for table in ("customers", "orders"):
        lines = [line for line in lines_of(SHOP / "capture") if f'"topic": "shop.public.{table}"'.encode() in line]
        broker.create(f"{topic}.{table}", 3)
        broker.put(f"{topic}.{table}", records_of(lines[:200]))
    broker.create(f"{topic}.empty", 1)
    wait_until_listed(broker, f"{topic}.empty")
    (tmp_path / "pyproject.toml").touch()
    shell.cd(tmp_path)
    asked = ["new", "shop", "--bootstrap-servers", broker.servers, "--topic-pattern", f"{topic}.*", "--json"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(report["spec"], report["bad_records"]) for report in reports] == [
        ("pipelines/defs/shop/customers", 0),
        ("pipelines/defs/shop/orders", 0),
    ]
    orders = load("pipelines/defs/shop/orders")
    assert (orders.name, orders.source.topic, orders.key) == ("orders", f"{topic}.orders", ["order_id"])
    sampled = tmp_path / "tests/pipelines/shop/orders"
    assert {path.name for path in sampled.iterdir()} == {"test_orders.py", "sample.jsonl", "rows.jsonl"}
    reported = CliRunner().invoke(main, ["lag", "pipelines/defs/shop", "--root", str(tmp_path / "root")])
    assert reported.exit_code == 0, reported.output
    assert f"shop: topics like '{topic}.*' that no pipeline reads: {topic}.empty" in reported.output
    assert "orders: " in reported.output


def test_sensor_tells_topics_that_no_pipeline_reads(broker, topic):
    broker.create(f"{topic}.more", 1)
    broker.create(f"{topic}.not", 1)
    wait_until_listed(broker, f"{topic}.not")
    source = {"type": "kafka", "bootstrap_servers": broker.servers, "topic": topic}
    one = {"name": "one", "source": source, "format": {"type": "plain"}, "schema": "id INT", "key": ["id"]}
    patterns = {"topics": f"{topic}*", "ignored_topics": ["*.not"]}
    several = UpsertPipelines(name="s", shared={"order": "arrival"}, pipelines=[one], **patterns)
    context = dg.build_sensor_context()
    found = topics_sensor(several)(context)
    assert (
        found.skip_message
        == f"topics like '{topic}*' that no pipeline reads: {topic}.more; ebbtide new s prints the lines to add"
    )


def test_loss_that_is_accepted_is_noted_once_and_the_run_goes_on_with_what_is_left(over, broker):
    pipeline = over()
    pipeline.send(up(1, 1), up(2, 1))
    pipeline.run(accept_loss=True)  # nothing is lost
    pipeline.send(up(3, 1), up(4, 1))
    broker.delete_below(pipeline.topic, {0: 3})
    kinds = [step.kind for step in pipeline.run(accept_loss=True).steps]
    assert kinds == ["tick", "batch"]
    assert pipeline.rows() == {1: 1, 2: 1, 4: 1}
    assert [lost for lost in pipeline.losses() if "partition 0: 2 is next" in lost] == pipeline.losses()
    assert len(pipeline.losses()) == 1
    assert pipeline.is_idle()
    assert pipeline.run(accept_loss=True).steps == []


def test_loss_that_is_accepted_before_the_first_step_is_noted_with_that(over, broker, monkeypatch):
    pipeline = over()
    pipeline.send(*(up(number, 1) for number in range(5)))
    away = Mock(side_effect=SourceUnavailableError("away"))
    with monkeypatch.context() as patch:
        patch.setattr(reading, "stage", away)
        with pytest.raises(SourceUnavailableError):
            pipeline.run()
        broker.delete_below(pipeline.topic, {0: 2})
        with pytest.raises(SourceUnavailableError):
            pipeline.run(accept_loss=True)
    broker.delete_below(pipeline.topic, {0: 3})
    with pytest.raises(SourceLostError, match="partition 0: 2 is next, it has only from 3"):
        pipeline.run()
    assert [step.kind for step in pipeline.run(accept_loss=True).steps] == ["batch"]
    pipeline.send(up(5, 1))
    pipeline.run()
    assert set(pipeline.rows()) == {3, 4, 5}
    [lost] = pipeline.losses()
    assert "partition 0: 0 is next" in lost
    assert "partition 0: 2 is next" in lost, "both that were accepted"
