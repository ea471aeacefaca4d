"""Changes page by page: a page can be asked for again until the one after the next was, and then its rows are deleted."""

import threading

import pytest

from ebbtide.errors import OperationGoneError, SqlError
from ebbtide.sql import Catalog, EmbeddedSession, ResultKind
from ebbtide.sql._operations import Batch, Changes, Listed, RunningOperation
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


@pytest.fixture
def session(tmp_path, clock):
    catalog = Catalog(str(tmp_path / "root"), tmp_path / "defs")
    session = EmbeddedSession({"default": catalog}, {"max-age": "60"}, clock=clock)
    yield session
    session.close()


def read(session):
    """Execute a statement with rows, and put a file where those of Spark would be."""
    operation = session.execute("SHOW CATALOGS")
    assert len(operation.page(0, 60).rows) == 1
    (session.folder / operation.id).mkdir()
    return operation


@pytest.mark.demand("sql-result-age")
def test_result_is_kept_as_long_as_its_pages_are_asked_for_in_time(session, clock):
    operation = read(session)
    for _ in range(3):
        clock.now_s += 59.9
        assert len(operation.page(0, 60).rows) == 1
    clock.now_s += 60
    with pytest.raises(
        OperationGoneError, match=r"no page was asked for in time\. Allowed: 60 seconds between two pages"
    ):
        operation.page(0, 60)
    assert operation.status == "FINISHED"


@pytest.mark.demand("sql-result-age")
def test_files_of_an_old_result_are_deleted_by_the_next_statement(session, clock):
    old = read(session)
    clock.now_s += 30
    young = read(session)
    clock.now_s += 30
    session.execute("SHOW CATALOGS").result(60)
    assert [(session.folder / operation.id).exists() for operation in (old, young)] == [False, True]


def test_age_is_that_of_the_setting_when_the_statement_began(session, clock):
    operation = read(session)
    session.execute("SET max-age = 0").result(60)
    forever = read(session)
    clock.now_s += 10**9
    assert len(forever.page(0, 60).rows) == 1
    with pytest.raises(OperationGoneError):
        operation.page(0, 60)


def test_changes_that_nobody_reads_are_cancelled(clock):
    has_ended = threading.Event()

    def batches(is_canceled):
        yield Batch(Listed([["+I"]]), "t=0")
        is_canceled.wait()
        has_ended.set()

    operation = RunningOperation(lambda id_: None, lambda id_: None, 60, clock)
    operation.start(lambda: Changes(Result(ResultKind.CHANGES), batches, 2))
    assert operation.page(0, 60).rows == [["+I"]]
    clock.now_s += 60
    assert operation.drop_if_old()
    assert has_ended.wait(60)
    with pytest.raises(OperationGoneError):
        operation.page(1, 60)


class SlowRows:
    """A row that takes until it is released."""

    count = 1

    def __init__(self):
        self.is_asked_for, self.is_released = threading.Event(), threading.Event()

    def slice(self, start, stop):
        self.is_asked_for.set()
        self.is_released.wait()
        return [["a"]]


def test_result_is_not_dropped_while_a_page_is_waited_for(clock):
    rows = SlowRows()
    operation = RunningOperation(lambda id_: None, lambda id_: None, 60, clock)
    operation.start(lambda: Changes(Result(ResultKind.CHANGES), lambda is_canceled: iter([Batch(rows, "t=0")]), 1))
    reader = threading.Thread(target=operation.page, args=(0, 60))
    reader.start()
    assert rows.is_asked_for.wait(60)
    clock.now_s += 60
    assert not operation.drop_if_old()
    rows.is_released.set()
    reader.join()
    clock.now_s += 59
    assert not operation.drop_if_old()
