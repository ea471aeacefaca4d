"""Faults at single system calls of a run: an error, a full disk, a short write, a torn one, a kill, a power cut; the next run makes it good.

It needs gcc, and fails without it: no other test has these faults.
"""

import random

import pytest
from crashes.calls import EIO, FAULTS, FULL, NONE
from crashes.machines import CallTrials, Machine
from crashes.power import NAMES, NOTHING
from frame.thinned import thinned
from victims import KINDS, kinds_for

JOBS = ("run", "cleanup", "compaction", "migrate", "alter", "replay", "rewind", "repair", "refresh", "adopt", "swap")


@pytest.fixture(scope="module")
def trials(killer_at_calls, tmp_path_factory):
    return CallTrials(
        Machine(killer_at_calls, "arrival", "run", tmp_path_factory.mktemp("run") / "home", checkpoints=3)
    )


@pytest.mark.parametrize("number", thinned(range(14), 2))
def test_run_with_a_fault_at_a_system_call_is_finished_by_the_next(trials, number):
    rng = random.Random(number)
    fault = FAULTS[number % len(FAULTS)]  # each of the seven
    at = trials.draw(fault, rng)
    outcome = trials.attempt(at, fault, rng.choice([NOTHING, NAMES, f"drawn by {number}"]))
    assert outcome.is_struck, (fault, at)


@pytest.mark.grid
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("job", "kind"), [(job, kind) for job in JOBS for kind in KINDS if kind in kinds_for(job)])
def test_job_with_a_fault_at_a_system_call_is_done_when_it_is_asked_again(killer_at_calls, tmp_path, job, kind, fault):
    trials = CallTrials(Machine(killer_at_calls, kind, job, tmp_path / "home"))
    rng = random.Random(f"{job}{kind}{fault}")
    for number in range(8):
        how = rng.choice([NOTHING, NAMES, f"drawn by {number}"])
        trials.attempt(trials.draw(fault, rng), fault, how)


@pytest.mark.parametrize(
    ("fault", "name", "error"),
    [(EIO, "link", "DiskError"), (EIO, "fsync", "DiskError"), (FULL, "write", "DiskFullError")],
)
def test_error_of_the_disk_names_the_file(trials, fault, name, error):
    calls, _ = trials.whole
    call = next(call for call in calls if call.name == name and "/state/" in str(call.path))
    said = trials.attempt(call.number, fault, "").said
    assert said.startswith(f"{error}: The disk ")
    assert "/struck/arrival/state/" in said.partition("Got")[0]


def test_journal_says_all_that_happened(trials):
    calls, _ = trials.whole  # it refuses a journal that gives another folder
    assert {call.name for call in calls} >= {"create", "write", "fsync", "link", "rename", "unlink", "mkdir", "rmdir"}


def test_fault_that_is_not_known_is_refused(trials):
    root = trials.machine.home / "unknown"
    done = trials.works.order(root, call=[0, f"{NONE}?"], journal=str(root))
    assert done["said"].startswith("ValueError: none?")
