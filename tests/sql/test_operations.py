"""Changes page by page: a page can be asked for again until the one after the next was, and then its rows are deleted."""

import threading

import pytest

from ebbtide.errors import SqlError
from ebbtide.sql import ResultKind
from ebbtide.sql._operations import Batch, Changes, Listed
from ebbtide.sql._results import Result


def changes(*sizes, page_rows=2):
    """Batches of some sizes that are all there, and the numbers of those that are deleted."""
    deleted = []

    def batches(is_canceled):
        for number, size in enumerate(sizes):
            rows = Listed([[number, row] for row in range(size)])
            yield Batch(rows, f"t={number}", lambda number=number: deleted.append(number))

    found = Changes(Result(ResultKind.CHANGES), batches, page_rows)
    found.go_on(threading.Event())
    return found, deleted


def test_each_page_is_kept_until_the_one_after_the_next_is_asked_for():
    pages, deleted = changes(1, 1, 1)
    first = pages.page(0, 0)
    assert pages.page(1, 0).rows == [[1, 0]]
    assert (pages.page(0, 0), deleted) == (first, [])
    pages.page(2, 0)
    assert deleted == [0]
    assert pages.page(1, 0).position == "t=1"
    with pytest.raises(SqlError, match=r"no longer kept. Got: 0. Allowed: 1 and those after it"):
        pages.page(0, 0)


def test_batch_of_several_pages_is_deleted_with_its_last():
    pages, deleted = changes(5, 1)
    for token in range(4):
        assert pages.page(token, 0).next == token + 1
    assert deleted == []
    assert pages.page(4, 0).rows == []
    assert deleted == [0]


def test_token_that_is_asked_for_again_and_again_deletes_nothing():
    pages, deleted = changes(1, 1)
    for _ in range(5):
        assert pages.page(1, 0).rows == [[1, 0]]
    assert deleted == []
