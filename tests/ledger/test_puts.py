"""Commits are put by a link on local disks, by a conditional put in object stores, elsewhere by Spark's log store."""

import pytest

from ebbtide.delta._commit import StoragePuts
from ebbtide.ledger import puts_of
from ebbtide.ledger._puts import LogStorePuts


@pytest.mark.parametrize("table", ["/data/t", "data/t", "file:///data/t", "s3://bucket/t", "gs://bucket/t"])
def test_tables_on_disks_and_in_object_stores_are_put_by_the_storage(table):
    assert isinstance(puts_of(table), StoragePuts)


def test_tables_elsewhere_are_put_by_the_log_store():
    puts = puts_of("hdfs://host/t")
    assert isinstance(puts, LogStorePuts)
    assert puts._table == "hdfs://host/t"
