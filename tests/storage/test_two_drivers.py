"""Two runs of one shop pipeline, in processes of their own and in one bucket: of two one has the lease, and no record is lost or read twice."""

import selectors
import signal
import subprocess
import sys

import pytest
from clusters.spark_cluster import written_spec
from clusters.spark_support import cut, shop_lines, shop_spec, write
from frame.waiting import PATIENCE_S
from oracles.shop_truth import same_as_truth
from victims import refuse_fed_twice

from ebbtide.runtime import Plan

pytestmark = pytest.mark.group("object_store")
HELD = 1


@pytest.fixture
def shop(tmp_path):
    lines = shop_lines("price_list")
    spec = shop_spec("price_list", write(tmp_path / "in", *cut(lines, 6)))
    written_spec(tmp_path / "spec", spec)
    return spec, len(lines)


@pytest.fixture
def start(tmp_path, root):
    """Returns what starts a run."""

    def begin():
        command = ["run", str(tmp_path / "spec"), "--root", root, "--engine", "local", "--json"]
        return subprocess.Popen(
            [sys.executable, "-m", "ebbtide.cli", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return begin


def ended(runs):
    """Wait for runs; return their exit codes."""
    for each in runs:
        _, said = each.communicate(timeout=PATIENCE_S)
        assert each.returncode == 0 or (each.returncode == HELD and "LeaseHeldError" in said), said
    return [each.returncode for each in runs]


def has_stepped(first, second):
    """Wait until one of two runs has made a step; return whether the first one has."""
    with selectors.DefaultSelector() as reports:
        for each in (first, second):
            reports.register(each.stdout, selectors.EVENT_READ, each)
        while True:
            for key, _ in reports.select():
                line = key.fileobj.readline()
                if '"step"' in line:
                    return key.data is first
                assert line == "", line
                reports.unregister(key.fileobj)  # it was refused the lease


def refuse_wrong(spec, root, n_records):
    assert same_as_truth(spec, root)
    plan = Plan.under(root, spec)
    refuse_fed_twice(plan)
    _, last = plan.state.last()
    assert last.frontier.total_records == n_records


# Its twins: test_races.py::test_lease_is_won_by_one_of_many, test_requests.py::test_run_that_another_overtook_writes_nothing_twice
@pytest.mark.grid
def test_of_two_drivers_one_reads_the_shop(root, shop, start):
    spec, n_records = shop
    codes = ended([start(), start()])
    assert 0 in codes
    refuse_wrong(spec, root, n_records)


@pytest.mark.grid
def test_of_two_drivers_one_goes_on_where_the_other_was_killed(root, shop, start):
    spec, n_records = shop
    first, second = start(), start()
    victim, other = (first, second) if has_stepped(first, second) else (second, first)
    victim.kill()
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    ended([other])
    codes = ended([start(), start()])
    assert 0 in codes
    refuse_wrong(spec, root, n_records)
