"""Which store puts a table's commits: the local disk by a link, any other through Spark's log store."""

import pytest

from ebbtide.ledger.puts import LOCAL, LogStorePuts, puts_of


@pytest.mark.parametrize("table", ["/data/t", "data/t", "file:///data/t"])
def test_local_tables_are_put_by_links(table):
    assert puts_of(table) is LOCAL


@pytest.mark.parametrize("table", ["s3a://bucket/t", "abfss://c@a/t"])
def test_other_tables_are_put_by_the_log_store_of_their_place(table):
    puts = puts_of(table)
    assert isinstance(puts, LogStorePuts)
    assert puts._table == table
