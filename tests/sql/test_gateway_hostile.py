"""Hundreds of hostile statements and requests: each is answered, none with a traceback or as a failure of the gateway."""

import http.client
import itertools
import json
import logging
import random
import select
import socket
from contextlib import ExitStack, suppress
from urllib.parse import quote, urlsplit

import pytest
from frame.limits import set_limits
from frame.waiting import PATIENCE_S, until
from inputs.hostile import TEXTS
from statements.gateway_support import TOKEN, serving

from ebbtide.sql import Limits
from ebbtide.sql._gateway import server
from ebbtide.sql._gateway.requests import DRAINED_BYTES

SQL = (
    "SELECT '{}",
    'SELECT * FROM "{}"',
    "SELECT * FROM `{}`",
    "SET '{}' = '{}'",
    "SHOW TABLES LIKE '{}'",
    "STOP JOB '{}'",
    "CREATE SOURCE {} (id INT, PRIMARY KEY (id)) WITH ('a' = '{}')",
)


def long_statements(n):
    """Statements of some n characters that are nested, repeated or torn."""
    return (
        "''" * (n // 2),
        "BEGIN " + ";" * n,
        "(" * n,
        "SELECT " + "(" * (n // 2) + ")" * (n // 2),
        "/*" * n,
        "--" * n,
        "`a`." * (n // 4),
        "CASE " * (n * 3 // 4),
        "CREATE TABLE a (" + "STRUCT<" * (n // 4),
        "SELECT " + "1," * (n // 2),
        ";" * n,
        "\\" * n,
        "r'" * n,
    )


TARGETS = (
    *("/v1/../v1/info", "/v1/sessions/../../etc/passwd", "//v1/info", "/v1//info", "/v1/info/..", "/v1/%2e%2e/info"),
    *("/v1/sessions/%00", "/v1/sessions/%ff%fe", "/v1/sessions/%2F%2Fx", "/v1/sessions/a%0d%0aX: y", "/v1/sessions/" + "a" * 20_000),
    *("/v1/info?" + "a=b&" * 5_000, "/v1/info?timeout_s[]=1", "/v1/info;x", "/v1/info%20", "/V1/INFO", "/v1/info#x", "http://evil.example/v1/info"),
    *("*", "/%", "/%zz", "/v1/sessions/$(id)", "/v1/sessions/{session}", "/v1/sessions/'; DROP TABLE a; --"),
)  # fmt: skip
HEADERS = (b"Origin", b"Content-Type", b"Authorization", b"X-Forwarded-Host", b"Cookie", b"Accept")
RAW = (
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET /v1/info HTTP/1.0\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{}",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    bytes(range(256)) * 16,
)


@pytest.fixture(scope="module")
def gateway():
    with serving(limits=Limits(statement_bytes=70_000)) as served:
        yield served


@pytest.fixture(autouse=True)
def log(caplog):
    """Nothing that is not ours was raised, in the app or in the server."""
    with caplog.at_level(logging.ERROR):
        yield caplog
    assert caplog.text == ""


def answered(reply):
    assert reply.status < 500, reply.raw[:500]
    assert b"Traceback" not in reply.raw
    if reply.status >= 400:
        assert set(reply.error) == {"class", "message", "retryable"}
        assert len(reply.error["message"]) < 5_000


@pytest.mark.parametrize(("n_forms", "n"), [(1, 2_000), pytest.param(len(SQL), 8_000, marks=pytest.mark.grid)])
def test_statements(gateway, n_forms, n):
    session = gateway.open()
    forms = itertools.cycle(SQL)
    statements = [next(forms).replace("{}", text) for text in TEXTS for _ in range(n_forms)]
    statements += long_statements(n)
    for statement in statements:
        begun = gateway.call("POST", f"{session}/statements", {"statement": statement})
        answered(begun)
        if begun.status == 201:
            operation = f"{session}/operations/{begun.json['operation']}"
            answered(gateway.call("GET", f"{operation}/result?timeout_s=20"))
            answered(gateway.call("DELETE", operation))
    answered(gateway.call("GET", session))


def test_statements_where_nothing_may_be_written():
    with serving(read_only=True) as gateway:
        session = gateway.open()
        for statement in long_statements(2_000)[::3]:
            begun = gateway.call("POST", f"{session}/statements", {"statement": statement})
            answered(begun)
            if begun.status == 201:
                answered(gateway.call("DELETE", f"{session}/operations/{begun.json['operation']}"))


def test_values_in_every_place(gateway):
    for text in TEXTS:
        opened = gateway.call("POST", "/v1/sessions", {"settings": {text: text}})
        answered(opened)
        session = f"/v1/sessions/{opened.json['session']}" if opened.status == 201 else gateway.open()
        in_path = quote(text, safe="", errors="surrogatepass")[:3000]
        answered(gateway.call("POST", f"{session}/complete", {"text": text, "offset": len(text)}))
        answered(gateway.call("POST", f"{session}/configure", {"statement": text}))
        answered(gateway.call("GET", f"/v1/sessions/{in_path}"))
        answered(gateway.call("GET", f"{session}/operations/{in_path}/result?timeout_s={in_path}"))
        answered(gateway.call("POST", f"{session}/jobs/{in_path}/stop"))
        answered(gateway.call("DELETE", session))


def test_torn_and_random_json(gateway):
    session = gateway.open()
    whole = json.dumps({"statement": "SELECT 'käufer'"}).encode()
    chance = random.Random(7)
    bodies = [whole[:end] for end in range(len(whole))]
    bodies += [bytes(chance.randrange(256) for _ in range(40)) for _ in range(50)]
    bodies += [
        b'{"statement": ' + value + b"}"
        for value in (b"1e999", b"NaN", b"9" * 5000, b"[" * 5000, b'"\\ud800"', b'"\\u0000"', b"{}")
    ]
    bodies += [
        b'{"statement": "a", "statement": "b"}',
        b'{"offset": -1, "text": ""}',
        b'{"offset": 1e99, "text": ""}',
        b"\x00" * 1000,
    ]
    for body in bodies:
        for path in (f"{session}/statements", f"{session}/complete", f"{session}/configure", "/v1/sessions"):
            reply = gateway.call("POST", path, raw=body)
            answered(reply)
            if "operation" in reply.json:
                gateway.call("DELETE", f"{session}/operations/{reply.json['operation']}")
            if "session" in reply.json:
                gateway.call("DELETE", f"/v1/sessions/{reply.json['session']}")


def test_huge_bodies(gateway):
    session = gateway.open()
    for body in (b"x" * 2_000_000, b'{"statement": "' + b"a" * 2_000_000 + b'"}', b" " * 2_000_000):
        reply = gateway.call("POST", f"{session}/statements", raw=body)
        assert reply.status == 413


def test_body_without_end(gateway):
    head = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    received = exchange(gateway, head + b" " * (DRAINED_BYTES + 1_000_000))
    assert received == b"" or received.startswith(b"HTTP/1.1 413")


def exchange(gateway, data):
    """Send bytes; return what comes back until the gateway closes, or has nothing more to say."""
    host, _, port = urlsplit(gateway.url).netloc.partition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:
            pass  # it was closed while the rest was being sent
    return received


def test_bytes_that_are_no_request(gateway):
    for data in RAW:
        received = exchange(gateway, data)
        assert b"Traceback" not in received, data
        status = received.split(b" ", 2)[1] if received.startswith(b"HTTP/") else b""
        assert status < b"500", data
        answered(gateway.call("GET", "/v1/health"))


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "HEAD", "TRACE", "BREW"])
def test_paths_that_lead_elsewhere(gateway, method):
    for target in TARGETS:
        first = f"{method} {target.replace(' ', '%20')} HTTP/1.1"
        received = exchange(gateway, f"{first}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert b"Traceback" not in received, target
        assert b"root:" not in received, target
        assert received.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), target


@pytest.mark.parametrize("n_names", [1, pytest.param(len(HEADERS), marks=pytest.mark.grid)])
def test_headers_that_lie(gateway, n_names):
    names = itertools.cycle(HEADERS)
    for text in TEXTS:
        value = text.encode("utf-8", "surrogatepass").replace(b"\r", b"").replace(b"\n", b"")[:5000]
        for name in itertools.islice(names, n_names):
            first = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            received = exchange(gateway, first + name + b": " + value + b"\r\n\r\n")
            assert b"Traceback" not in received, (name, text)
            assert received == b"" or received.startswith(b"HTTP/1.1 4"), (name, text)


def test_forged_headers_are_refused_without_a_token():
    with serving(token=TOKEN) as guarded:
        right = f"Authorization: Bearer {TOKEN}\r\n".encode()
        head = b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        assert exchange(guarded, head + right + b"\r\n").startswith(b"HTTP/1.1 200")
        assert exchange(guarded, head + 2 * right + b"\r\n").startswith(b"HTTP/1.1 401")
        for path in (
            "/v1/info",
            "/v1/health/../info",
            "/v1/health/",
            "/v1/health?/v1/info",
            "/v1/health%2f..%2finfo",
            "/v1/%69nfo",
        ):
            for headers in (
                {},
                {"X-Forwarded-For": "127.0.0.1"},
                {"X-Original-URL": "/v1/health"},
                {"X-HTTP-Method-Override": "GET"},
            ):
                connection = http.client.HTTPConnection(urlsplit(guarded.url).netloc, timeout=PATIENCE_S)
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse().read()
                connection.close()
                assert b"version" not in answer


HALF = b"GET /v1/health HTTP/1.1\r\nHost: loc"
WITHOUT_BODY = (
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
)
NEIGHBOUR = "127.0.0.2"
"""Another address of this machine."""


def half_sent(gateway, data=HALF, address="127.0.0.1"):
    host, port = urlsplit(gateway.url).netloc.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S, source_address=(address, 0))
    with suppress(ConnectionResetError, BrokenPipeError):  # there is no place for it
        connection.sendall(data)
    return connection


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("address", ["127.0.0.1", NEIGHBOUR])
def test_hundreds_of_half_sent_headers_leave_room_for_new_clients(address):
    with serving() as gateway, ExitStack() as opened:
        half = [opened.enter_context(half_sent(gateway, address=address)) for _ in range(400)]
        assert [gateway.call("GET", "/v1/info").status for _ in range(10)] == [200] * 10
        n_too_many = len(half) - server.MOST_OF_ADDRESS
        assert all(map(is_closed, half[:n_too_many]))


def test_half_sent_bodies_of_one_address_leave_room_for_another():
    set_limits(most_of_address=20, most_connections=30)
    with serving() as gateway, ExitStack() as opened:
        waiting = [opened.enter_context(half_sent(gateway, WITHOUT_BODY, NEIGHBOUR)) for _ in range(40)]
        assert [gateway.call("GET", "/v1/info").status for _ in range(10)] == [200] * 10
        until(lambda: len(select.select(waiting, [], [], 0)[0]) == 20)
        closed, _, _ = select.select(waiting, [], [], 0)
        assert all(map(is_closed, closed))


def test_idle_connections_of_the_most_crowded_address_make_room():
    set_limits(most_of_address=20, most_connections=30)
    with serving() as gateway, ExitStack() as opened:
        own = [opened.enter_context(half_sent(gateway)) for _ in range(5)]
        many = [opened.enter_context(half_sent(gateway, address=NEIGHBOUR)) for _ in range(20)]
        few = [opened.enter_context(half_sent(gateway, address="127.0.0.3")) for _ in range(10)]
        assert all(map(is_closed, many[:5]))
        for connection in (*own, *many[-1:], *few):
            connection.sendall(b"alhost\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_connection_whose_headers_do_not_come_is_closed():
    set_limits(headers_timeout_s=0.2)
    with serving() as gateway, half_sent(gateway) as connection:
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        assert gateway.call("GET", "/v1/health").status == 200


@pytest.mark.parametrize("sent", [b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2, b"GET /v1/health"])
def test_connection_in_use_is_not_closed_for_its_headers(sent):
    set_limits(headers_timeout_s=60)
    with serving() as gateway, half_sent(gateway) as connection:
        connection.sendall(b"alhost\r\n\r\n" + sent)
        assert b"200 OK" in connection.recv(4096)
