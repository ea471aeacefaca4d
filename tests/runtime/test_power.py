"""A power cut at any sync of a run or a job: what is left of the disk, the next run ends with the tables of one that had no cut."""

import signal

import pytest
from killing import Killer
from machines import Machine
from power import NAMES, NOTHING
from victims import kinds_for

pytestmark = pytest.mark.xdist_group("crashes")
JOBS = ("run", "compaction", "migrate", "alter", "replay", "rewind", "repair", "refresh", "adopt", "swap")


class CutMachine(Machine):
    """A disk whose power is cut at a sync."""

    def begin(self):
        """Do what comes before the job; return how many syncs it has, and the tables of one without a cut."""
        self.make_begun()
        self.copy("whole")
        done = self.order("whole", self.job, cut=None, counted=str(self.counted))
        assert done["code"] == 0, done["said"]
        self.do("whole", *self.after)
        return int(self.counted.read_bytes()), self.tables("whole")

    def cut(self, at, how):
        """Have the power cut in the job, go on, and return the tables."""
        self.copy("cut")
        died = self.order("cut", self.job, cut=at, how=how, counted=str(self.counted))
        assert died["code"] == -signal.SIGKILL, died["said"]
        self.go_on("cut")
        return self.tables("cut")

    @property
    def counted(self):
        return self.home / "counted"


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    with Killer(tmp_path_factory.mktemp("cut")) as killer:
        yield killer


def hows(at):
    """What is left at a cut: what is certain, or all names, in turns; and what is drawn."""
    return (NOTHING, NAMES)[at % 2], f"drawn by {at}"


def test_run_with_a_power_cut_is_finished_by_the_next(killer, tmp_path):
    machine = CutMachine(killer, "arrival", "run", tmp_path)
    n_syncs, want = machine.begin()
    for number in range(8):
        at = number * (n_syncs - 1) // 7
        how = hows(number)[number // 2 % 2]
        assert machine.cut(at, how) == want, (at, how)


@pytest.mark.grid
@pytest.mark.parametrize(("job", "kind"), [(job, kind) for job in JOBS for kind in kinds_for(job)])
def test_job_with_a_power_cut_at_each_sync_is_done_when_it_is_asked_again(killer, tmp_path, job, kind):
    machine = CutMachine(killer, kind, job, tmp_path)
    n_syncs, want = machine.begin()
    for at in range(n_syncs):
        for how in hows(at):
            assert machine.cut(at, how) == want, (at, how)
