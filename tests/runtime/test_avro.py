"""Topics in Avro by a real registry, read by runs without Spark."""

import json
import time

import pytest
from click.testing import CliRunner
from frame.limits import set_limits
from frame.shell import Shell
from inputs.avro_support import Orders, avro, record
from local.local_run import SPARK
from local.support import SHOP, lines_of, shop
from oracles.reference import canonical_rows, differences
from servers.kafka_broker import free_port
from servers.kafka_support import TopicPipeline, over_topic
from servers.schema_registry import PASSWORD, USER

import ebbtide
from ebbtide import UpsertPipeline
from ebbtide.cli import main
from ebbtide.delta import Snapshot
from ebbtide.errors import ConfigError, SourceReadError, SourceUnavailableError
from ebbtide.runtime import Plan
from ebbtide.tables import Selection

ROW = record("Change", {"kind": "string", "row": record("Row", {"id": "long", "n": "long", "v": ["null", "string"]})})
pytestmark = pytest.mark.group("broker")  # the same broker


@pytest.fixture(autouse=True)
def _apart():
    set_limits(rows_in_driver=20_000)


@pytest.fixture
def topic(broker, request):
    name = request.node.name + "." + str(time.monotonic_ns())
    broker.create(name, 3)
    return name


@pytest.fixture
def over(broker, topic, registry, tmp_path):
    def make(**source):
        return TopicPipeline(tmp_path, broker, topic, source={"registry": {"url": registry.url}, **source})

    return make


def up(id_, n):
    return {"kind": "+U", "row": {"id": id_, "n": n, "v": None}}


SHARE = 16
"""One order of so many is sent."""


def order_of(line):
    return json.loads(line["key"])["order_id"]


def test_orders_coded_anew_as_avro_become_the_truth(broker, registry, topic, tmp_path):
    lines = [line for line in lines_of(SHOP / "capture") if b'"topic": "shop.public.orders"' in line]
    lines = [line for line in lines if order_of(json.loads(line)) % SHARE == 0]
    broker.put(topic, Orders(registry).records(lines))
    spec = over_topic(shop("orders"), broker, topic, registry={"url": registry.url}, max_records_per_step=400)
    summary = ebbtide.run(SPARK, spec, str(tmp_path), clock=lambda: 1_800_000_000_000)
    assert summary.totals["quarantined"] == 0
    columns = spec.sink_table.columns
    snapshot = Snapshot.read(Plan.under(str(tmp_path), spec).at("sink"))
    rows = canonical_rows(snapshot.rows(columns).to_pylist(), columns)
    truth = [json.loads(line) for line in lines_of(SHOP / "truth" / "orders.jsonl.gz")]
    truth = [row for row in truth if int(row["order_id"]) % SHARE == 0]
    assert len(truth) > 100
    assert differences(rows, canonical_rows(truth, columns)) == []


def test_bad_records_are_named_and_kept_as_json_that_can_be_mended_and_replayed(over, registry):
    pipeline = over()
    id_ = registry.put("rows-value", ROW)
    good = avro(id_, ROW, up(1, 1))
    values = [
        good,
        avro(id_, ROW, {**up(2, 2), "kind": "?"}),
        b'{"kind": "+U"}',
        good[:-1],
        avro(9_999_999, ROW, up(3, 3)),
    ]
    pipeline.broker.put(pipeline.topic, [{"partition": 0, "value": value} for value in values])
    assert pipeline.run().totals["quarantined"] == 4
    bad = pipeline.plan.quarantine.records(Selection()).to_pylist()
    assert [each["reason"] for each in bad] == ["unknown_kind", "no_magic_byte", "bad_avro", "unknown_schema"]
    assert f"schema 9999999, which the registry '{registry.url}' does not have" in bad[3]["detail"]
    kept = json.loads(bad[0]["raw"])
    value = json.loads(kept["value"])
    assert value["payload"]["row"]["id"] == 2
    value["payload"]["kind"] = "+I"
    pipeline.do("replay", mended=[json.dumps(kept | {"value": json.dumps(value)})])
    assert pipeline.rows() == {1: 1, 2: 2}


def test_avro_without_a_registry_is_named(broker, topic, tmp_path):
    pipeline = TopicPipeline(tmp_path, broker, topic)
    broker.put(topic, [{"partition": 0, "value": avro(7, ROW, up(1, 1))}])
    pipeline.run()
    [bad] = pipeline.plan.quarantine.records(Selection()).to_pylist()
    assert (bad["reason"], "schema 7" in bad["detail"], "source.registry" in bad["detail"]) == (
        "no_registry",
        True,
        True,
    )


def test_refresh_without_the_password_of_its_registry_is_refused_and_leaves_the_tables(over, registry):
    guarded = {"url": registry.guarded_url, "username": USER, "password": "${EBBTIDE_TEST_PASSWORD}"}
    pipeline = over(registry=guarded)
    value = avro(registry.put("rows-value", ROW), ROW, up(1, 1))
    pipeline.broker.put(pipeline.topic, [{"partition": 0, "value": value}])
    with Shell() as shell:
        shell.export(EBBTIDE_TEST_PASSWORD=PASSWORD)
        pipeline.run()
    with pytest.raises(ConfigError, match=r"registry.password.*not set"):
        pipeline.do("refresh")
    assert pipeline.rows() == {1: 1}


def test_refresh_whose_registry_is_away_leaves_the_tables(over, registry):
    pipeline = over()
    value = avro(registry.put("rows-value", ROW), ROW, up(1, 1))
    pipeline.broker.put(pipeline.topic, [{"partition": 0, "value": value}])
    pipeline.run()
    versions = pipeline.versions()
    pipeline.spec = pipeline.with_fields(source={"registry": {"url": f"http://127.0.0.1:{free_port()}"}})
    with pytest.raises(SourceUnavailableError, match="does not answer"):
        pipeline.do("refresh", accept_loss=True)
    assert pipeline.versions() == versions


def test_registry_that_does_not_answer_refuses_us_or_is_none_is_named(over, registry, broker, shell, tmp_path):
    value = avro(registry.put("rows-value", ROW), ROW, up(1, 1))
    away = over(registry={"url": f"http://127.0.0.1:{free_port()}"})
    broker.put(away.topic, [{"partition": 0, "value": value}])
    with pytest.raises(SourceUnavailableError, match=r"registry .* does not answer.*Connection refused.*registry.url"):
        away.run()
    with pytest.raises(SourceReadError, match=r"no usable schema registry at .*HTTP 404.*ccompat"):
        over(registry={"url": registry.url.removesuffix("/apis/ccompat/v7")}).run()
    shell.export(EBBTIDE_TEST_PASSWORD="wrong-password")
    guarded = {"url": registry.guarded_url, "username": USER, "password": "${EBBTIDE_TEST_PASSWORD}"}
    with pytest.raises(
        SourceReadError, match=r"refuses the client's credentials.*HTTP 401.*registry.password"
    ) as refused:
        over(registry=guarded).run()
    assert "wrong-password" not in str(refused.value)
    shell.export(EBBTIDE_TEST_PASSWORD=PASSWORD)
    pipeline = over(registry=guarded)
    pipeline.run()
    assert pipeline.rows() == {1: 1}
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not [text for text in written if PASSWORD.encode() in text]


def test_schema_that_refers_to_another_is_read_with_it(over, registry):
    pipeline = over()
    row = record("Row", {"id": "long", "n": "long"}, namespace="shared")
    change = record("Change", {"kind": "string", "row": "shared.Row"})
    registry.put("shared.Row", row)
    references = [{"name": "shared.Row", "subject": "shared.Row", "version": 1}]
    id_ = registry.put("refers-value", change, references)
    whole = record("Change", {"kind": "string", "row": row})
    value = avro(id_, whole, {"kind": "+I", "row": {"id": 4, "n": 5}})
    pipeline.broker.put(pipeline.topic, [{"partition": 0, "value": value}])
    pipeline.run()
    assert pipeline.rows() == {4: 5}


def test_wrong_registry_is_named_before_a_record_is_read(over, registry):
    away = over(registry={"url": f"http://127.0.0.1:{free_port()}"})
    away.send("null")  # no record of Avro, so that no task would ask for a schema
    with pytest.raises(SourceUnavailableError, match=r"registry .* does not answer"):
        away.run()
    there = over(registry={"url": registry.url})
    there.run()
    assert there.last.read.records == 1


def test_new_proposes_schema_and_key_by_the_registry(broker, registry, topic, tmp_path, shell):
    lines = [line for line in lines_of(SHOP / "capture") if b'"topic": "shop.public.orders"' in line][:300]
    broker.put(topic, Orders(registry).records(lines))
    (tmp_path / "pyproject.toml").touch()
    shell.cd(tmp_path)
    asked = ["new", "orders", "--bootstrap-servers", broker.servers, "--topic", topic, "--registry", registry.url]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    spec = UpsertPipeline.load("pipelines/defs/orders")
    assert (spec.source.registry.url, spec.key, spec.sequence) == (registry.url, ["order_id"], ("_lsn",))
    types = {field.name: str(field.type) for field in spec.table.columns}
    assert types["total"] == "decimal128(14, 2)"
    assert types["updated_at"] == "timestamp[us]"
    assert types["ship_on"] == "date32[day]"
