"""What customers have bought, on rows that are written out here."""

from decimal import Decimal

import pytest

from assets.revenue import revenue_of

ORDERS = "order_id BIGINT, customer_id BIGINT, status STRING, total DECIMAL(14,2), currency STRING"
ITEMS = "order_id BIGINT, line_no INT, qty INT"
CUSTOMERS = "customer_id BIGINT, name STRING"


@pytest.mark.spark
def test_bought_orders_are_summed_per_customer_and_currency_and_each_counts_once(spark):
    orders = [
        (1, 7, "paid", Decimal(10), "EUR"),
        (2, 7, "delivered", Decimal(5), "EUR"),
        (3, 7, "delivered", Decimal(100), "JPY"),
        (4, 7, "cancelled", Decimal(1000), "EUR"),
        (5, 8, "shipped", None, None),
    ]
    items = [(1, 1, 2), (1, 2, 3), (4, 1, 9)]
    revenue = revenue_of(
        spark.createDataFrame(orders, ORDERS),
        spark.createDataFrame(items, ITEMS),
        spark.createDataFrame([(7, "Ann")], CUSTOMERS),
    )
    assert sorted(map(tuple, revenue.collect()), key=str) == [
        (7, "EUR", "Ann", 2, 5, Decimal(15)),
        (7, "JPY", "Ann", 1, 0, Decimal(100)),
        (8, None, None, 1, 0, None),  # a customer that is gone, an order without a total
    ]
