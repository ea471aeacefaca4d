"""A process killed with SIGKILL at any place of a step, of a maintenance job or of a refresh: asked again, the next one ends with
the tables of one that was never killed, which are those of the reference, and the change feed shows no change twice."""

import shutil
import signal

import pytest
from killing import AFTER, PLACES, UPKEEP, Killer
from local_run import HOUR, START
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

from ebbtide.runtime.plan import Plan

pytestmark = pytest.mark.xdist_group("crashes")
OF_A_FUNCTION = {
    "the records are staged",
    "the entries are written",
    "the state's fold is written",
    "the tick is decided",
}
"""Places of a run that a function's pipeline is killed at in the quick tests, beside those between its commits."""
TELLING = {
    "migrate": set(UPKEEP["migrate"]),
    "cleanup": {"the step is committed"},
    "swap": {"the step is committed"},
    "rewind": {"the checkpoint is discarded"},
    "refresh": {"the sink is emptied"},
}
"""Places of jobs that a function's pipeline is killed at in the quick tests, beside one by arrival."""
DECIDED = {"the state is not committed", "the state is committed", "the sink is committed"}
"""Places of a run that one by sequence is killed at in the quick tests: before, between and behind its two commits."""
THIN = {
    "adopt": {"the rows are staged", "the sink is committed", "the second step is committed"},
    "swap": {
        "the step is committed",
        "the incarnation is renewed",
        "the sink is swapped",
        "another table is copied",
        "the backfill is deleted",
    },
    "cleanup": set(UPKEEP["cleanup"]),
}
"""Places of some jobs that one by arrival is killed at in the quick tests."""
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


def runs():
    """Yield every kind at every place; by arrival all are quick, of the other kinds those that they do in a way of their own."""
    for kind in KINDS:
        for place in PLACES:
            is_first = kind == "arrival"
            if is_first or place != "the changelog is committed":
                is_own = place in DECIDED or (kind == "stateful" and place in OF_A_FUNCTION)
                yield pytest.param(kind, place, marks=[] if is_first or is_own else [pytest.mark.grid])


def jobs():
    for job, places in UPKEEP.items():
        for kind in kinds_for(job):
            for place in places:
                # Before its commit a job has changed nothing, which is shown of a cleanup.
                is_told = place in THIN.get(job, places) and (place != "the step is not committed" or job == "cleanup")
                is_of_a_function = kind == "stateful" and place in TELLING.get(job, ())
                is_quick = (kind == "arrival" and is_told) or is_of_a_function
                yield pytest.param(kind, job, place, marks=[] if is_quick else [pytest.mark.grid])


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    with Killer(tmp_path_factory.mktemp("killed")) as killer:
        yield killer


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

    def die(self, job, place):
        died = self.killer.order(root=str(self.root), works=[self.work(job)], place=place)
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


@pytest.mark.parametrize(("kind", "place"), list(runs()))
def test_run_killed_in_a_step_is_finished_by_the_next(killer, sources, undisturbed, tmp_path, kind, place):
    victim = Victim(killer, kind, sources[kind], tmp_path)
    victim.die("run", PLACES[place])
    victim.do("run")
    assert victim.tables() == undisturbed(kind, "run")[1]


@pytest.mark.parametrize(("kind", "job", "place"), list(jobs()))
def test_job_killed_is_done_when_it_is_asked_again(killer, sources, undisturbed, tmp_path, kind, job, place):
    before = BEFORE.get(job, ("run",))
    root = tmp_path / "root"
    shutil.copytree(undisturbed(kind, *before)[0], root)
    victim = Victim(killer, kind, sources[kind], root)
    victim.die(job, UPKEEP[job][place])
    after = AFTER.get(job, ())
    again = () if has_gone_back(victim) else (job,)
    victim.do(*again, *after)
    assert victim.tables(job) == undisturbed(kind, *before, job, *after)[1]


def has_gone_back(victim):
    """Whether a refresh or a rewind has begun: any run goes on with it."""
    return any(
        facts.cause.what in ("reset", "rewind") for _, facts in Plan.under(str(victim.root), victim.spec).state.steps()
    )


@pytest.mark.grid
@pytest.mark.parametrize("job", ["run", "refresh", "compaction", "migrate", "rewind"])
@pytest.mark.parametrize("kind", KINDS)
def test_run_killed_before_and_after_each_of_its_writes_is_finished_by_the_next(
    killer, sources, undisturbed, tmp_path, kind, job
):
    before = () if job == "run" else ("run",)
    counted = tmp_path / "counted"

    def attempt(root, write):
        if before:
            shutil.copytree(undisturbed(kind, *before)[0], root)
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
        want = (*before, job, "run") if job == "rewind" else (*before, job)
        if job == "rewind":
            victim.do("run")
        assert victim.tables() == undisturbed(kind, *want)[1], write
        shutil.rmtree(victim.root)
