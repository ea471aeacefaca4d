"""A process killed with SIGKILL at any place of a step, of a maintenance job or of a refresh: asked again, the next one ends with
the tables of one that was never killed, which are those of the reference, and the change feed shows no change twice."""

import shutil
import signal
from itertools import pairwise

import pytest
from crashes.machines import Works, before
from frame.thinned import graded
from killing import AFTER, PLACES, UPKEEP
from victims import KINDS, changes_of, expected, kinds_for, shown, write_source

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
    "partitioned": [
        [place for place in ALL[begin:end] if place != "the changelog is committed"]
        for begin, end in pairwise([0, *BEHIND_A_STEP, len(ALL)])
    ],
    "stateful": [OF_A_FUNCTION],
}
"""Places of a run that each kind is killed at in the quick tests, in the order of a step; a root for each list, as there are three steps to make."""
QUICK_JOBS = [
    *(("arrival", job) for job in ("cleanup", "compaction", "replay", "alter", "rewind", "restore", "repair")),
    *(("arrival", job) for job in ("swap", "adopt", "refresh")),
    *(("stateful", job) for job in ("cleanup", "refresh")),
    *(("partitioned", job) for job in ("alter", "rewind", "repair", "swap", "adopt", "refresh")),
]
"""A job that is one commit of the state is as a cleanup or a compaction, the others are as one of these: an undo as a rewind."""
SECOND = "the second step is committed"
"""It is the first one that a process commits, once the process that committed the first step was killed."""


def jobs():
    return [(kind, job) for job in UPKEEP for kind in kinds_for(job)]


@pytest.fixture(scope="module")
def works(killer, tmp_path_factory):
    """What is asked of a pipeline of each kind."""
    folder = tmp_path_factory.mktemp("in")
    return {kind: Works(killer, kind, write_source(folder / kind, kind)) for kind in KINDS}


@pytest.fixture(scope="module")
def undisturbed(works, tmp_path_factory):
    """Pipelines that were never killed, by kind and what was asked of them: where they are, and their tables."""
    known = {}

    def find(kind, *asked):
        if (kind, asked) not in known:
            root = tmp_path_factory.mktemp("twin") / "root"
            *earlier, last = asked
            if earlier:
                shutil.copytree(find(kind, *earlier)[0], root)
            works[kind].do(root, last)
            assert asked != ("run",) or shown(works[kind].spec("run"), root) == expected(kind, changes_of(kind))
            tables = {} if last in ("table", "change") else works[kind].tables(root, last.split()[0])
            known[kind, asked] = root, tables
        return known[kind, asked]

    return find


@pytest.mark.parametrize("kind", KINDS)
def test_run_killed_at_one_place_of_a_step_after_the_other_is_finished_by_the_last(works, undisturbed, tmp_path, kind):
    """Each process goes on where the one before it was killed, and gets a little further."""
    for number, places in enumerate(IN_TURN[kind]):
        root = tmp_path / str(number)
        for place in places:
            works[kind].die(root, "run", PLACES[place], which=1)
        works[kind].do(root, "run")
        assert works[kind].tables(root, "run") == undisturbed(kind, "run")[1]


# Its twin is the test above.
@pytest.mark.grid
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_run_killed_in_a_step_is_finished_by_the_next(works, undisturbed, tmp_path, kind, place):
    if kind != "arrival" and place == "the changelog is committed":
        pytest.skip("it has none")
    works[kind].die(tmp_path, "run", PLACES[place])
    works[kind].do(tmp_path, "run")
    assert works[kind].tables(tmp_path, "run") == undisturbed(kind, "run")[1]


EXPIRING = ("the state is not committed", "the tick is decided", "the sink is committed")
"""Places of a tick; once decided it is committed to the state."""


@pytest.mark.demand("ttl-callback")
@pytest.mark.parametrize("job", ["run", "cleanup"])
def test_entries_that_expire_are_handed_over_once_though_the_tick_is_killed(works, undisturbed, tmp_path, job):
    """What was written by the first two of three steps has expired; `ended` is the sum of the list's elements handed over."""
    root = shutil.copytree(undisturbed("stateful", "run")[0], tmp_path / "root")
    for place in EXPIRING:
        owner, name, when, _ = PLACES[place]
        works["stateful"].die(root, f"{job} later", (owner, name, when, 1))
    works["stateful"].do(root, f"{job} later")
    rows = {row["id"]: row for row in expected("stateful", changes_of("stateful"))}
    n_early = 2 * len(changes_of("stateful")) // 3
    for row in rows.values():
        early = [n for n in row["seen"] if n < n_early]
        if early:
            row["seen"] = row["seen"][len(early) :]
            row["ended"] = sum(early)
            row["total"] = row["total"] if row["seen"] else None
    assert shown(works["stateful"].spec("run"), root) == [rows[id_] for id_ in sorted(rows)]
    assert any(row["ended"] for row in rows.values())


@pytest.fixture
def begun(undisturbed, tmp_path):
    """Makes the root of a pipeline that is to do a job."""

    def make(kind, job):
        return shutil.copytree(undisturbed(kind, *before(job))[0], tmp_path / "root")

    return make


def done_at_last(works, root, job, undisturbed):
    """Ask for a job that was killed once more; compare the tables with those of one that was not."""
    works.go_on(root, job)
    assert works.tables(root, job) == undisturbed(works.kind, *before(job), job, *AFTER.get(job, ()))[1]


@pytest.mark.parametrize(("kind", "job"), graded(jobs(), QUICK_JOBS))
def test_job_killed_at_one_place_after_the_other_is_done_when_it_is_asked_again(works, begun, undisturbed, kind, job):
    root = begun(kind, job)
    for name, place in UPKEEP[job].items():
        is_finished_by_any_run = works[kind].has_gone_back(root, "run")
        asked = "run" if is_finished_by_any_run else job
        works[kind].die(root, asked, place, which=1 if is_finished_by_any_run or name == SECOND else None)
    done_at_last(works[kind], root, job, undisturbed)


# Its twin is the test above.
@pytest.mark.grid
@pytest.mark.parametrize(("kind", "job", "place"), [(*each, place) for each in jobs() for place in UPKEEP[each[1]]])
def test_job_killed_is_done_when_it_is_asked_again(works, begun, undisturbed, kind, job, place):
    root = begun(kind, job)
    works[kind].die(root, job, UPKEEP[job][place])
    done_at_last(works[kind], root, job, undisturbed)


@pytest.mark.grid
@pytest.mark.parametrize("job", ["run", "refresh", "compaction", "migrate", "rewind"])
@pytest.mark.parametrize("kind", KINDS)
def test_run_killed_before_and_after_each_of_its_writes_is_finished_by_the_next(
    works, undisturbed, tmp_path, kind, job
):
    earlier = () if job == "run" else ("run",)
    counted = tmp_path / "counted"

    def attempt(root, write):
        if earlier:
            shutil.copytree(undisturbed(kind, *earlier)[0], root)
        return works[kind].order(root, job, write=write, counted=str(counted))["code"]

    assert attempt(tmp_path / "whole", None) == 0
    n_events = int(counted.read_bytes())
    assert n_events >= 10
    want = (*earlier, job, "run") if job == "rewind" else (*earlier, job)
    for write in range(n_events):
        root = tmp_path / str(write)
        assert attempt(root, write) == -signal.SIGKILL, write
        works[kind].do(root, "run" if works[kind].has_gone_back(root, "run") else job)
        if job == "rewind":
            works[kind].do(root, "run")
        assert works[kind].tables(root, "run") == undisturbed(kind, *want)[1], write
        shutil.rmtree(root)
