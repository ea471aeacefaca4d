"""Queries of one table: those that would fail are Spark's, whose error names the place."""

import pytest
from statements.answering import answers

from ebbtide.errors import JavaMissingError
from ebbtide.sql import EmbeddedSession


@pytest.mark.parametrize("query", ["SELECT nope FROM kept", "SELECT id FROM kept WHERE nope = 1"])
@pytest.mark.usefixtures("declared")
def test_query_of_a_column_that_is_not_there_is_left_to_spark(catalog, query):
    def start_spark():
        raise JavaMissingError.of("It was asked for.")

    session = EmbeddedSession({"default": catalog}, {}, start_spark=start_spark)
    with pytest.raises(JavaMissingError, match="It was asked for"):
        answers(session)(query)
    session.close()
