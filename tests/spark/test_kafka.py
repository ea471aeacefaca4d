"""A topic on Spark: the same table as from files."""

from kafka_support import over_topic, records_of
from spark_support import forget_last_commit, same_as_truth, shop_lines, shop_spec

from ebbtide.runtime.driver import run
from ebbtide.sources.kafka import source


def test_orders_from_a_topic_with_replay_equal_truth(spark, broker, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "RECORDS_IN_DRIVER", 1_000)  # by tasks
    lines = shop_lines("orders")
    broker.create("orders", 3)
    broker.put("orders", records_of(lines[:5_000]))
    spec = over_topic(shop_spec("orders", tmp_path), broker, "orders", max_records_per_step=4_000)
    assert [step.records for step in run(spark, spec, str(tmp_path)).steps] == [4_000, 1_000]
    forget_last_commit(tmp_path, spec)
    broker.put("orders", records_of(lines[5_000:]))
    assert [step.kind for step in run(spark, spec, str(tmp_path)).steps] == ["replay", "batch"]
    assert same_as_truth(spark, tmp_path, spec)
