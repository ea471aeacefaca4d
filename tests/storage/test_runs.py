"""Whole runs and maintenance without a JVM, their tables in a store that speaks S3: as on a local disk, whatever the store does."""

import logging
from itertools import count

import pytest
from frame.limits import set_limits
from frame.thinned import graded
from local.local_run import HOUR, START, perform
from victims import FILES, KINDS, changes_of, expected, refuse_fed_twice, shown, spec_of, tables, write_source

from ebbtide.delta import Log, Snapshot, Writer
from ebbtide.errors import StoreUnavailableError
from ebbtide.ledger import Lease
from ebbtide.runtime import Plan
from ebbtide.storage import Location

pytestmark = pytest.mark.group("object_store")
LATER = START + HOUR


@pytest.fixture(autouse=True)
def no_copies(tmp_path, shell):
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    """The tables of a kind on a local disk after some works on the first files, with its spec."""
    known = {}

    def find(kind, *works, n_files=FILES):
        asked = (kind, works, n_files)
        if asked not in known:
            folder = tmp_path_factory.mktemp("disk")
            spec = spec_of(kind, write_source(folder / "in", kind))
            for file in sorted((folder / "in").iterdir())[n_files:]:
                file.unlink()
            for work in works:
                perform(work, spec, str(folder / "root"), LATER, {})
            known[asked] = spec, tables(spec, folder / "root")
        return known[asked]

    return find


def stored(spec, root):
    refuse_fed_twice(Plan.under(root, spec))
    return tables(spec, root)


@pytest.mark.parametrize("kind", graded(KINDS, ["arrival"]))
def test_run_makes_the_tables_of_a_local_disk(root, on_disk, kind):
    spec, want = on_disk(kind, "run")
    perform("run", spec, root, LATER, {})
    assert shown(spec, root) == expected(kind, changes_of(kind))
    assert stored(spec, root) == want


@pytest.mark.parametrize(
    "works",
    [("refresh",), pytest.param(("cleanup", "compaction", "drop", "refresh"), marks=pytest.mark.grid)],
)
def test_maintenance_makes_the_tables_of_a_local_disk(root, on_disk, works):
    works = ("run", *works)
    spec, want = on_disk("arrival", *works, n_files=2)
    for work in works:
        perform(work, spec, root, LATER, {})
    assert stored(spec, root) == want


MIXED = "503 after or lost"
"""Requests that were done, and of which no answer says so."""


@pytest.mark.parametrize("how", graded(["503", "503 after", "lost", MIXED], [MIXED]))
def test_run_goes_on_where_requests_fail_in_between(proxy, root, on_disk, caplog, how):
    spec, want = on_disk("arrival", "run")
    set_limits(first_pause_s=0.01, quick_retries={"max_retries": 0})
    numbers = count()
    hows = how.split(" or ")

    def fault(method, path):
        turn, number = divmod(next(numbers), 25)
        return hows[turn % len(hows)] if number < 2 else None

    with proxy.failing(fault), caplog.at_level(logging.WARNING):
        perform("run", spec, root, LATER, {})
    assert stored(spec, root) == want
    assert sum("tried again in" in said for said in caplog.messages) > 10


@pytest.mark.parametrize(
    ("kind", "how", "each"),
    [
        ("arrival", "503", 90),
        pytest.param("arrival", "503", 17, marks=pytest.mark.grid),
        pytest.param("sequence", "503 after", 37, marks=pytest.mark.grid),
    ],
)
def test_run_whose_store_goes_away_is_finished_by_the_next(proxy, root, on_disk, kind, how, each):
    """It goes away after so many requests; the next run has a few more."""
    spec, want = on_disk(kind, "run")
    set_limits(budget_s=0.0, quick_retries={"max_retries": 0})
    n_failed = 0
    for n_answered in count(7, each):
        numbers = count()

        def fault(method, path, numbers=numbers, n_answered=n_answered):
            return how if next(numbers) >= n_answered else None

        with proxy.failing(fault):
            try:
                perform("run", spec, root, LATER, {})
                break
            except StoreUnavailableError:
                n_failed += 1
    assert n_failed > 2
    assert stored(spec, root) == want


def test_lease_whose_answer_was_lost_is_no_hindrance(proxy, root, on_disk):
    spec, want = on_disk("sequence", "run", n_files=1)
    set_limits(budget_s=0.0, quick_retries={"max_retries": 0})
    turn = f"{1:020d}.json"
    with (
        proxy.failing(
            lambda method, path: "503 after" if method == "PUT" and path.endswith(f"ledger/_delta_log/{turn}") else None
        ),
        pytest.raises(StoreUnavailableError),
    ):
        perform("run", spec, root, LATER, {})
    assert Log(f"{root}/sequence/state").last_step() == 0
    perform("run", spec, root, LATER, {})
    assert stored(spec, root) == want


def test_source_is_read_from_the_store_and_logs_have_checkpoints_and_lose_old_commits(root, on_disk):
    in_folder, want = on_disk("sequence", "run")
    set_limits(checkpoint_interval=2)
    spec = spec_of("sequence", write_lines(in_folder, root))
    perform("run", spec, root, LATER, {})
    assert shown(spec, root) == expected("sequence", changes_of("sequence"))
    assert stored(spec, root)["sink"] == want["sink"]
    state, ledger = f"{root}/sequence/state", f"{root}/sequence/ledger"
    names = Location(f"{state}/_delta_log").list_files()
    assert any(name.endswith(".checkpoint.parquet") for name in names)
    *_, last = Log(ledger).versions()
    whole = Snapshot.read(ledger)
    Writer().trim_log(ledger, commits_kept=1)
    assert Log(ledger).versions() == [last]
    assert Snapshot.read(ledger) == whole
    Writer().trim_log(state)
    with Lease(ledger, "sequence", 60) as held:
        assert held.facts.epoch == 2


def write_lines(spec, root):
    """Copy a source into the store; return its location."""
    folder = f"{root}/in"
    for name in Location(spec.source.path).list_files():
        Location(f"{folder}/{name}").write_bytes(Location(f"{spec.source.path}/{name}").read_bytes())
    return folder
