"""The client against a real gateway: as a session in the same process behaves, so does one in a gateway."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from frame.limits import set_limits
from frame.waiting import until
from statements.gateway_support import TOKEN, serving
from statements.sql_support import MemorySession, all_of

from ebbtide.errors import (
    ConfigError,
    GatewayBusyError,
    GatewayError,
    GatewayGoneError,
    OperationCanceledError,
    SessionGoneError,
    SqlError,
    Transient,
)
from ebbtide.sql import Limits, RemoteSession, ResultKind
from ebbtide.sql._results import OperationStatus

SCRIPT = (
    "SHOW TABLES",
    "SHOW JOBS",
    "DESCRIBE orders",
    "DESCRIBE nowhere",
    "SELECT * FROM orders",
    "SELECT * FROM orders LIMIT 0",
    "SELECT * FROM orders LIMIT 1",
    "SELECT * FROM orders LIMIT 100",
    "SELECT * FROM orders LIMIT 101",
    "SELECT id FROM orders",
    "SELECT id, amount FROM orders LIMIT 7",
    "SELECT name, name FROM orders LIMIT 15",
    "SELECT count(*) FROM orders",
    "SELECT * FROM empty",
    "SELECT count(*) FROM empty",
    "SELECT * FROM wide",
    "SELECT nothing FROM orders",
    "SELECT * FROM nowhere",
    "SELECT",
    "SELECT 'käufer \u202e \x1b[2J \U0001f600'",
    "SELECT 'a\u2028b'",
    "SELECT 'open",
    "SELECT `open",
    "SELECT /* open",
    "",
    ";",
    "SELECT 'a'; SELECT 'b'",
    "SET",
    "SET a = '1'",
    "SET a",
    "SET s3.secret = 'hunter2'",
    "SET",
    "RESET a",
    "RESET",
    "USE other",
    "INSERT INTO sink SELECT * FROM orders",
    "STOP JOB 'job-sink'",
    "STOP JOB 'none'",
    "CREATE DATABASE x",
    "MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN DELETE",
    "SHOW STEPS FROM orders",
    "SELECT * FROM orders EMIT CHANGES FROM",
)


@pytest.fixture(scope="module")
def gateway():
    with serving(limits=Limits(page_rows=70)) as served:
        yield served


@pytest.fixture
def session(gateway):
    remote = RemoteSession(gateway.url)
    yield remote
    remote.close()


def test_script_through_the_gateway_gives_what_the_session_gives(session):
    direct = MemorySession({})
    assert len(SCRIPT) > 40
    for statement in SCRIPT:
        here, there = direct.execute(statement), session.execute(statement)
        assert all_of(there) == all_of(here), statement
        assert there.status == here.status
        there.close()
        assert (session.settings, session.catalog_name) == (direct.settings, direct.catalog_name)
    for typed in ("", "or", "SELECT * FROM e", "x"):
        assert session.complete(typed, len(typed)) == direct.complete(typed, len(typed))


def test_changes_are_those_of_the_session(session):
    statement = "SELECT id, name FROM orders EMIT CHANGES"
    here, there = MemorySession({}).execute(statement), session.execute(statement)
    assert there.result() == here.result()
    for token in range(20):
        assert there.page(token) == here.page(token)
    assert there.status is OperationStatus.RUNNING
    for operation in (here, there):
        operation.close()


def test_settings_are_given_when_it_opens(gateway):
    session = RemoteSession(gateway.url, settings={"a": "1"})
    assert session.settings == {"a": "1"}
    session.close()


def test_result_and_page_are_none_when_the_time_is_up(session):
    operation = session.execute("SELECT * FROM never")
    assert operation.result(0) is None
    assert operation.result(0.2) is None
    assert operation.page(0, 0.2) is None
    operation.close()


def test_cancel_ends_a_wait_without_end(gateway, session):
    set_limits(remote_poll_s=0.1)
    operation = session.execute("SELECT * FROM never")
    errors = []

    def wait():
        try:
            operation.result()
        except SqlError as error:
            errors.append(error)

    waits = threading.Thread(target=wait)
    waits.start()
    until(lambda: gateway.sessions[-1].operations[-1].n_waits > 2)
    operation.cancel()
    waits.join()
    assert isinstance(errors[0], OperationCanceledError)
    assert operation.status is OperationStatus.CANCELED
    assert session.execute("SHOW JOBS").result().kind is ResultKind.ROWS


def test_statement_that_the_gateway_refuses_raises_its_error(gateway):
    with serving(limits=Limits(operations=1)) as small:
        session = RemoteSession(small.url)
        never = session.execute("SELECT * FROM never")
        with pytest.raises(
            GatewayBusyError,
            match=r"no place for one more operation.*Got: 1 that .*not closed. Allowed: 1. Close finished",
        ):
            session.execute("SHOW TABLES")
        never.close()
        session.execute("SHOW TABLES")
        session.close()


def test_heartbeats_keep_a_session():
    with serving(limits=Limits(idle_timeout_s=0.8)) as gateway:
        kept = RemoteSession(gateway.url)
        gateway.open()  # without heartbeats
        until(lambda: gateway.sessions[1].is_closed)
        assert not gateway.sessions[0].is_closed
        assert kept.execute("SHOW TABLES").result().kind is ResultKind.ROWS
        kept.close()
        assert gateway.sessions[0].is_closed


def test_expired_session_says_so_and_what_to_do():
    with serving(limits=Limits(idle_timeout_s=60)) as gateway:
        session = RemoteSession(gateway.url)
        gateway.call("DELETE", f"/v1/sessions/{session.id}")
        for asked in (
            lambda: session.execute("SHOW TABLES"),
            lambda: session.settings,
            lambda: session.complete("", 0),
        ):
            with pytest.raises(SessionGoneError, match=r"idle for too long.*Open a new one"):
                asked()
        session.close()


def test_gateway_that_goes_away_is_a_transient_error_that_says_so():
    with serving() as gateway:
        session = RemoteSession(gateway.url)
        operation = session.execute("SELECT id FROM orders EMIT CHANGES")
        operation.page(0)
    for asked in (lambda: session.execute("SHOW TABLES"), lambda: operation.page(1), operation.cancel):
        with pytest.raises(GatewayGoneError, match=f"The gateway at {gateway.url} does not answer.") as caught:
            asked()
        assert isinstance(caught.value, Transient)
    session.close()


def test_token_is_sent_and_a_wrong_one_is_refused_without_being_shown():
    with serving(token=TOKEN) as gateway:
        RemoteSession(gateway.url, TOKEN).close()
        for token in (None, "x" * 20):
            with pytest.raises(GatewayError, match="does not know the client") as caught:
                RemoteSession(gateway.url, token)
            assert "x" * 20 not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "127.0.0.1:80",
        "ftp://localhost",
        "http://",
        "http://user:secret@localhost",
        "http://localhost?a",
        "http://localhost#a",
        "http://[",
        "file:///etc/passwd",
    ],
)
def test_url_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="URL of the gateway is not usable") as caught:
        RemoteSession(url)
    assert "secret" not in str(caught.value)


def test_url_without_a_gateway_is_a_transient_error():
    with pytest.raises(GatewayGoneError, match="does not answer"):
        RemoteSession("http://127.0.0.1:9")


class Strange(BaseHTTPRequestHandler):
    """Answers as no gateway does."""

    status, body, seen = 200, b"", []

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(self.path)
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST  # noqa: N815 - the server's name for it

    def log_message(self, *arguments):
        pass


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, b"<html>", GatewayError),
        (200, b"[]", GatewayError),
        (200, b"[" * 100_000, GatewayError),
        (301, b"", GatewayError),
        (307, b"{}", GatewayError),
        (404, b'{"error": "not found"}', GatewayError),
        (404, b'{"error": {"class": "SystemExit", "message": "x"}}', GatewayError),
        (500, b"", GatewayError),
        (502, b"<html>", GatewayGoneError),
        (503, b"Service Unavailable", GatewayGoneError),
        (400, b'{"error": {"class": "SqlError", "message": "x"}}', SqlError),
    ],
)
def test_answer_of_another_server_is_an_error(status, body, error):
    Strange.status, Strange.body, Strange.seen = status, body, []
    server = HTTPServer(("127.0.0.1", 0), Strange)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(error):
            RemoteSession(f"http://127.0.0.1:{server.server_port}", TOKEN)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert Strange.seen == ["/v1/sessions"], "the token is not sent to where it was not given for"
