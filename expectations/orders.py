"""Rules of the shop's orders. Each is a query that selects the rows that break it; `{batch}` is the sink."""

from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation


class ExpectOrdersToShipAfterPlacement(UnexpectedRowsExpectation):
    """Expect no order to ship on a day before the one it was placed on."""

    unexpected_rows_query: str = """
        SELECT order_id, placed_at, ship_on FROM {batch} WHERE ship_on < CAST(placed_at AS DATE)
    """


class ExpectOrdersToChangeAfterPlacement(UnexpectedRowsExpectation):
    """Expect no order to have been changed before it was placed."""

    unexpected_rows_query: str = """
        SELECT order_id, placed_at, updated_at FROM {batch} WHERE updated_at < CAST(placed_at AS TIMESTAMP_NTZ)
    """
