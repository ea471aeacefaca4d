"""A process killed with SIGKILL at any place of a step, of a maintenance job or of a refresh: asked again, the next one ends with
the tables of one that was never killed, which are those of the reference, and the change feed shows no change twice."""

import shutil
import signal
from itertools import pairwise

import pytest
from frame.thinned import graded
from killing import AFTER, PLACES, UPKEEP
from local.local_run import HOUR, START
from victims import (
    KINDS,
    changes_of,
    expected,
    kinds_for,
    mended_line,
    refuse_fed_twice,
    shown,
    spec_for,
    spec_of,
    tables,
    write_source,
)

from ebbtide.runtime import Plan

OF_A_FUNCTION = (
    "the records are staged",
    "the entries are written",
    "the state is committed",
    "the sink is committed",
    "the state's fold is written",
    "the tick is decided",
)
BY_SEQUENCE = ("the state is not committed", "the state is committed", "the sink is committed")
ALL = list(PLACES)
BEHIND_A_STEP = [
    ALL.index(f"the {place}")
    for place in (
        "quarantine's files are not joined",
        "state's fold is written",
        "sink's fold is not committed",
        "batch is made",
    )
]
IN_TURN = {
    "arrival": [ALL[begin:end] for begin, end in pairwise([0, *BEHIND_A_STEP, len(ALL)])],
    "sequence": [BY_SEQUENCE],
    "stateful": [OF_A_FUNCTION],
}
"""Places of a run that each kind is killed at in the quick tests, in the order of a step; a root for each list, as there are three steps to make."""
QUICK_JOBS = [
    *(("arrival", job) for job in ("cleanup", "compaction", "replay", "alter", "rewind", "restore", "repair")),
    *(("arrival", job) for job in ("swap", "adopt", "refresh")),
    ("stateful", "refresh"),
]
"""A job that is one commit of the state is as a cleanup or a compaction, the others are as one of these: an undo as a rewind."""
SECOND = "the second step is committed"
"""It is the first one that a process commits, once the process that committed the first step was killed."""
LATER = START + HOUR
EXPIRED = START + 2 * HOUR + 1_500  # what the first two of three steps wrote has expired
MENDED = [mended_line(number) for number in range(3)]
CHANGED = ("run", "change")
BEFORE = {
    "cleanup": ("run unfolded", "replay unfolded later"),
    "merge": ("run unfolded",),
    "adopt": ("table",),
    "undo": CHANGED,
    "restore": CHANGED,
    "repair": ("run", "spoil"),
    "swap": ("run", "spoil", "backfill"),
}


def jobs():
    return [(kind, job) for job in UPKEEP for kind in kinds_for(job)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    return {kind: write_source(folder / kind, kind) for kind in KINDS}


class Victim:
    """One pipeline: what is asked of it, done in processes of their own."""

    def __init__(self, killer, kind, source, root):
        self.killer, self.kind, self.root = killer, kind, root
        self.source = source
        self.spec = spec_of(kind, source)

    def work(self, asked):
        job, *how = asked.split()
        spec = spec_for(job, self.kind, self.source)
        given = {"mended": MENDED, "width": 100 if "unfolded" in how else 2}
        clock_ms = EXPIRED if "later" in how else LATER
        return [self.kind, job, spec.model_dump_json(by_alias=True), clock_ms, given]

    def do(self, *jobs):
        done = self.killer.order(root=str(self.root), works=[self.work(job) for job in jobs])
        assert done["code"] == 0, done["said"]

    def die(self, job, place, which=None):
        """Be killed at a place, and at another one of its calls than the usual one."""
        owner, name, when, usual = place
        died = self.killer.order(root=str(self.root), works=[self.work(job)], place=(owner, name, when, which or usual))
        assert died["code"] == -signal.SIGKILL, f"{place} was not reached: {died['said']}"

    def tables(self, job="run"):
        spec = spec_for(job, self.kind, self.source)
        refuse_fed_twice(Plan.under(str(self.root), spec))
        return tables(spec, self.root)


@pytest.fixture(scope="module")
def undisturbed(killer, sources, tmp_path_factory):
    """Pipelines that were never killed, by kind and what was asked of them: where they are, and their tables."""
    known = {}

    def find(kind, *jobs):
        if (kind, jobs) not in known:
            root = tmp_path_factory.mktemp("twin") / "root"
            victim = Victim(killer, kind, sources[kind], root)
            if len(jobs) > 1:
                shutil.copytree(find(kind, *jobs[:-1])[0], root)
            victim.do(jobs[-1])
            assert jobs != ("run",) or shown(victim.spec, root) == expected(kind, changes_of(kind))
            known[kind, jobs] = root, {} if jobs[-1] in ("table", "change") else victim.tables(jobs[-1])
        return known[kind, jobs]

    return find


@pytest.mark.parametrize("kind", KINDS)
def test_run_killed_at_one_place_of_a_step_after_the_other_is_finished_by_the_last(
    killer, sources, undisturbed, tmp_path, kind
):
    """Each process goes on where the one before it was killed, and gets a little further."""
    for number, places in enumerate(IN_TURN[kind]):
        victim = Victim(killer, kind, sources[kind], tmp_path / str(number))
        for place in places:
            victim.die("run", PLACES[place], which=1)
        victim.do("run")
        assert victim.tables() == undisturbed(kind, "run")[1]


# Its twin is the test above.
@pytest.mark.grid
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_run_killed_in_a_step_is_finished_by_the_next(killer, sources, undisturbed, tmp_path, kind, place):
    if kind != "arrival" and place == "the changelog is committed":
        pytest.skip("it has none")
    victim = Victim(killer, kind, sources[kind], tmp_path)
    victim.die("run", PLACES[place])
    victim.do("run")
    assert victim.tables() == undisturbed(kind, "run")[1]


@pytest.fixture
def begun(killer, sources, undisturbed, tmp_path):
    """Makes a victim that is to do a job."""

    def make(kind, job):
        root = tmp_path / "root"
        shutil.copytree(undisturbed(kind, *before(job))[0], root)
        return Victim(killer, kind, sources[kind], root)

    return make


def before(job):
    return BEFORE.get(job, ("run",))


def done_at_last(victim, job, undisturbed):
    """Ask for a job that was killed once more; compare the tables with those of one that was not."""
    after = AFTER.get(job, ())
    again = () if has_gone_back(victim) else (job,)
    victim.do(*again, *after)
    assert victim.tables(job) == undisturbed(victim.kind, *before(job), job, *after)[1]


@pytest.mark.parametrize(("kind", "job"), graded(jobs(), QUICK_JOBS))
def test_job_killed_at_one_place_after_the_other_is_done_when_it_is_asked_again(begun, undisturbed, kind, job):
    victim = begun(kind, job)
    for name, place in UPKEEP[job].items():
        is_finished_by_any_run = has_gone_back(victim)
        asked = "run" if is_finished_by_any_run else job
        victim.die(asked, place, which=1 if is_finished_by_any_run or name == SECOND else None)
    done_at_last(victim, job, undisturbed)


# Its twin is the test above.
@pytest.mark.grid
@pytest.mark.parametrize(("kind", "job", "place"), [(*each, place) for each in jobs() for place in UPKEEP[each[1]]])
def test_job_killed_is_done_when_it_is_asked_again(begun, undisturbed, kind, job, place):
    victim = begun(kind, job)
    victim.die(job, UPKEEP[job][place])
    done_at_last(victim, job, undisturbed)


def has_gone_back(victim):
    """Whether a refresh or a rewind has begun: any run goes on with it."""
    steps = Plan.under(str(victim.root), victim.spec).state.steps()
    return any(facts.cause.what in ("reset", "rewind") for _, facts in steps)


@pytest.mark.grid
@pytest.mark.parametrize("job", ["run", "refresh", "compaction", "migrate", "rewind"])
@pytest.mark.parametrize("kind", KINDS)
def test_run_killed_before_and_after_each_of_its_writes_is_finished_by_the_next(
    killer, sources, undisturbed, tmp_path, kind, job
):
    earlier = () if job == "run" else ("run",)
    counted = tmp_path / "counted"

    def attempt(root, write):
        if earlier:
            shutil.copytree(undisturbed(kind, *earlier)[0], root)
        victim = Victim(killer, kind, sources[kind], root)
        order = {"root": str(root), "works": [victim.work(job)], "write": write, "counted": str(counted)}
        return victim, killer.order(**order)["code"]

    _, code = attempt(tmp_path / "whole", None)
    assert code == 0
    n_events = int(counted.read_bytes())
    assert n_events >= 10
    for write in range(n_events):
        victim, code = attempt(tmp_path / str(write), write)
        assert code == -signal.SIGKILL, write
        victim.do("run" if has_gone_back(victim) else job)
        want = (*earlier, job, "run") if job == "rewind" else (*earlier, job)
        if job == "rewind":
            victim.do("run")
        assert victim.tables() == undisturbed(kind, *want)[1], write
        shutil.rmtree(victim.root)
