"""What each customer has bought: a table over the sinks of orders, order_items and customers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from ebbtide.dagster import SparkResource, StorageResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOUGHT = ("paid", "packed", "shipped", "delivered")
"""Statuses of orders that count: neither new, nor cancelled or returned."""

SINKS = ["orders", "order_items", "customers"]

# A run that makes the sinks as well ends before this asset if a blocking check fails. A run of its own is started by the
# condition, when a sink was updated and all blocking checks of all sinks have passed.
WHEN_SINKS_ARE_RIGHT = (
    dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()
).with_label("when sinks are right")


@dg.asset(
    deps=SINKS,
    group_name="reports",
    owners=["team:shop"],
    kinds={"spark", "deltalake"},
    automation_condition=WHEN_SINKS_ARE_RIGHT,
)
def customer_revenue(spark: SparkResource, storage: StorageResource) -> dg.MaterializeResult[None]:
    """What each customer has bought, per currency; a customer that is gone has no name."""
    delta = spark.session.read.format("delta")
    root = storage.root
    orders = delta.load(f"{root}/orders/sink")
    order_items = delta.load(f"{root}/order_items/sink")
    customers = delta.load(f"{root}/customers/sink")
    revenue = revenue_of(orders, order_items, customers)

    table = f"{root}/reports/customer_revenue"
    writer = revenue.write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").save(table)
    rows = delta.load(table).count()
    metadata: dict[str, Any] = {
        "dagster/uri": table,
        "dagster/row_count": rows,
    }
    return dg.MaterializeResult(metadata=metadata)


def revenue_of(orders: DataFrame, order_items: DataFrame, customers: DataFrame) -> DataFrame:
    """Sum up what each customer has bought.

    Args:
        orders: One row per order.
        order_items: One row per line of an order.
        customers: One row per customer.

    Returns:
        One row per customer and currency: `customer_id`, `currency`, `name`, `orders`, `pieces`, `revenue`.
    """
    from pyspark.sql import functions as F

    is_bought = F.col("status").isin(*BOUGHT)
    bought = orders.where(is_bought)
    pieces_of_order = F.sum("qty").alias("pieces")
    pieces = order_items.groupBy("order_id").agg(pieces_of_order)
    # One row per order before the sums: an order's total must count once, whatever its number of lines.
    per_order = bought.join(pieces, "order_id", "left")
    all_pieces = F.coalesce(F.sum("pieces"), F.lit(0))
    sums = per_order.groupBy("customer_id", "currency").agg(
        F.count("*").alias("orders"),
        all_pieces.alias("pieces"),
        F.sum("total").alias("revenue"),
    )
    names = customers.select("customer_id", "name")
    named = sums.join(names, "customer_id", "left")
    return named.select(
        "customer_id",
        "currency",
        "name",
        "orders",
        "pieces",
        "revenue",
    )


WITH_ITS_SINKS = dg.AssetSelection.assets(customer_revenue).upstream()
CHECKS_OF_SINKS = dg.AssetSelection.checks_for_assets(*SINKS)
customer_revenue_job = dg.define_asset_job(
    "customer_revenue_report",
    WITH_ITS_SINKS | CHECKS_OF_SINKS,
    description="Bring the three sinks up to date and judge them; then, if no blocking check fails, sum up.",
)
