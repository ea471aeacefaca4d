"""Commits are put by a link on local disks, by a conditional put in object stores, elsewhere by Spark's log store."""

import pytest

from ebbtide.delta import Writer
from ebbtide.ledger import writer_of
from ebbtide.ledger._writers import LogStoreWriter


@pytest.mark.parametrize("table", ["/data/t", "data/t", "file:///data/t", "s3://bucket/t", "gs://bucket/t"])
def test_tables_on_disks_and_in_object_stores_are_put_by_the_storage(table):
    assert type(writer_of(table)) is Writer


def test_tables_elsewhere_are_put_by_the_log_store():
    writer = writer_of("hdfs://host/t")
    assert isinstance(writer, LogStoreWriter)
    assert writer._table == "hdfs://host/t"
