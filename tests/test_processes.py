"""A process is known to have ended only on the machine, boot and namespace of its name."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ebbtide import processes
from ebbtide.processes import Process


def test_this_process_is_here_and_lives():
    name = Process.this()
    assert Process(name).is_here
    assert not Process(name).is_gone
    assert (Process(name).host, Process(name).pid) == (os.uname().nodename, str(os.getpid()))


def test_a_process_that_ended_is_gone():
    code = "from ebbtide.processes import Process; print(Process.this())"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert Process(ended).is_here
    assert Process(ended).is_gone


def test_a_process_that_its_parent_has_yet_to_look_at_is_gone():
    """As a run whose command was killed with it, in a container whose first process looks at none."""
    code = "from ebbtide.processes import Process; print(Process.this())"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as ended:
        name = Process(ended.stdout.read().strip())
        while f"{ended.pid} (" in (stat := Path(f"/proc/{ended.pid}/stat").read_text()) and ") Z " not in stat:
            time.sleep(0.01)
        assert name.is_gone
        assert Process.has_ended(ended.pid, time.time())


def test_a_number_that_another_process_has_since_is_gone():
    place, pid, started = Process.this().rsplit(":", 2)
    assert Process(f"{place}:{pid}:{int(started) - 1}").is_gone


def test_colons_in_a_place_are_part_of_its_name():
    name = "fe80::1@boot-1:12:345"
    assert (Process(name).host, Process(name).pid) == ("fe80::1", "12")
    assert not Process(name).is_here
    assert not Process(name).is_gone


def test_process_of_a_place_with_colons_is_looked_up_there(monkeypatch):
    monkeypatch.setattr(processes, "_here", lambda: "fe80::1@boot-1")
    name = Process.this()
    assert Process(name).is_here
    assert not Process(name).is_gone
    assert Process(f"fe80::1@boot-1:{2**22 + 1}:345").is_gone


def test_process_name_does_not_change_with_its_title_or_memory():
    own = Path("/proc/self/comm")
    called, before = own.read_text(), Process.this()
    held = bytearray(50_000_000)
    try:
        own.write_text("a) b (c) 1 2")
        assert Process.this() == before
    finally:
        own.write_text(called)
    del held


def test_of_a_process_that_is_not_there_no_start_is_known():
    assert processes._started(2**22 + 1) == ""


@pytest.mark.parametrize("change", ["another host", "another boot", "another namespace", "an older name"])
def test_a_process_of_another_place_is_not_known_to_have_ended(change):
    place, _, started = Process.this().rsplit(":", 2)
    host, _, rest = place.partition("@")
    boot, _, namespace = rest.partition("-")
    places = {
        "another host": f"x{host}@{boot}-{namespace}",
        "another boot": f"{host}@0{boot}-{namespace}",
        "another namespace": f"{host}@{boot}-{namespace}0",
        "an older name": host,
    }
    absent_pid = 2**22 + 1
    assert Process(f"{place}:{absent_pid}:{started}").is_gone
    assert not Process(f"{places[change]}:{absent_pid}:{started}").is_gone


def test_number_of_a_process_that_ran_at_a_time_is_that_of_an_ended_one_if_none_has_it_or_a_later_one():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert Process.has_ended(ended.pid, time.time())
    assert not Process.has_ended(os.getpid(), time.time())
    assert Process.has_ended(os.getpid(), time.time() - 10 * 365 * 86_400), (
        "that one ran before this machine was booted"
    )
