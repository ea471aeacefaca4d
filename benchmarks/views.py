"""A materialized view, step by step, beside computing it whole: CPU of the process tree.

Orders, and customers a quarter as many, are tables of two pipelines. The view joins them and has MAX, SUM and COUNT for each
customer. In each round the orders of one percent of the customers change. Then the view's step is timed, and the same query written
whole: by a step of the same view that is made to compute all rows (`whole`), and by Spark alone, as INSERT OVERWRITE of a
Delta table like the view's sink with the same session and settings (`overwrite`). All in one process, the first round not counted:
it warms up. Each round compares the view with the query, both ways.

    python benchmarks/views.py [--rows 1000000] [--rounds 3] [--touched 0.01]

Prints a line a round, then the ratios step / overwrite and step / whole, of which 0.3 or less is the aim.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import tree_cpu_s, write_changes
from pyspark.sql import DataFrame, SparkSession

from ebbtide import MaterializedView, UpsertPipeline, build_session, run
from ebbtide.tables import SinkTable

PER_CUSTOMER = 4
QUERY = """
    SELECT c.customer_id, c.city, max(o.total) AS top, sum(o.total) AS total, count(o.order_id) AS n
    FROM customers c JOIN orders o ON c.customer_id = o.customer_id
    GROUP BY c.customer_id, c.city
"""
SCHEMA = "customer_id BIGINT NOT NULL, city STRING, top DECIMAL(14,2), total DECIMAL(24,2), n BIGINT"


def main() -> int:
    """Make the tables, take turns, print the ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--touched", type=float, default=0.01)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(Path(work), asked.rows, asked.touched)
        print(
            f"{asked.rows} orders, {bench.n_customers} customers, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        results = [bench.round(number) for number in range(1, asked.rounds + 2)]
    is_right = all(result["differences"] == 0 for result in results)
    warm = results[1:]
    for peer in ("overwrite", "whole"):
        for measure in ("cpu_s", "wall_s"):
            ratios = [result["step"][measure] / result[peer][measure] for result in warm]
            print(f"{measure}: step / {peer} = {statistics.median(ratios):.2f}")
    print("all rounds equal the query" if is_right else "NOT EQUAL")
    return 0 if is_right else 1


class Bench:
    """The tables, and what is timed.

    Args:
        work: Folder of all.
        n_orders: Rows of the larger table.
        touched: Share of the customers whose orders change in a round.
    """

    def __init__(self, work: Path, n_orders: int, touched: float) -> None:
        self.root = str(work / "root")
        self.work = work
        self.n_orders, self.touched = n_orders, touched
        self.n_customers = n_orders // PER_CUSTOMER
        self.random = np.random.default_rng(1)
        os.environ["EBBTIDE_CACHE"] = str(work / "cache")
        self.spark = build_session("ebbtide-views")
        self.orders = _pipeline(
            work, "orders", "order_id BIGINT, customer_id BIGINT, total DECIMAL(14,2), at BIGINT", "order_id"
        )
        self.customers = _pipeline(work, "customers", "customer_id BIGINT, city STRING, at BIGINT", "customer_id")
        self.view = MaterializedView(
            name="totals",
            query=QUERY,
            inputs=["customers", "orders"],
            schema=SCHEMA,
            key=["customer_id", "city"],
        )
        self._change(self.customers, [_customer(number) for number in range(self.n_customers)], 0)
        self._change(self.orders, [self._order(number, 0) for number in range(n_orders)], 0)
        run(self.spark, self.view, self.root)

    def round(self, number: int) -> dict[str, Any]:
        """Change some orders; time each way to have the view right."""
        n_touched = int(self.n_customers * self.touched)
        customers = self.random.choice(self.n_customers, n_touched, replace=False)
        orders = [int(customer) + self.n_customers * place for customer in customers for place in range(PER_CUSTOMER)]
        self._change(self.orders, [self._order(order, number) for order in orders], number)
        result: dict[str, Any] = {"step": _timed(lambda: self._run(self.view))}
        result["differences"] = self._differences()
        other_query = self.view.model_copy(update={"query": f"{QUERY} -- {number}"})
        result["whole"] = _timed(lambda: self._run(other_query))
        self.view = other_query
        result["overwrite"] = _timed(self._overwrite)
        print(json.dumps(result), flush=True)
        return result

    def _run(self, view: MaterializedView) -> None:
        run(self.spark, view, self.root)

    def _overwrite(self) -> None:
        """Write the query whole, as a user does."""
        writer = self._query().write.format("delta").mode("overwrite")
        writer.option("delta.enableChangeDataFeed", "true").save(str(self.work / "overwritten"))

    def _query(self) -> DataFrame:
        session = self.spark.newSession()
        for name in ("orders", "customers"):
            _rows(session, f"{self.root}/{name}/sink").createOrReplaceTempView(name)
        return session.sql(QUERY)

    def _differences(self) -> int:
        """Count the rows in which the view and the query differ."""
        wanted = self._query()
        found = _rows(wanted.sparkSession, f"{self.root}/totals/sink")
        return wanted.exceptAll(found).count() + found.exceptAll(wanted).count()

    def _change(self, spec: UpsertPipeline, rows: list[dict[str, Any]], number: int) -> None:
        write_changes(self.work / spec.name / f"{number:04d}.jsonl", rows)
        run(self.spark, spec, self.root)

    def _order(self, number: int, at: int) -> dict[str, Any]:
        total = (number * 7919 + at * 104_729) % 1_000_000 / 100
        return {"order_id": number, "customer_id": number % self.n_customers, "total": f"{total:.2f}", "at": at}


def _customer(number: int) -> dict[str, Any]:
    return {"customer_id": number, "city": f"city {number % 1000}", "at": 0}


def _pipeline(work: Path, name: str, schema: str, key: str) -> UpsertPipeline:
    return UpsertPipeline(
        name=name,
        source={"path": str(work / name), "records": "value"},
        format={"type": "plain"},
        schema=schema,
        key=[key],
        order={"sequence": ["at"]},
    )


def _rows(session: SparkSession, location: str) -> DataFrame:
    return session.read.format("delta").load(location).drop(*SinkTable.RESERVED)


def _timed(work: Callable[[], None]) -> dict[str, float]:
    started, cpu = time.monotonic(), tree_cpu_s()
    work()
    return {"cpu_s": round(tree_cpu_s() - cpu, 2), "wall_s": round(time.monotonic() - started, 2)}


if __name__ == "__main__":
    sys.exit(main())
