"""Tests in here need Spark. What only large tables and steps switch on is on for all of them.

They are two groups, so that two processes have a session: to start and warm up a third costs more than it saves.
"""

from collections.abc import Iterator

import pytest

from ebbtide.runtime import decide

SECOND_HALF = "test_repair"
"""The files from this name on take about as long as those before it."""


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.spark)
    if item.get_closest_marker("xdist_group") is None:
        half = 1 if item.path.name < SECOND_HALF else 2
        item.add_marker(pytest.mark.xdist_group(f"spark {half}"))


@pytest.fixture(autouse=True, scope="module")
def large() -> Iterator[None]:
    """Deal out steps of a few changes to tasks; tests elsewhere, in the same process, make theirs in the driver."""
    patch = pytest.MonkeyPatch()
    patch.setattr(decide, "ROWS_IN_DRIVER", 2)
    yield
    patch.undo()
