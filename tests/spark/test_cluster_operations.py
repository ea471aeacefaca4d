"""Each operation on a cluster: a host dies as it begins, and one under its tasks; what it leaves equals the truth, and runs go on."""

from datetime import timedelta

import pytest
from clusters.cluster_hosts import read_table, source_of, true_rows
from clusters.spark_support import LOCAL, shop_spec
from oracles.shop_truth import same_as_truth

from ebbtide import run
from ebbtide.runtime import system_clock

pytestmark = pytest.mark.grid

DAY_MS = 86_400_000
LATER = 60 * DAY_MS


@pytest.fixture
def orders(hosts):
    """The shop's orders, read without a cluster."""
    spec = shop_spec("orders", source_of(hosts, "orders"), files=2)
    run(LOCAL, spec, str(hosts.root))
    return spec


def later():
    return system_clock() + LATER


def test_compaction_loses_a_host(hosts, orders):
    report, deaths = hosts.operate(orders, "compact")
    assert (report["step"] is not None, deaths) == (True, 1)
    assert same_as_truth(orders, hosts.root)


def test_cleanup_and_vacuum_lose_hosts(hosts, orders):
    far = orders.model_copy(update={"max_clock_jump": timedelta(days=366)})
    run(LOCAL, far, str(hosts.root), clock=later)
    report, deaths = hosts.operate(orders, "cleanup")
    assert (report["entries_deleted"] > 0, deaths) == (True, 1), report
    hosts.operate(orders, "vacuum")
    assert same_as_truth(orders, hosts.root)


def test_sink_is_repaired_and_judged(hosts, orders):
    name = f"delta.`{hosts.root / 'orders' / 'sink'}`"
    hosts.do("sql", orders, f"DELETE FROM {name} WHERE order_id % 7 = 3")
    assert not same_as_truth(orders, hosts.root)
    hosts.operate(orders, "repair")
    assert same_as_truth(orders, hosts.root)
    verdicts, _ = hosts.do("check", orders)
    assert set(verdicts.values()) == {True}, verdicts


def test_rewind_is_made_good_by_the_next_run(hosts, orders):
    hosts.operate(orders, "rewind", to_step=1)
    assert not same_as_truth(orders, hosts.root)
    run(LOCAL, orders, str(hosts.root))
    assert same_as_truth(orders, hosts.root)


def test_backfill_is_built_and_swapped_in(hosts, orders):
    name = f"delta.`{hosts.root / 'orders' / 'sink'}`"
    hosts.do("sql", orders, f"DELETE FROM {name} WHERE order_id % 7 = 3")
    on_spark = orders.model_copy(update={"engine": "spark"})  # by auto the driver's process would build so few records
    report, deaths = hosts.operate(on_spark, "backfill.start")
    assert (report["percent"], deaths) == (100, 1)
    hosts.operate(orders, "backfill.swap")
    assert same_as_truth(orders, hosts.root)


def test_migration_keeps_the_rows_and_runs_go_on(hosts, orders):
    shorter = orders.model_validate(orders.model_dump(by_alias=True, exclude_unset=True) | {"ttl": "10d"})
    report, deaths = hosts.operate(shorter, "migrate")
    [change] = report["changes"]
    assert (change.startswith("ttl 30d"), " -> 10d" in change, deaths) == (True, True, 1)
    run(LOCAL, shorter, str(hosts.root))
    assert same_as_truth(shorter, hosts.root)


def test_table_that_was_there_is_adopted_and_overtaken_by_the_source(hosts, orders):
    columns = ", ".join(f"`{name}`" for name in orders.sink_table.columns.names)
    there, sink = (hosts.root / name / "sink" for name in ("orders", "adopting"))
    hosts.do("sql", orders, f"CREATE TABLE delta.`{sink}` USING delta AS SELECT {columns} FROM delta.`{there}`")
    adopting = orders.model_copy(update={"name": "adopting"})
    report, deaths = hosts.operate(adopting, "adopt")
    n_rows = len(true_rows("orders"))
    assert (report["rows"], len(report["steps"]) > 1, deaths) == (n_rows, True, 1)
    run(LOCAL, adopting, str(hosts.root))
    got, want = (sorted(row["order_id"] for row in read_table(hosts.root, spec, "sink")) for spec in (adopting, orders))
    assert got == want


def test_erased_keys_are_in_no_table(hosts, orders):
    hosts.operate(orders, "erase", where="order_id % 5 = 0")
    want = [int(row["order_id"]) for row in true_rows("orders") if int(row["order_id"]) % 5]
    assert sorted(row["order_id"] for row in read_table(hosts.root, orders, "sink")) == sorted(want)
    assert run(LOCAL, orders, str(hosts.root)).steps == []
