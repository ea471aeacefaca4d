"""Tests in forks of one process (`pytest --forks`)."""

import os
import re
import subprocess
import sys
from pathlib import Path

from frame.forks import GIVING_WAY

SUPPORT = Path(__file__).parent / "support"
PROJECT = """
import os
import signal
import time
import pytest

HERE = os.getpid()


def note(folder, name):
    with (folder / name).open("a") as notes:
        notes.write(f"{os.getpid()}\\n")


@pytest.fixture(scope="session")
def folder():
    from pathlib import Path

    return Path(__file__).parent


@pytest.fixture(scope="session")
def ended(folder):
    yield
    note(folder, "ended")


@pytest.mark.parametrize("n", range(20))
def test_number(folder, n, request):
    note(folder, "numbers")
    end = time.monotonic() + 60
    while n == 0 and request.config.option.forks == 3 and len(set((folder / "numbers").read_text().split())) == 1:
        assert time.monotonic() < end, "a file is shared out"  # the first one waits until another process has one
        time.sleep(0.01)
    assert os.getppid() == HERE


@pytest.mark.group("one")
@pytest.mark.parametrize("n", range(20))
def test_group(folder, ended, n):
    note(folder, "group")
    (folder / "niceness").write_text(str(os.nice(0)))


def test_that_fails(tmp_path):
    print("said before")
    assert str(tmp_path) == ""


@pytest.mark.group("two")
def test_that_dies():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.group("two")
def test_behind_it():
    pass


def test_that_is_skipped():
    pytest.skip("for a reason")
"""


def run(folder: Path, *options: str) -> str:
    (folder / "test_project.py").write_text(PROJECT)
    (folder / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {SUPPORT}\nmarkers = group: of one process\nfilterwarnings = error\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "frame.forks", *options]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SUPPORT)}
    )
    return ended.stdout + ended.stderr


def test_each_test_is_run_once_and_what_fails_or_dies_is_said(tmp_path):
    output = run(tmp_path, "--forks", "3", "-rs")
    assert re.search(r"\n2 failed, 41 passed, 1 skipped in", output), output
    assert "Captured stdout call" in output
    assert "said before" in output
    assert "A process of tests ended with -9" in output
    assert "for a reason" in output
    numbers, group, ended = [(tmp_path / name).read_text().split() for name in ("numbers", "group", "ended")]
    assert len(numbers) == len(group) == 20
    assert set(group) == set(ended), "a group has one process, and each session fixture is ended in it"
    assert len(ended) == 1


def test_first_failure_ends_all_where_that_is_asked_for(tmp_path):
    output = run(tmp_path, "--forks", "2", "-x", "-k", "fails or group")
    assert "stopping after 1 failures" in output, output
    assert (tmp_path / "ended").exists(), "fixtures are ended"


def test_process_that_has_nothing_left_takes_nothing_of_a_group(tmp_path):
    assert re.search(r"\n20 passed, 24 deselected in", run(tmp_path, "--forks", "2", "-k", "test_group"))


def test_second_half_of_the_forks_gives_way_to_the_first(tmp_path):
    run(tmp_path, "--forks", "2", "-k", "number or group")  # the second one begins with the group
    assert int((tmp_path / "niceness").read_text()) == os.nice(0) + GIVING_WAY
    run(tmp_path, "--forks", "2", "-k", "group")
    assert int((tmp_path / "niceness").read_text()) == os.nice(0)


def test_tests_begin_once_what_runs_beside_their_collection_has_succeeded(tmp_path):
    output = run(tmp_path, "--forks", "2", "-k", "test_group", "--beside", "echo made > made; cat made")
    assert "$ echo made > made; cat made\nmade\n" in output, output
    assert "20 passed" in output


def test_no_test_is_run_where_a_command_beside_their_collection_fails(tmp_path):
    output = run(tmp_path, "--forks", "2", "--beside", "echo said; exit 3", "--beside", "true")
    assert "said" in output
    assert "no test is run: failed echo said; exit 3 (exit code 3)" in output
    assert not (tmp_path / "numbers").exists()
