"""A rule of a project's own that shows a column under another name."""

from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation


class ExpectNoEmail(UnexpectedRowsExpectation):
    """Expect no row to have an email."""

    unexpected_rows_query: str = "SELECT email AS e FROM {batch}"
