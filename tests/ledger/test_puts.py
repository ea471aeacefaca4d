"""Commits are put by a link on local disks, by a conditional put in object stores, elsewhere by Spark's log store."""

import pytest

from ebbtide.ledger import puts_of
from ebbtide.ledger._puts import LOCAL, LogStorePuts, ObjectPuts


@pytest.mark.parametrize("table", ["/data/t", "data/t", "file:///data/t"])
def test_local_tables_are_put_by_links(table):
    assert puts_of(table) is LOCAL


@pytest.mark.parametrize("table", ["s3://bucket/t", "gs://bucket/t"])
def test_tables_in_object_stores_are_put_by_the_store(table):
    assert isinstance(puts_of(table), ObjectPuts)


def test_tables_elsewhere_are_put_by_the_log_store():
    puts = puts_of("hdfs://host/t")
    assert isinstance(puts, LogStorePuts)
    assert puts._table == "hdfs://host/t"
