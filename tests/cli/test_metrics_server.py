"""The endpoint of a followed run: what it answers, where it refuses to begin, and that nothing of it is left."""

import json
import socket
import threading
from contextlib import ExitStack
from urllib.error import URLError

import pytest
from frame.limits import set_limits
from frame.waiting import until
from local.metrics_support import OPENMETRICS, command, get, samples_of

from ebbtide.cli.metrics_server import served
from ebbtide.errors import ConfigError
from ebbtide.inspect import WatchedFleet, WatchedRun
from ebbtide.runtime import Phase

MOST_CONNECTIONS = 16


def test_metrics_come_in_the_form_that_is_asked_for_and_health_by_its_code(make):
    pipeline = make()
    now_s = [0.0]
    run = WatchedRun(pipeline.spec, pipeline.root, 60, now_s=lambda: now_s[0])
    watched = WatchedFleet([run], pipeline.root)
    run.phase(Phase("t", "reading", 1))
    with served(watched, "127.0.0.1", 0) as port:
        status, kind, text = get(port, "/metrics", Accept=OPENMETRICS)
        assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
        assert samples_of(text)["ebbtide_run_healthy",] == 1
        assert samples_of(text)["process_resident_memory_bytes",] > 0
        status, kind, text = get(port, "/metrics")
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        assert "# TYPE ebbtide_run_phase_seconds_total counter\n" in text
        status, _, text = get(port, "/healthz")
        assert (status, json.loads(text)["is_healthy"]) == (200, True)
        now_s[0] = 61.0
        status, _, text = get(port, "/healthz?verbose")
        assert (status, json.loads(text)["reason"]) == (
            503,
            "t: no step, phase or look at the source for 61 s; allowed: 60 s",
        )
        assert get(port, "/secret")[0] == 404
    with pytest.raises(URLError):
        get(port, "/healthz")


def serving():
    """Return the threads that serve a connection, of this server and of those of other tests."""
    return {thread for thread in threading.enumerate() if "process_request_thread" in thread.name}


def unstarted(pipeline):
    return WatchedFleet([WatchedRun(pipeline.spec, pipeline.root, 60)], pipeline.root)


def test_client_that_sends_nothing_or_byte_by_byte_takes_no_place_from_a_scrape(make):
    before = serving()
    with served(unstarted(make()), "127.0.0.1", 0) as port, ExitStack() as held:
        slow = []
        for _ in range(5 * MOST_CONNECTIONS):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.send(b"G")
            slow.append(connection)
        assert get(port, "/healthz")[0] == 200
        # The server closes all but the newest, even if they go on to send; each thread ends soon after.
        assert slow[0].recv(1) == b""
        until(lambda: len(serving() - before) <= MOST_CONNECTIONS, "the threads of closed connections to end")


def test_connection_that_lives_too_long_is_ended(make):
    set_limits(connection_s=0.0)
    with served(unstarted(make()), "127.0.0.1", 0) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        assert slow.recv(1) == b""


OWN = ["127.0.0.1", "localhost:9464", "LOCALHOST", "[::1]:9464", "127.9.9.9"]
FOREIGN = ["rebound.example.com", "127.0.0.1.example.com", "localhost.example.com:9464", "a@localhost", "", "localhost:port", "//", "localhost/x"]  # fmt: skip
PRIVATE = ["10.0.0.7:9464", "[fd00::7]", "ebbtide:9464", "orders.shop.svc.cluster.local", "host.docker.internal"]


def answered(port, *hosts):
    """Return the status of an answer to a request with these headers Host."""
    lines = ["GET /metrics HTTP/1.1", *(f"Host: {host}" for host in hosts), "", ""]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join(lines).encode())
        first, _, _ = connection.makefile("rb").readline().partition(b"\r\n")
    return int(first.split()[1])


@pytest.mark.parametrize(
    ("bound", "taken", "refused"),
    [("127.0.0.1", OWN, FOREIGN + PRIVATE), ("0.0.0.0", OWN + PRIVATE + [socket.gethostname()], FOREIGN)],  # noqa: S104
)
def test_host_is_one_that_the_server_goes_by(make, bound, taken, refused):
    with served(unstarted(make()), bound, 0) as port:
        assert {host: answered(port, host) for host in taken} == dict.fromkeys(taken, 200)
        assert {host: answered(port, host) for host in refused} == dict.fromkeys(refused, 403)
        assert (answered(port), answered(port, "localhost", "localhost")) == (403, 403)


def test_port_that_is_taken_and_host_that_is_not_there_are_refused(make):
    pipeline = make()
    watched = WatchedFleet([WatchedRun(pipeline.spec, pipeline.root, 60)], pipeline.root)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"127.0.0.1:{port}: Address already in use"),
            served(watched, "127.0.0.1", port),
        ):
            pass
    with pytest.raises(ConfigError, match="Give another --metrics-port"), served(watched, "no.such.host.invalid", 0):
        pass


@pytest.mark.parametrize("options", [(), ("--engine", "local")])
def test_run_that_ends_serves_no_metrics(make, tmp_path, options):
    refused = command(make(), tmp_path, "run", "--metrics-port", "0", *options)
    assert (refused.exit_code, "Only continuous runs serve metrics." in refused.stderr) == (2, True)


def test_options_of_the_endpoint_need_its_port(make, tmp_path):
    refused = command(make(), tmp_path, "run", "--follow", "--metrics-host", "0.0.0.0")  # noqa: S104 - it is refused
    assert (refused.exit_code, "Allowed: with --metrics-port." in refused.stderr) == (2, True)


@pytest.mark.parametrize(("option", "said"), [("soon", "--healthy-within"), ("-1s", "--healthy-within")])
def test_bound_that_is_no_duration_is_refused(make, tmp_path, option, said):
    refused = command(make(), tmp_path, "run", "--follow", "--metrics-port", "0", "--healthy-within", option)
    assert (refused.exit_code, said in refused.stderr) == (2, True)
