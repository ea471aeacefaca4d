"""A real gateway on loopback, real HTTP; the sessions behind it are in memory."""

import logging
import threading

import pytest
from frame.limits import set_limits
from frame.waiting import until
from statements.gateway_support import TOKEN, serving
from statements.sql_support import N_ORDERS, MemorySession

from ebbtide.errors import ConfigError
from ebbtide.sql import GatewayServer, Limits


@pytest.fixture(scope="module")
def gateway():
    with serving() as served:
        yield served


@pytest.fixture
def session(gateway):
    path = gateway.open()
    yield path
    gateway.call("DELETE", path)


# --- without a session


def test_health_and_info_need_no_session(gateway):
    assert gateway.call("GET", "/v1/health").json == {"status": "ok"}
    info = gateway.call("GET", "/v1/info").json
    assert (info["product"], info["read_only"], info["limits"]["page_rows"]) == ("ebbtide", False, 1000)


# --- sessions


@pytest.mark.demand("sql-gateway")
def test_session_is_opened_described_and_closed(gateway):
    opened = gateway.call("POST", "/v1/sessions", {"settings": {"a": "1", "s3.secret": "hunter2"}})
    assert opened.status == 201
    assert opened.json["catalog"] == "memory"
    assert opened.json["settings"] == {"a": "1", "s3.secret": "***"}
    path = f"/v1/sessions/{opened.json['session']}"
    assert gateway.call("GET", path).json == opened.json
    assert gateway.call("DELETE", path).status == 200
    gone = gateway.call("GET", path)
    assert (gone.status, gone.error["class"], gone.error["retryable"]) == (404, "SessionGoneError", False)
    assert "Open a new one." in gone.error["message"]


def test_session_is_configured(gateway, session):
    for statement in ("SET a = '1'", "USE other"):
        assert gateway.call("POST", f"{session}/configure", {"statement": statement}).status == 200
    described = gateway.call("GET", session).json
    assert (described["catalog"], described["settings"], described["operations"]) == ("other", {"a": "1"}, [])


def test_only_what_configures_is_taken_for_configuring(gateway, session):
    refused = gateway.call("POST", f"{session}/configure", {"statement": "SELECT * FROM orders"})
    assert refused.status == 403
    assert refused.error["message"].startswith(
        "This statement does not configure a session. Got: Select. Allowed: SET, RESET, USE."
    )


def test_session_that_is_described_lists_its_operations(gateway, session):
    path = gateway.execute(session, "SELECT * FROM never")
    listed = gateway.call("GET", session).json["operations"]
    assert listed == [{"operation": path.rpartition("/")[2], "status": "RUNNING"}]


def test_sessions_do_not_see_each_other(gateway, session):
    other = gateway.open(a="2")
    operation = gateway.execute(session, "SELECT * FROM never").rpartition("/")[2]
    assert gateway.call("GET", session).json["settings"] == {}
    assert gateway.call("GET", f"{other}/operations/{operation}").error["class"] == "OperationGoneError"
    gateway.call("DELETE", other)


# --- operations


@pytest.mark.demand("sql-results")
def test_rows_come_page_by_page(gateway, session):
    operation = gateway.execute(session, "SELECT id FROM orders LIMIT 250")
    result = gateway.call("GET", f"{operation}/result?timeout_s=20").json
    assert result == {"kind": "rows", "columns": [{"name": "id", "type": "bigint"}], "message": ""}
    rows, token = [], 0
    while token is not None:
        page = gateway.call("GET", f"{operation}/pages/{token}?timeout_s=20").json
        again = gateway.call("GET", f"{operation}/pages/{token}?timeout_s=20").json
        assert page == again
        rows += page["rows"]
        token = page["next"]
    assert rows == [[i] for i in range(250)]
    assert page["notice"] == "all"
    assert gateway.call("GET", operation).json["status"] == "FINISHED"


def test_pages_are_no_longer_than_the_limit():
    with serving(limits=Limits(page_rows=30)) as gateway:
        operation = gateway.execute(gateway.open(), "SELECT id FROM orders LIMIT 250")
        lengths, token = [], 0
        while token is not None:
            page = gateway.call("GET", f"{operation}/pages/{token}?timeout_s=20").json
            lengths.append(len(page["rows"]))
            token = page["next"]
    assert lengths == [30, 30, 30, 10, 30, 30, 30, 10, 30, 20]


def test_changes_have_no_end_and_are_taken_up_again_at_a_position(gateway, session):
    operation = gateway.execute(session, "SELECT id FROM orders EMIT CHANGES")
    assert gateway.call("GET", f"{operation}/result?timeout_s=20").json["kind"] == "changes"
    for token in range(20):
        page = gateway.call("GET", f"{operation}/pages/{token}?timeout_s=20").json
        assert page["next"] == token + 1
    gateway.call("POST", f"{operation}/cancel")
    again = gateway.execute(session, f"SELECT id FROM orders EMIT CHANGES FROM '{page['position']}'")
    first = gateway.call("GET", f"{again}/pages/0?timeout_s=20").json
    assert [row[1] for row in first["rows"]] == [20]


def test_late_result_is_answered_when_the_time_is_up(gateway, session):
    operation = gateway.execute(session, "SELECT * FROM never")
    for path in ("result", "result?timeout_s=0.2", "pages/0?timeout_s=0.2"):
        late = gateway.call("GET", f"{operation}/{path}")
        assert (late.status, late.json["status"]) == (202, "RUNNING")


def test_request_waits_for_another_one_of_the_same_operation(gateway, session):
    operation = gateway.execute(session, "SELECT * FROM paused")
    gateway.call("GET", f"{operation}/pages/0?timeout_s=20")
    replies = []
    waits = threading.Thread(target=lambda: replies.append(gateway.call("GET", f"{operation}/pages/1?timeout_s=0.6")))
    behind = gateway.sessions[-1].operations[-1]
    n_before = behind.n_pages_waited_for
    waits.start()
    until(lambda: behind.n_pages_waited_for > n_before)
    assert gateway.call("GET", f"{operation}/pages/0").json["rows"] == [["1"]]
    waits.join()
    assert replies[0].status == 202


def test_failure_is_answered_with_its_class(gateway, session):
    operation = gateway.execute(session, "SELECT * FROM nowhere")
    failed = gateway.call("GET", f"{operation}/result?timeout_s=20")
    assert failed.status == 422
    assert failed.error == {
        "class": "SqlError",
        "message": "There is no table 'nowhere'. Allowed: orders, empty, wide.",
        "retryable": False,
    }
    unreadable = gateway.execute(session, "SELECT 'open")
    assert gateway.call("GET", f"{unreadable}/result?timeout_s=20").status == 400


def test_failure_that_is_not_ours_is_logged_without_credentials_and_not_shown(gateway, session, caplog):
    with caplog.at_level(logging.ERROR):
        operation = gateway.execute(session, "SELECT * FROM broken")
        failed = gateway.call("GET", f"{operation}/result?timeout_s=20")
    assert (failed.status, failed.error["class"]) == (500, "GatewayError")
    assert "Got: ValueError." in failed.error["message"]
    assert "what is not ours: password=***" in caplog.text
    assert "hunter2" not in caplog.text + failed.error["message"]


def test_cancel_of_what_is_over_does_nothing(gateway, session):
    operation = gateway.execute(session, "SET a = 1")
    gateway.call("GET", f"{operation}/result?timeout_s=20")
    assert gateway.call("POST", f"{operation}/cancel").json["status"] == "FINISHED"


@pytest.mark.demand("sql-cancel")
def test_closed_operation_is_cancelled_and_gone(gateway, session):
    operation = gateway.execute(session, "SELECT * FROM never")
    assert gateway.call("DELETE", operation).status == 200
    assert gateway.sessions[-1].operations[-1].is_closed
    gone = gateway.call("GET", operation)
    assert (gone.status, gone.error["class"]) == (404, "OperationGoneError")


# --- jobs


def test_jobs_are_listed_and_stopped(gateway, session):
    assert gateway.call("GET", f"{session}/jobs").json["rows"] == [["job-1", "1", "RUNNING"]]
    assert gateway.call("POST", f"{session}/jobs/job-1/stop").json["message"] == "Job 'job-1' ends after its step."
    assert gateway.call("GET", f"{session}/jobs").json["rows"] == [["job-1", "1", "STOPPING"]]
    unknown = gateway.call("POST", f"{session}/jobs/job-2/stop")
    assert (unknown.status, unknown.error["class"]) == (422, "SqlError")
    assert gateway.call("GET", session).json["operations"] == []


def test_jobs_of_a_busy_session_are_not_waited_for_without_end():
    with serving(limits=Limits(wait_s=0.2)) as gateway:
        session = gateway.open()
        gateway.execute(session, "SELECT * FROM never")
        late = gateway.call("GET", f"{session}/jobs")
        assert (late.status, late.error["class"]) == (409, "OperationCanceledError")
        assert len(gateway.call("GET", session).json["operations"]) == 1


# --- limits


def test_no_more_sessions_than_allowed():
    with serving(limits=Limits(sessions=2)) as gateway:
        first = gateway.open()
        gateway.open()
        refused = gateway.call("POST", "/v1/sessions", {})
        assert (refused.status, refused.error["class"], refused.error["retryable"]) == (429, "GatewayBusyError", True)
        assert "Got: 2 sessions. Allowed: 2. Close one" in refused.error["message"]
        gateway.call("DELETE", first)
        assert gateway.call("POST", "/v1/sessions", {}).status == 201


def test_gateway_with_a_single_token_has_one_client_which_may_have_all_sessions():
    with serving(limits=Limits(sessions=2, client_sessions=1)) as gateway:
        assert gateway.call("GET", "/v1/info").json["limits"]["client_sessions"] == 2
        gateway.open()
        gateway.open()


def test_no_place_is_lost_where_opening_or_executing_fails():
    def fails(settings):
        raise ConfigError.of("The setting is not usable.", got="a")

    with serving(fails, limits=Limits(sessions=1)) as gateway:
        for _ in range(3):
            refused = gateway.call("POST", "/v1/sessions", {})
            assert (refused.status, refused.error["class"]) == (400, "ConfigError")


@pytest.mark.parametrize("n_bytes", [1000, 1001])
def test_statement_is_as_long_as_allowed(n_bytes):
    with serving(limits=Limits(statement_bytes=1000)) as gateway:
        session = gateway.open()
        text = "ü" * 400
        statement = f"SELECT '{text}'"
        statement += " " * (n_bytes - len(statement.encode()))
        reply = gateway.call("POST", f"{session}/statements", {"statement": statement})
        assert reply.status == (201 if n_bytes == 1000 else 413)
        if n_bytes > 1000:
            assert "Got: 1001 bytes. Allowed: 1000 bytes. Split it" in reply.error["message"]
        completed = gateway.call("POST", f"{session}/complete", {"text": statement, "offset": 0})
        assert completed.status == (200 if n_bytes == 1000 else 413)


def test_body_is_not_read_beyond_the_limit():
    with serving(limits=Limits(statement_bytes=1000)) as gateway:
        session = gateway.open()
        reply = gateway.call("POST", f"{session}/statements", raw=b'{"statement": "' + b" " * 20_000)
        assert reply.status == 413
        assert "Allowed: 10096 bytes." in reply.error["message"]


@pytest.mark.parametrize("limits", [{"sessions": 0}, {"idle_timeout_s": -1.0}, {"wait_s": float("nan")}])
def test_limit_that_allows_nothing_is_refused(limits):
    with pytest.raises(ConfigError, match="Allowed: above 0"):
        Limits(**limits)


# --- the ends of sessions


@pytest.mark.demand("sql-timeouts")
def test_idle_session_ends_and_one_with_heartbeats_lives():
    with serving(limits=Limits(idle_timeout_s=1)) as gateway:
        idle, alive = gateway.open(), gateway.open()
        gateway.execute(idle, "SELECT * FROM never")
        gateway.execute(idle, "INSERT INTO orders SELECT * FROM changes")

        def idle_has_ended():
            beat = gateway.call("POST", f"{alive}/heartbeat")
            assert beat.json["idle_timeout_s"] == 1
            return gateway.sessions[0].is_closed

        until(idle_has_ended)
        gone = gateway.call("GET", idle)
        assert (gone.status, gone.error["class"]) == (404, "SessionGoneError")
        assert "within the last 1 s" in gone.error["message"]
        until(lambda: gateway.sessions[0].operations[0].status == "CANCELED")
        assert not gateway.sessions[1].is_closed
    assert any(line.endswith("closed: idle for 1 s (1 of 20).") for line in gateway.lines)


def test_session_is_not_idle_while_its_client_waits():
    with serving(limits=Limits(idle_timeout_s=0.3, wait_s=1)) as gateway:
        session = gateway.open()
        operation = gateway.execute(session, "SELECT * FROM never")
        waited = gateway.call("GET", f"{operation}/result?timeout_s=1")
        assert (waited.status, waited.json["status"]) == (202, "RUNNING")


@pytest.mark.demand("sql-exit")
def test_end_of_the_gateway_cancels_queries_and_answers_waiting_requests():
    replies = []
    with serving() as gateway:
        session = gateway.open()
        operation = gateway.execute(session, "SELECT * FROM never")
        waits = threading.Thread(target=lambda: replies.append(gateway.call("GET", f"{operation}/result?timeout_s=20")))
        waits.start()
        until(lambda: gateway.sessions[0].operations[0].n_waits)
    waits.join()
    assert gateway.sessions[0].is_closed
    assert replies[0].error["class"] == "OperationCanceledError"
    assert gateway.lines[-1].endswith("closed: the gateway ends (0 of 20).")


class Deaf(MemorySession):
    """Does not end until it is let."""

    let = threading.Event()

    def close(self):
        self.let.wait()


def test_session_that_hangs_does_not_keep_the_gateway_from_ending():
    set_limits(ending_s=0.2)
    with serving(Deaf) as gateway:
        gateway.open()
    Deaf.let.set()


def test_lines_have_no_whole_id():
    with serving() as gateway:
        session = gateway.open()
        gateway.call("DELETE", session)
    identifier = session.rpartition("/")[2]
    assert len(gateway.lines) == 2
    assert gateway.lines[0] == f"Session {identifier[:8]} opened (1 of 20)."
    assert identifier not in "".join(gateway.lines)


# --- who may ask


@pytest.fixture(scope="module")
def guarded():
    with serving(token=TOKEN) as served:
        yield served


@pytest.mark.demand("sql-credentials")
def test_right_token_is_let_in(guarded):
    assert guarded.call("GET", "/v1/info").status == 200
    assert guarded.call("GET", "/v1/info", headers={"Authorization": f"bearer {TOKEN}"}).status == 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        "Bearer \xfc",
        f"Token {TOKEN}",
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/info"), ("POST", "/v1/sessions"), ("GET", "/nowhere")])
def test_wrong_token_is_refused(guarded, header, method, path):
    refused = guarded.call(method, path, headers={"Authorization": header})
    assert (refused.status, refused.error["class"]) == (401, "GatewayError")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in refused.raw.decode()
    assert "--token-env" in refused.error["message"]


def test_health_needs_no_token(guarded):
    assert guarded.call("GET", "/v1/health", headers={"Authorization": None}).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104 - refused
def test_gateway_beyond_loopback_needs_a_token(host):
    with pytest.raises(ConfigError, match=r"Got: --host .* without a token"):
        GatewayServer(MemorySession, host=host)


def test_port_that_is_taken_is_refused(gateway):
    port = int(gateway.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match="cannot listen there"):
        GatewayServer(MemorySession, port=port)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example", "127.0.0.1:x", "", "[::1"],
)
def test_foreign_host_is_refused_on_loopback(gateway, host):
    refused = gateway.call("GET", "/v1/info", headers={"Host": host})
    assert refused.status == 403
    assert refused.error["message"].startswith("The Host of the request is not this machine.")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8083", "127.0.0.1", "127.0.0.1:9", "[::1]:8083", "127.9.9.9"])
def test_host_of_this_machine_is_taken(gateway, host):
    assert gateway.call("GET", "/v1/info", headers={"Host": host}).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", "http://[", "file://"])
def test_page_of_another_origin_is_refused(gateway, origin):
    refused = gateway.call("POST", "/v1/sessions", {}, headers={"Origin": origin})
    assert refused.status == 403
    assert "Access-Control-Allow-Origin" not in {name.title() for name in refused.headers}


def test_own_origin_is_taken_and_nothing_is_said_of_cors(gateway):
    reply = gateway.call("GET", "/v1/info", headers={"Origin": gateway.url})
    assert reply.status == 200
    assert not [name for name in reply.headers if name.lower().startswith("access-control")]
    assert reply.headers["cache-control"] == "no-store"


# --- requests that are none


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/info", 404),
        ("GET", "/v1/info/", 404),
        ("PUT", "/v1/sessions", 405),
        ("OPTIONS", "/v1/sessions", 405),
        ("GET", "/v1/sessions/unknown", 404),
        ("DELETE", "/v1/sessions/unknown", 404),
        ("POST", "/v1/sessions/unknown/heartbeat", 404),
    ],
)
def test_endpoint_that_is_none_is_answered_in_json(gateway, method, path, status):
    refused = gateway.call(method, path)
    assert refused.status == status
    assert refused.error["message"]
    assert ("allow" in refused.headers) == (status == 405)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "Invalid JSON"),
        (b"{", "Invalid JSON"),
        (b"[]", "a JSON object of statement"),
        (b'"SELECT 1"', "a JSON object of statement"),
        (b"{}", "statement: Field required"),
        (b'{"statement": 1}', "statement: Input should be a valid string"),
        (b'{"statement": null}', "statement: Input should be a valid string"),
        (b'{"statement": "SELECT 1", "more": 1}', "more: Extra inputs are not permitted"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[" * 4000, "Invalid JSON"),
    ],
)
def test_body_that_is_not_usable_is_refused(gateway, session, raw, says):
    refused = gateway.call("POST", f"{session}/statements", raw=raw)
    assert (refused.status, refused.error["class"]) == (400, "GatewayError")
    assert says in refused.error["message"]


def test_body_that_is_not_declared_as_json_is_refused(gateway, session):
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        refused = gateway.call("POST", f"{session}/statements", raw=b"{}", headers={"Content-Type": kind})
        assert refused.status == 415
        assert "Allowed: Content-Type: application/json." in refused.error["message"]


def test_what_was_sent_is_not_said_where_the_body_is_refused(gateway):
    refused = gateway.call("POST", "/v1/sessions", {"settings": {"a": ["hunter2"]}})
    assert refused.status == 400
    assert "hunter2" not in refused.error["message"]


@pytest.mark.parametrize("timeout", ["x", "-1", "nan", "", "1e"])
def test_time_that_is_none_is_refused(gateway, session, timeout):
    operation = gateway.execute(session, "SET a = 1")
    refused = gateway.call("GET", f"{operation}/result?timeout_s={timeout}")
    assert refused.status == 400
    assert "Allowed: seconds, 0 to 20." in refused.error["message"]


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "%d9%a1", "9" * 5000, "0x1"])
def test_page_token_that_is_none_is_refused(gateway, session, token):
    operation = gateway.execute(session, "SELECT id FROM orders")
    assert gateway.call("GET", f"{operation}/pages/{token}").status == 400


# --- many at once


def test_twenty_clients_at_once_each_get_their_own_rows():
    wrong = []
    ids = [[number] for number in range(N_ORDERS)]

    def client(number):
        session = gateway.open()
        operation = gateway.execute(session, f"SELECT id FROM orders LIMIT {number * 100 + 1}")
        rows, token = [], 0
        while token is not None:
            page = gateway.call("GET", f"{operation}/pages/{token}?timeout_s=20").json
            rows += page["rows"]
            token = page["next"]
        gateway.call("DELETE", session)
        if rows != ids[: number * 100 + 1]:
            wrong.append(number)

    with serving() as gateway:
        clients = [threading.Thread(target=client, args=(number,)) for number in range(20)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
    assert wrong == []
    assert len(gateway.sessions) == 20
