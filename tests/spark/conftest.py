"""Tests in here need Spark. What only large tables and steps switch on is on for all of them."""

from collections.abc import Iterator

import pytest

from ebbtide.runtime import decide


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.spark)
    item.add_marker(pytest.mark.xdist_group(item.path.name))  # they share what a file prepares once


@pytest.fixture(autouse=True, scope="module")
def large() -> Iterator[None]:
    """Deal out steps of a few changes to tasks; tests elsewhere, in the same process, make theirs in the driver."""
    patch = pytest.MonkeyPatch()
    patch.setattr(decide, "ROWS_IN_DRIVER", 2)
    yield
    patch.undo()
