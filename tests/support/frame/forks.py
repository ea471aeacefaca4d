"""Runs tests in forks of the process that has collected them, so that all is imported and collected once: `pytest --forks 4`.

To collect takes one core. What must have succeeded before the first test runs on the others meanwhile: `--beside "make lint"`.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO, Any

import pytest

GIVING_WAY = 5
"""What the second half of the forks adds to its niceness: the first half has begun with what takes longest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run tests in N forks of this process")
    parser.addoption(
        "--beside",
        action="append",
        default=[],
        metavar="COMMAND",
        help="run while tests are collected; no test if it fails",
    )


@dataclass
class _Beside:
    """A command that runs while tests are collected.

    Args:
        command: Of a shell.
    """

    command: str
    _output: IO[bytes] = field(init=False, default_factory=tempfile.TemporaryFile)
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(self.command, shell=True, stdout=self._output, stderr=subprocess.STDOUT)  # noqa: S602 - ours

    def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit code, and what it said."""
        code = self._process.wait()
        with self._output as output:
            output.seek(0)
            return code, output.read().decode(errors="replace")


_BESIDE = pytest.StashKey[list[_Beside]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_BESIDE] = [_Beside(command) for command in session.config.option.beside]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no command behind where tests could not be collected."""
    _failed_beside(session)


def _failed_beside(session: pytest.Session) -> list[str]:
    """Wait for all commands, and say what each has printed; return those that failed."""
    commands = session.config.stash[_BESIDE]
    terminal = session.config.get_terminal_writer()
    failed = []
    while commands:
        beside = commands.pop(0)
        code, said = beside.ended()
        terminal.write(f"\n$ {beside.command}\n{said}", flush=True)
        if code != 0:
            failed.append(f"{beside.command} (exit code {code})")
    return failed


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks, if that is asked for."""
    if failed := _failed_beside(session):
        pytest.exit(f"no test is run: failed {', '.join(failed)}", returncode=1)
    n_forks = session.config.option.forks
    if n_forks == 0 or session.testsfailed or session.config.option.collectonly:
        return None
    _Forks(session).run(n_forks)
    return True


@dataclass
class _Unit:
    """Tests that one process takes together: those of a group, which must share it, or of a file, which may be shared out."""

    is_group: bool
    tests: deque[int] = field(default_factory=deque)


def units_of(items: list[pytest.Item]) -> Iterator[_Unit]:
    """Return what processes take, in the order of the first test of each."""
    units: dict[tuple[bool, str], _Unit] = {}
    for number, item in enumerate(items):
        group = item.get_closest_marker("group")
        place = (True, group.args[0]) if group else (False, item.nodeid.partition("::")[0])
        units.setdefault(place, _Unit(place[0])).tests.append(number)
    return iter(units.values())


@dataclass
class _Fork:
    """A process that runs tests."""

    pid: int
    connection: Connection
    unit: _Unit
    given: deque[int] = field(default_factory=deque)
    """Tests that it has not finished: the one that it runs, and the next, by which it knows which fixtures are needed again."""


class _Forks:
    """All processes, and the tests that none of them has yet.

    Args:
        session: What has been collected.
    """

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._left = units_of(session.items)
        self._forks: dict[Connection, _Fork] = {}
        self._n_started = 0
        self._n_first = 0
        session.config._tmp_path_factory.getbasetemp()  # made here, all processes have their folders in it

    def run(self, n_forks: int) -> None:
        """Run all tests.

        Raises:
            pytest.Session.Failed: so many failed as `--maxfail` allows.
        """
        self._n_first = (n_forks + 1) // 2
        try:
            for _ in range(n_forks):
                self._start(_Unit(is_group=False))
            while self._forks:
                for connection in wait(list(self._forks)):
                    self._hear(self._forks[connection])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
        finally:
            for connection, fork in self._forks.items():
                connection.close()
                os.waitpid(fork.pid, 0)

    def _start(self, unit: _Unit) -> None:
        self._n_started += 1
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            for connection in [ours, *self._forks]:
                connection.close()
            if self._n_started > self._n_first:
                os.nice(GIVING_WAY)
            _end_after(lambda: _Runner(self._session, theirs, self._n_started).run())
        theirs.close()
        fork = self._forks[ours] = _Fork(pid, ours, unit)
        for _ in range(2):
            self._give(fork)

    def _give(self, fork: _Fork) -> None:
        number = self._next_of(fork)
        if number is not None:
            fork.given.append(number)
        with suppress(ConnectionError):  # it has died, which is heard
            fork.connection.send(number)

    def _next_of(self, fork: _Fork) -> int | None:
        """Return a test of what it has begun, of what none has, or of half of another's file."""
        if not fork.unit.tests:
            fork.unit = next(self._left, None) or self._half()
        return fork.unit.tests.popleft() if fork.unit.tests else None

    def _half(self) -> _Unit:
        files = [fork.unit.tests for fork in self._forks.values() if not fork.unit.is_group]
        longest = max(files, key=len, default=deque())
        half = [longest.pop() for _ in range((len(longest) + 1) // 2)]
        return _Unit(is_group=False, tests=deque(reversed(half)))

    def _hear(self, fork: _Fork) -> None:
        hook = self._session.config.hook
        try:
            found = fork.connection.recv()
        except (EOFError, ConnectionError):
            self._bury(fork)
            return
        if found is None:  # a test is finished
            fork.given.popleft()
            self._give(fork)
            return
        report = hook.pytest_report_from_serializable(config=self._session.config, data=found)
        hook.pytest_runtest_logreport(report=report)

    def _bury(self, fork: _Fork) -> None:
        """See to it that a process that died fails the test that it ran, and that the others are run."""
        del self._forks[fork.connection]
        _, status = os.waitpid(fork.pid, 0)
        if status == 0 and not fork.given:
            return
        code = os.waitstatus_to_exitcode(status)
        number = fork.given.popleft() if fork.given else -1
        item = self._session.items[number]
        text = f"A process of tests ended with {code}" + ("" if number >= 0 else ", behind its last one")
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        fork.unit.tests.extendleft(reversed(fork.given))
        if fork.unit.tests:
            self._start(fork.unit)


class _Runner:
    """What a fork does.

    Args:
        session: What was collected.
        connection: Numbers of tests come by it, None behind the last; reports of them go, and None behind each test.
        number: Of the process.
    """

    def __init__(self, session: pytest.Session, connection: Connection, number: int) -> None:
        self._session = session
        self._connection = connection
        config = session.config
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(self)
        capture = config.pluginmanager.get_plugin("capturemanager")  # its files are shared with the other processes
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture(in_=True)
        folders = config._tmp_path_factory
        folders._basetemp = folders.getbasetemp() / f"fork-{number}"
        folders._basetemp.mkdir(mode=0o700)

    def run(self) -> None:
        """Run tests until there are none, or until no one hears of them; then end what fixtures have begun."""
        try:
            with suppress(EOFError, ConnectionError):
                self._run_all()
        finally:
            self._session._setupstate.teardown_exact(None)

    def _run_all(self) -> None:
        number, behind = self._connection.recv(), self._connection.recv()
        while number is not None:
            item = self._session.items[number]
            next_item = None if behind is None else self._session.items[behind]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            self._connection.send(None)
            number, behind = behind, self._connection.recv() if behind is not None else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        self._connection.send(config.hook.pytest_report_to_serializable(config=config, report=report))


def _end_after(work: Any) -> None:
    """Work, and end this process as an interpreter ends, without what pytest does behind it."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as pytest
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
        os._exit(code)
