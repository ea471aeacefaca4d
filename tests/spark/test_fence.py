"""A run that slept through a take-over, and a refresh by the one who took over, stops: it writes nothing any more."""

import threading
from pkgutil import resolve_name

import pytest
from clusters.spark_support import change, plain_spec, sink, table, write
from frame.limits import swap_inside

from ebbtide import refresh, run
from ebbtide.errors import LeaseLostError
from ebbtide.ledger import Cause, Lease
from ebbtide.model import Apply, Decision
from ebbtide.operations import maintain
from ebbtide.operations._maintenance import compaction as compacting
from ebbtide.operations._stepping import stepping as held
from ebbtide.processes import Process
from ebbtide.runtime import Plan
from ebbtide.runtime import _step as stepping

FILES = [[change("+I", 1, "a", 1)], [change("+U", 1, "b", 2), change("+I", 2, "c", 3)]]


class Sleeper:
    """Runs something as on another host, without heartbeats, and puts it to sleep at a call; then wakes it up."""

    def __init__(self, owner, name):
        self._asleep, self._woken = threading.Event(), threading.Event()
        self._error = None
        call = resolve_name(f"{owner}.{name}")

        def sleepy(*args, **options):
            if threading.current_thread() is self._thread:
                self._asleep.set()
                assert self._woken.wait(120)
            return call(*args, **options)

        swap_inside(f"{owner}.{name}", sleepy)
        here, keep = Process.this, Lease._keep
        swap_inside("ebbtide.processes.Process.this", lambda: Process("elsewhere@0-1:1:1") if self._is_it() else here())
        swap_inside("ebbtide.ledger.Lease._keep", lambda own: None if own._me.startswith("elsewhere") else keep(own))

    def _is_it(self):
        return threading.current_thread() is self._thread

    def fall_asleep(self, work):
        def go():
            try:
                work()
            except Exception as error:  # noqa: BLE001 - it is looked at by who woke it
                self._error = error

        self._thread = threading.Thread(target=go)
        self._thread.start()
        assert self._asleep.wait(120)

    def wake_up(self):
        self._woken.set()
        self._thread.join(120)
        return self._error


@pytest.fixture
def spec(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", *FILES), order={"sequence": ["seq"]}, lease_ttl="1s")
    run(spark, spec, str(tmp_path))
    return spec


def rows(spark, tmp_path, spec):
    return [(row["id"], row["v"]) for row in sink(spark, tmp_path, spec)]


@pytest.mark.grid  # without Spark: tests/runtime/test_step.py and test_jobs.py
def test_compaction_that_slept_through_a_refresh_changes_nothing(spark, tmp_path, spec):
    root = str(tmp_path)
    sleeper = Sleeper(compacting.__name__, "replacing")
    sleeper.fall_asleep(lambda: maintain(spark, spec, root, "compaction"))
    refresh(spark, spec, root)
    refreshed = table(spark, tmp_path, spec, "state")
    assert isinstance(sleeper.wake_up(), LeaseLostError)
    assert table(spark, tmp_path, spec, "state") == refreshed
    write(tmp_path / "in", [change("+I", 3, "d", 4)], first=2)
    run(spark, spec, root)
    assert rows(spark, tmp_path, spec) == [(1, "b"), (2, "c"), (3, "d")]


@pytest.mark.grid  # without Spark: tests/runtime/test_step.py
def test_step_that_slept_between_decision_and_sink_does_not_reach_a_refreshed_sink(spark, tmp_path, spec):
    root = str(tmp_path)
    sleeper = Sleeper(stepping.__name__, "publish")
    sleeper.fall_asleep(lambda: stepped(spark, spec, root))
    refresh(spark, spec, root)
    assert isinstance(sleeper.wake_up(), LeaseLostError)
    assert rows(spark, tmp_path, spec) == [(1, "b"), (2, "c")]


def stepped(spark, spec, root):
    """Decide and publish a step on this thread: Spark's stream has one of its own."""
    with held(spark, Plan.under(root, spec)) as stepper:
        decision = Decision(tables={"sink": Apply()}, counts={"inserted": 1})
        facts = stepper.facts(Cause(what="tick"), decision=decision)
        stepper.commit(facts, [])
        stepper.publish(spark)
