"""A gateway in a process of its own, ended by signals."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from frame.waiting import PATIENCE_S

from ebbtide.errors import GatewayGoneError, OperationCanceledError
from ebbtide.sql import RemoteSession

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def process():
    """Start it; give it and its URL."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
    started = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "support" / "gateway_process.py", "600"],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started, started.stdout.readline().strip()
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_in_order(number):
    with process() as (gateway, url):
        session = RemoteSession(url)
        operation = session.execute("SELECT * FROM never")
        endless = RemoteSession(url).execute("SELECT id FROM orders EMIT CHANGES")
        assert endless.page(0).rows
        assert operation.result(0.1) is None
        errors = []

        def wait():
            try:
                operation.result()
            except (
                OperationCanceledError,
                GatewayGoneError,
            ) as error:  # the second: it asked again as the gateway ended
                errors.append(error)

        waits = threading.Thread(target=wait)
        waits.start()
        gateway.send_signal(number)
        output, log = gateway.communicate(timeout=PATIENCE_S)
        waits.join()
        session.close()
    assert gateway.returncode == 0
    assert len(errors) == 1
    lines = output.splitlines()
    assert sum(line.endswith(("opened (1 of 20).", "opened (2 of 20).")) for line in lines) == 2
    assert sum("closed: the gateway ends" in line for line in lines) == 2
    assert lines[-1] == "ended"
    assert log == ""
