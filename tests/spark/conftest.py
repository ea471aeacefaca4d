"""Tests in here need Spark. What only large tables and steps switch on is on for all of them.

They are one group: to start and warm up a second session costs more than it saves.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from clusters.cluster_hosts import N_WORKERS, Hosts
from clusters.spark_cluster import Driver, cluster
from frame.limits import limits


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.spark)
    if item.get_closest_marker("group") is None:
        item.add_marker(pytest.mark.group("spark"))


@pytest.fixture(autouse=True, scope="module")
def large() -> Iterator[None]:
    """Deal out steps of a few changes to tasks; tests elsewhere, in the same process, make theirs in the driver."""
    with limits(rows_in_driver=2):
        yield


@pytest.fixture(scope="module")
def all_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A cluster for the tests of a module."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, N_WORKERS) as running, closing(Driver(folder, running.address, "host")) as driver:
        yield Hosts(folder, running, driver)


@pytest.fixture
def hosts(all_hosts: Hosts, tmp_path: Path) -> Hosts:
    """The cluster, with tables of the test's own."""
    all_hosts.home = tmp_path
    return all_hosts
