"""`ebbtide erase` as a user types it: what is asked for wrongly is refused, and what is found is said by its exit code."""

import json
import threading
from pathlib import Path

import pytest
from frame.exit_codes import FAILED, NOTHING_MATCHED, USAGE
from inputs.byte_scan import scan
from local.local_pipeline import LATER
from local.local_run import HOUR

from ebbtide.delta import Log, Snapshot
from ebbtide.errors import LeaseHeldError
from ebbtide.ledger import Lease
from ebbtide.runtime._following import Following


@pytest.fixture(autouse=True)
def _without_spark(shell):
    shell.export(EBBTIDE_ENGINE="local")


def test_keys_are_planned_then_erased_and_the_report_names_each_place(plants):
    before = plants.pipeline.versions()
    code, said = plants.command()
    assert (code, "will be gone" in said, "--apply" in said) == (0, True, True)
    assert scan([plants.pipeline.root], plants.canaries)
    assert plants.pipeline.versions() == before
    code, said = plants.command("--apply", "--reason", "asked")
    assert code == 0
    for place in ("sink", "state", "quarantine", "source", "local copies on other hosts", "Data Docs", "Dagster"):
        assert f" {place}: " in said or f" {place}" in said, place
    assert scan([plants.pipeline.root], plants.canaries) == []
    assert plants.shown() == plants.want()


def test_keys_that_do_not_parse_end_the_command_and_nothing_is_changed(plants):
    before = Log(plants.pipeline.plan.at("state")).versions()
    code, printed = plants.command("--apply", keys=['{"id": "a"}', "{"])
    assert (code, "Line 2" in printed) == (USAGE, True)
    assert Log(plants.pipeline.plan.at("state")).versions() == before


@pytest.mark.parametrize("options", [[], ["--apply"]])
def test_keys_that_no_row_has_are_said_and_have_an_exit_code_of_their_own(plants, options):
    code, said = plants.command(*options, keys=['{"id": "no one"}'])
    assert code == NOTHING_MATCHED
    assert "none found" in said


def test_keys_that_were_erased_before_are_not_an_error(plants):
    assert plants.command("--apply")[0] == 0
    code, said = plants.command("--apply")
    assert (code, "none found" in said) == (0, True)


def test_pipeline_that_another_process_runs_is_left_as_it_is(plants):
    plan = plants.pipeline.plan
    with Lease(plan.at("ledger"), plan.spec.name, 30.0):
        before = Log(plan.at("state")).versions()
        code, said = plants.command("--apply")
        assert code == FAILED
        assert LeaseHeldError.__name__ in said
        assert Log(plan.at("state")).versions() == before
    assert scan([plants.pipeline.root], plants.canaries)


def test_run_that_goes_on_makes_way_for_an_erasure_and_refuses_the_keys_from_then_on(plants):
    codes = []
    stop = threading.Event()
    asking = threading.Thread(target=lambda: codes.append(plants.command("--apply")))

    def on_progress(step):
        plants.pipeline.put(*plants.files[0])
        if not codes and not asking.is_alive():
            asking.start()
        elif codes and (codes[0][0] or step.metrics.get("erased")):
            stop.set()

    plants.pipeline.put(*plants.files[0])
    plants.pipeline.follow(Following(interval_ms=1, tick_every_ms=1), on_progress, stop, clock=lambda: LATER + 5 * HOUR)
    asking.join()
    assert codes[0][0] == 0, codes
    assert scan([plants.pipeline.root], plants.canaries) == []


def test_table_that_another_one_is_a_shallow_clone_of_is_refused_by_its_name(plants):
    sink = plants.pipeline.plan.at("sink")
    clone = Path(plants.pipeline.root, "clone", "_delta_log")
    clone.mkdir(parents=True)
    actions = Log(sink).commit(Log(sink).versions()[0])
    own_files = Snapshot.read(sink).files.values()
    files = [{"add": {**file.add, "path": f"file:{sink}/{file.path}"}} for file in own_files]
    (clone / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in [*actions, *files]))
    code, said = plants.command("--apply")
    assert code == USAGE
    assert str(clone.parent) in said
    assert scan([plants.pipeline.root], plants.canaries)
