"""Sessions of a gateway, with a clock that the test moves."""

import threading

import pytest
from statements.sql_support import MemorySession

from ebbtide.errors import GatewayBusyError, GatewayGoneError, OperationGoneError, SessionGoneError, SqlError
from ebbtide.sql import Client, Limits, Role
from ebbtide.sql._gateway.sessions import Pages, Sessions
from ebbtide.sql._results import Page

ANNA = Client("anna", Role.OWNER)
BERT = Client("bert", Role.READER)


@pytest.fixture
def lines():
    return []


@pytest.fixture
def sessions(clock, lines):
    return Sessions(
        lambda settings, client: MemorySession(settings),
        Limits(sessions=3, client_sessions=2, operations=2, idle_timeout_s=60),
        lines.append,
        clock,
    )


def test_session_ends_once_it_was_idle_for_the_timeout(sessions, clock):
    hosted = sessions.open({}, ANNA)
    clock.now_s += 59.9
    sessions.close_idle()
    assert sessions.get(hosted.id, ANNA) is hosted
    clock.now_s += 0.1
    sessions.close_idle()
    assert hosted.session.is_closed
    with pytest.raises(SessionGoneError):
        sessions.get(hosted.id, ANNA)


def test_end_of_a_request_restarts_the_idle_timeout(sessions, clock):
    hosted = sessions.open({}, ANNA)
    with hosted.used():
        clock.now_s += 1000
        sessions.close_idle()
    clock.now_s += 59
    sessions.close_idle()
    assert sessions.get(hosted.id, ANNA) is hosted


def test_idle_session_gives_its_place_back(sessions, clock):
    for _ in range(2):
        sessions.open({}, ANNA)
    with pytest.raises(GatewayBusyError):
        sessions.open({}, ANNA)
    clock.now_s += 60
    sessions.close_idle()
    sessions.open({}, ANNA)


def test_client_with_all_its_sessions_leaves_places_to_another(sessions):
    for _ in range(2):
        sessions.open({}, ANNA)
    says = "The client 'anna' has no place for one more session. Got: 2 sessions. Allowed: 2. Close one"
    with pytest.raises(GatewayBusyError, match=says):
        sessions.open({}, ANNA)
    sessions.open({}, BERT)
    with pytest.raises(GatewayBusyError, match="The gateway has no place for one more session"):
        sessions.open({}, BERT)
    sessions.close(sessions.seen_by(ANNA)[0])
    sessions.open({}, BERT)


def test_session_closed_twice_gives_back_one_place(sessions):
    hosted = sessions.open({}, ANNA)
    sessions.close(hosted)
    sessions.close(hosted)
    sessions.open({}, ANNA)
    sessions.open({}, ANNA)
    with pytest.raises(GatewayBusyError):
        sessions.open({}, ANNA)


def test_operation_closed_twice_gives_back_one_place(sessions):
    hosted = sessions.open({}, ANNA)
    first = hosted.execute("SELECT * FROM never", "a").id
    hosted.execute("SELECT * FROM never", "b")
    hosted.close_operation(first)
    with pytest.raises(OperationGoneError):
        hosted.close_operation(first)
    hosted.execute("SHOW TABLES", "c")
    with pytest.raises(GatewayBusyError):
        hosted.execute("SHOW TABLES", "c")


def test_nothing_begins_once_the_gateway_ends(sessions):
    hosted = sessions.open({}, ANNA)
    sessions.end(60)
    assert hosted.session.is_closed
    for begin in (lambda: sessions.open({}, ANNA), sessions.refuse_if_ending):
        with pytest.raises(GatewayGoneError, match="is ending"):
            begin()


def test_session_that_is_being_opened_while_the_gateway_ends_is_closed(lines):
    may_open = threading.Event()
    opened = []

    def open_slowly(settings, client):
        may_open.wait()
        opened.append(MemorySession(settings))
        return opened[0]

    sessions = Sessions(open_slowly, Limits(), lines.append)
    errors = []

    def client():
        try:
            sessions.open({}, ANNA)
        except GatewayGoneError as error:
            errors.append(error)

    thread = threading.Thread(target=client)
    thread.start()
    sessions.end(60)
    may_open.set()
    thread.join()
    assert len(errors) == len(opened) == 1
    assert opened[0].is_closed
    assert len(sessions) == 0


def test_error_at_the_end_of_a_session_is_reported_and_further_sessions_end(sessions, lines, clock):
    hosted, other = sessions.open({}, ANNA), sessions.open({}, ANNA)

    def fails():
        raise SqlError.of("It does not end.")

    hosted.session.close = fails
    clock.now_s += 60
    sessions.close_idle()
    assert other.session.is_closed
    assert any("did not end well: It does not end." in line for line in lines)


class Given:
    """An operation of pages that are given."""

    def __init__(self, *pages):
        self.pages = list(pages)
        self.asked = []

    def page(self, token, timeout_s):
        self.asked.append(token)
        return self.pages.pop(0)


def handed_out(operation, most_rows):
    pages = Pages(operation, most_rows)
    token = 0
    while token is not None:
        page = pages.page(token, 0)
        yield page
        token = page.next


def test_page_is_cut_and_what_else_it_says_comes_with_its_last_rows():
    source = Given(Page([1, 2, 3, 4, 5], 70, "p", "n"), Page([6], None, "q", "m"))
    assert list(handed_out(source, 2)) == [
        Page([1, 2], 1),
        Page([3, 4], 2),
        Page([5], 3, "p", "n"),
        Page([6], None, "q", "m"),
    ]
    assert source.asked == [0, 70]


def test_page_is_had_again_until_the_one_after_the_next_was_asked_for():
    pages = Pages(Given(Page([1], 1), Page([2], 2), Page([3])), 10)
    first = pages.page(0, 0)
    second = pages.page(1, 0)
    assert pages.page(0, 0) is first
    pages.page(2, 0)
    assert pages.page(1, 0) is second
    with pytest.raises(SqlError, match=r"Got: 0\. Allowed: 1 or 2\."):
        pages.page(0, 0)
    with pytest.raises(SqlError, match=r"Got: 3\. Allowed: 1 or 2\."):
        pages.page(3, 0)


def test_page_that_is_late_is_asked_for_again():
    pages = Pages(Given(None, Page([1])), 10)
    assert pages.page(0, 0) is None
    assert pages.page(0, 0) == Page([1])
