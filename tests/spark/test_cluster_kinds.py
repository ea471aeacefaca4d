"""Each kind of pipeline on a cluster, with a host killed under the tasks of each step; equal to the truth."""

import json
from collections import defaultdict
from decimal import Decimal

import pytest
from clusters.cluster_hosts import STEPS, read_table, source_of, true_rows
from clusters.spark_cluster import written_spec
from clusters.spark_support import LOCAL, PROJECT, cut, shop_lines, shop_spec, write
from oracles.shop_truth import same_as_truth
from servers.kafka_support import over_topic, records_of

from ebbtide import MaterializedView, StatefulPipeline, UpsertPipeline, run
from ebbtide.spec._upsert import MaterializerConfig

pytestmark = pytest.mark.grid


def emitted(root, spec):
    """What was emitted of each key, in order. A number distinguishes only emissions of one change."""
    of_key = defaultdict(list)
    for row in sorted(read_table(root, spec, "changelog"), key=lambda row: (*row["_order"].values(), row["_number"])):
        of_key[tuple(row[name] for name in spec.key)].append({**row, "_number": None})
    return of_key


@pytest.mark.parametrize("name", ["orders", "customers", "order_items", "price_list"])
def test_shop_by_sequence_equals_its_source_database(hosts, name):
    spec = shop_spec(name, source_of(hosts, name, bad=3 if name == "orders" else 0), files=2)
    assert hosts.run(spec) == STEPS
    assert same_as_truth(spec, hosts.root)
    if name == "orders":
        assert len(read_table(hosts.root, spec, "quarantine")) == 3


def test_join_by_arrival_equals_its_source_database_and_its_changelog_that_of_a_local_run(hosts):
    spec = shop_spec("order_balances", source_of(hosts, "order_balances"), files=2)
    spec = spec.model_copy(update={"materializer": MaterializerConfig(emission="every")})
    hosts.decommission_one()
    hosts.run(spec)
    assert "Telling app of decommission executors" in hosts.running.said()
    assert same_as_truth(spec, hosts.root)
    run(LOCAL, spec, str(hosts.home / "local"))
    assert emitted(hosts.root, spec) == emitted(hosts.home / "local", spec)


def moved(spec, source, **more):
    """A spec over other files."""
    return spec.model_copy(
        update={"source": spec.source.model_copy(update={"path": str(source), "max_files_per_step": 2}), **more}
    )


def same_as_local_run(hosts, spec):
    run(LOCAL, spec, str(hosts.home / "local"))
    got, want = (
        sorted(json.dumps(row, default=str) for row in read_table(root, spec, "sink"))
        for root in (hosts.root, hosts.home / "local")
    )
    return got == want


def test_function_with_state_equals_a_local_run(hosts):
    spec = StatefulPipeline.load(PROJECT / "pipelines" / "defs" / "activity" / "last_seen")
    spec = moved(spec, source_of(hosts, "orders"))
    hosts.run(spec)
    assert same_as_local_run(hosts, spec)


PROJECT_FILES = {
    "tally/__init__.py": "",
    "tally/words.py": "def grade(total):\n    return 0 if total is None else len(str(int(total)))\n",
    "tally/rules.py": """
from decimal import Decimal
import tally.words
from ebbtide import StatefulFunction, ValueStateDescriptor

class Best(StatefulFunction):
    output = "grade BIGINT"
    best = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        self.best.update(max(self.best.get() or 0, *(tally.words.grade(change.row["total"]) for change in rows)))
        yield {"grade": self.best.get()}

def grade(total: Decimal) -> int:
    return tally.words.grade(total)
""",
    "pyproject.toml": "",
}
"""A project that is installed nowhere: its code goes to the executors with the work."""
GRADES = {
    "schema": "id BIGINT NOT NULL, label STRING, long INT, grade BIGINT",
    "select": {
        "id": "order_id",
        "label": "upper(status) || '/' || coalesce(currency, '')",
        "long": "length(notes)",
        "grade": "grade(total)",
    },
    "where": "status <> 'cancelled' AND total IS NOT NULL",
    "key": ["id"],
    "functions": {"grade": "tally.rules:grade"},
}


@pytest.fixture
def project(hosts):
    home = hosts.home / "project"
    for name, text in PROJECT_FILES.items():
        (home / name).parent.mkdir(exist_ok=True, parents=True)
        (home / name).write_text(text, encoding="utf-8")
    return home


def in_project(home, spec, **fields):
    """Write a spec into a project; return its folder."""
    folder = written_spec(home / spec.name, spec)
    document = json.loads((folder / "defs.yaml").read_text())
    document["attributes"] |= fields
    (folder / "defs.yaml").write_text(json.dumps(document))
    return folder


def test_function_of_a_project_equals_a_local_run(hosts, project):
    spec = StatefulPipeline.load(PROJECT / "pipelines" / "defs" / "activity" / "last_seen")
    spec = moved(spec, source_of(hosts, "orders"), name="best", ttl={}, ignored_columns=[])
    schema = "order_id BIGINT NOT NULL, customer_id BIGINT, total DECIMAL(14,2)"
    folder = in_project(project, spec, function="tally.rules:Best", schema=schema)
    hosts.run(folder)
    assert same_as_local_run(hosts, StatefulPipeline.load(folder))


def test_transform_with_a_function_of_a_project_equals_what_it_makes_of_the_truth(hosts, project):
    spec = moved(shop_spec("orders", source_of(hosts, "orders")), hosts.home / "in" / "orders")
    folder = in_project(project, spec, transform=GRADES)
    hosts.run(folder)
    rows = read_table(hosts.root, UpsertPipeline.load(folder), "sink")
    want = [
        (
            int(row["order_id"]),
            f"{row['status'].upper()}/{row['currency'] or ''}",
            len(row["notes"] or ""),
            digits(row["total"]),
        )
        for row in true_rows("orders")
        if row["status"] != "cancelled" and row["total"] is not None
    ]
    got = [(row["id"], row["label"], row["long"] or 0, row["grade"]) for row in rows]
    assert sorted(got) == sorted(want)


def digits(total):
    return len(total.partition(".")[0])


SPEND = MaterializedView(
    name="spend",
    query=(
        "SELECT c.customer_id, c.name, max(o.total) AS top, count(o.order_id) AS n "
        "FROM customers c LEFT JOIN orders o ON c.customer_id = o.customer_id GROUP BY c.customer_id, c.name"
    ),
    key=["customer_id", "name"],
    schema="customer_id BIGINT NOT NULL, name STRING NOT NULL, top DECIMAL(14,2), n BIGINT",
    inputs=["customers", "orders"],
)


def test_view_equals_its_query_over_the_truth(hosts):
    n_rounds = 3
    parts = {name: cut(shop_lines(name), n_rounds) for name in ("customers", "orders")}
    for number in range(n_rounds):
        for name, lines in parts.items():
            source = write(hosts.home / "in" / name, lines[number], first=number)
            run(LOCAL, shop_spec(name, source), str(hosts.root))
        hosts.run(SPEND)
    totals = defaultdict(list)
    for order in true_rows("orders"):
        totals[order["customer_id"]].append(order["total"])
    want = []
    for customer in true_rows("customers"):
        own = totals[customer["customer_id"]]
        top = max((Decimal(total) for total in own if total is not None), default=None)
        want.append((int(customer["customer_id"]), customer["name"], top, len(own)))
    rows = read_table(hosts.root, SPEND, "sink")
    assert sorted((row["customer_id"], row["name"], row["top"], row["n"]) for row in rows) == sorted(want)


def test_topic_equals_its_source_database(hosts, broker):
    broker.create("orders_on_a_cluster", 3)
    lines = shop_lines("orders")
    broker.put("orders_on_a_cluster", records_of(lines))
    spec = over_topic(
        shop_spec("orders", hosts.home), broker, "orders_on_a_cluster", max_records_per_step=-(-len(lines) // STEPS)
    )
    hosts.run(spec)
    assert same_as_truth(spec, hosts.root)
