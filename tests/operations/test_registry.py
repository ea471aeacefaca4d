"""An operation of another package: one class and one entry point bring its command, its help, its job and its page."""

import json
import os
import re
import shutil
import signal
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from local.local_pipeline import up
from local.local_run import SPARK
from operating import operation_named

from ebbtide.cli import main
from ebbtide.cli.verbs import WRITTEN
from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions
from ebbtide.dagster.operations import operation_job, report_metadata
from ebbtide.errors import ConfigError
from ebbtide.operations import BUILT_IN, Context, Operation, Report, operations
from ebbtide.operations._operation_page import section_of
from ebbtide.operations._registry import TAKEN_NAMES
from ebbtide.runtime import Phase, StepProgress
from ebbtide.runtime._progress import StepClock
from ebbtide.sessions import OnSpark

GROUP = "ebbtide.operations"


SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "handover"


def install(site, shell, named, code=None):
    """Put a package on the path as an installer does: its module, and the entry points beside it."""
    folder = site / "sample-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in named.items())
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}\n")
    if code is not None:
        (site / "strange.py").write_text(code)
    shell.put_on_path(site)


@pytest.fixture
def handover(tmp_path, shell):
    """The sample, installed by what its pyproject.toml says."""
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install(tmp_path / "site", shell, project["entry-points"][GROUP])
    shell.put_on_path(SAMPLE)


@pytest.fixture
def pipeline(make, tmp_path):
    made = make()
    made.read(up(1, 1), up(2, 2))
    given = made.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    (tmp_path / "defs.yaml").write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))
    return made


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("handover")
def test_operation_of_another_package_has_its_command_and_its_help(pipeline, tmp_path):
    assert "handover" in call("--help").output
    shown = call("handover", "--help").output
    assert "Write down how many rows a sink has" in shown
    assert "Only shows the plan, unless --apply." in " ".join(shown.split())
    for option in ("--to FILE", "--note TEXT", "--root DIR", "--json", "--apply"):
        assert option in shown
    written = tmp_path / "sink.json"
    asked = ["handover", tmp_path / "defs.yaml", "--root", pipeline.root, "--to", written, "--note", "a", "--note", "b"]
    planned = call(*asked)
    assert planned.output == "t: 2 rows at step 1.\n  To do it: the same with '--apply'.\n"
    assert not written.exists()
    done = call(*asked, "--apply")
    assert done.output.startswith(f"t: 2 rows at step 1.\n  Written to {written} by ")
    assert json.loads(written.read_text()) == json.loads(call(*asked, "--json").output)
    assert json.loads(written.read_text()) == {
        "pipeline": "t",
        "rows": 2,
        "at_step": 1,
        "notes": ["a", "b"],
        "step": None,
    }
    assert call("handover", tmp_path / "defs.yaml").exit_code == 2, "--to is required"


@pytest.mark.usefixtures("handover")
def test_operation_of_another_package_has_its_job(pipeline, tmp_path):
    [job] = [job for job in pipeline_definitions(pipeline.spec).jobs if job.name == "ebbtide_handover"]
    assert job.description.startswith(
        "Write down how many rows a sink has, and at which step, for those who read it next."
    )
    written = tmp_path / "sink.json"
    resources = {"storage": StorageResource(root=pipeline.root), "clock": ClockResource(), "spark": SparkResource()}

    def launch(**config):
        run_config = {"ops": {"ebbtide_handover_op": {"config": {"to": str(written), **config}}}}
        with dg.DagsterInstance.ephemeral() as instance:
            done = job.execute_in_process(
                run_config=run_config, resources=resources, instance=instance, partition_key="t"
            )
            [event] = done.get_asset_observation_events()
            observed = event.asset_observation_data.asset_observation
            assert observed.asset_key == dg.AssetKey("t")
            return {name: value.value for name, value in observed.metadata.items()}

    assert launch(note=["a"]) == {
        "job": "handover: plan",
        "report": "t: 2 rows at step 1.\n\n- To do it: the same with '--apply'.",
        "next": "launch ebbtide_handover with action: apply",
        "rows": 2,
        "at_step": 1,
        "notes": "- a",
    }
    assert not written.exists()
    assert "Written to" in launch(action="apply")["report"]
    assert json.loads(written.read_text())["rows"] == 2


@pytest.mark.usefixtures("handover")
def test_operation_of_another_package_has_its_section_of_the_page():
    [operation] = [operation for operation in operations() if operation.name == "handover"]
    section = "\n".join(section_of(operation))
    assert section.startswith("## ebbtide handover\n\nWrite down how many rows")
    assert "| `--to FILE` | `to` | The file to write, as JSON. Required. |" in section


OPERATION = "from ebbtide.operations._operation import Operation\n\n\nclass Strange(Operation):\n    name = 'strange'\n"


@pytest.mark.parametrize(
    ("entry", "code", "said"),
    [
        ({"strange": "strange:Strange"}, "import nowhere", "cannot be loaded: ModuleNotFoundError"),
        ({"strange": "strange:Other"}, OPERATION, "cannot be loaded: AttributeError"),
        ({"strange": "strange:Strange"}, "Strange = 7", "does not name an operation"),
        ({"other": "strange:Strange"}, OPERATION, "another name than its operation"),
        ({"strange": "strange:Strange"}, OPERATION, "'strange' does nothing"),
        ({"repair": "strange:Strange"}, OPERATION, "Two operations or commands have the name 'repair'"),
        ({"repair.deep": "strange:Strange"}, OPERATION, "have the name 'repair.deep'"),
        ({"backfill": "strange:Strange"}, OPERATION, "have the name 'backfill'"),
        ({"backfill.swap": "strange:Strange"}, OPERATION, "have the name 'backfill.swap'"),
        ({"run": "strange:Strange"}, OPERATION, "Two operations or commands have the name 'run'"),
        (
            {"strange": "strange:Strange"},
            OPERATION
            + "    class Params(Operation.Params):\n        root: str\n    def apply(self, ctx, params): ...\n",
            "Params whose names are taken. Got: root",
        ),
    ],
)
def test_entry_point_that_is_no_operation_is_refused_by_name(tmp_path, shell, entry, code, said):
    install(tmp_path / "site", shell, entry, code)
    sys.modules.pop("strange", None)
    with pytest.raises(ConfigError, match=said):
        operations()
    shown = call(*(word for name in entry for word in name.split(".")), "--help")
    assert (shown.exit_code, said in shown.output) == ((0, False) if "run" in entry else (2, True))
    assert call("rewind", "--help").exit_code == 0, "all other commands still work"


def test_built_in_operations_have_names_jobs_and_commands_of_their_own():
    own = operations()
    assert {each.name for each in own} == set(BUILT_IN)
    for of in (lambda each: each.job_name, lambda each: each.command):
        assert len({of(each) for each in own}) == len(BUILT_IN)
    assert all(each.actions for each in own)
    assert {name for name, listed in WRITTEN.items() if listed.place} | {"stream"} == TAKEN_NAMES


class Counted(Operation):
    """Count."""

    name = "counted"

    class Params(Operation.Params):
        """How far."""

        up_to: int = 3

    def plan(self, ctx, params):
        return Report(ctx.spec.name, [f"{params.up_to}"])


def test_what_an_operation_is_asked_for_is_checked():
    assert Counted().asked({}) == Counted.Params(up_to=3)
    with pytest.raises(ConfigError, match=r"A parameter of 'counted' is not usable: up_to: .*Got: many"):
        Counted().asked({"up_to": "many"})
    with pytest.raises(ConfigError, match="not usable: down_to"):
        Counted().asked({"down_to": 3})


def test_context_starts_spark_only_when_it_is_used(make):
    pipeline = make()
    started = []

    def start():
        started.append("now")
        return SPARK

    ctx = Context(pipeline.spec, pipeline.root, OnSpark(start), clock=lambda: 7)
    assert (Counted().act("plan", ctx, Counted.Params()).text(), ctx.now_ms) == ("t: 3", 7)
    assert not started
    assert ctx.executor.spark() is SPARK
    assert started == ["now"]


def test_repair_s_report_shows_what_was_found_and_the_job_that_mends_it(pipeline):
    shutil.rmtree(pipeline.home / "sink")
    shown = report_metadata(pipeline.repair(action="plan"), operation_named("repair"), "plan")
    assert {name: shown[name] for name in ("job", "next", "missing", "findings", "action")} == {
        "job": "repair: plan",
        "next": "launch ebbtide_repair with action: apply",
        "missing": 0,
        "findings": 1,
        "action": "",
    }
    assert "state_version" not in shown


@pytest.mark.parametrize(
    ("next_step", "job"),
    [
        ("To do it: 'ebbtide repair --apply'.", "repair with action: apply"),
        ("Done. To undo it: 'ebbtide migrate --undo'.", "migration with action: undo"),
        ("To compare it: 'ebbtide backfill swap'.", "backfill_swap"),
        ("To do it: 'ebbtide rewind --to-step 3 --apply'.", "rewind with action: apply"),
        ("To do it: the same with '--reason TEXT --apply'.", "clock with action: apply"),
        ("To go on: 'ebbtide run'.", None),
        ("Nothing.", None),
    ],
)
def test_next_step_names_the_job_that_does_it(next_step, job):
    shown = report_metadata(Report("t", ["said"], next_step=next_step), operation_named("clock"), "plan")
    assert shown.get("next") == (None if job is None else f"launch ebbtide_{job}")


def test_values_of_a_report_are_shown_as_what_they_are():
    since = datetime(2026, 1, 31, tzinfo=UTC)
    counts = {"rows": 3, "pace": 1.5, "unknown": None, "oldest_ms": 7_000}
    details = {
        "none": [],
        "paused": True,
        "since": since,
        "keys": [{"id": 1}],
        "counts": {"inserted": 2},
        "versions": {"sink": 4},
    }
    shown = report_metadata(Report("t", ["said"], counts, details, 5), operation_named("backfill.start"), "apply")
    plain = {name: getattr(value, "value", value) for name, value in shown.items()}
    assert plain == {
        "job": "backfill_start",
        "report": "t: said",
        "backfill_rows": 3,
        "backfill_pace": 1.5,
        "backfill_oldest": 7.0,
        "backfill_none": 0,
        "backfill_paused": True,
        "backfill_since": since.timestamp(),
        "backfill_keys": 1,
        "backfill_inserted": 2,
        "backfill_step": 5,
    }


class Long(Operation):
    """Make steps until it is stopped."""

    name = "long"
    can_stop = True
    prefix = "long_"

    def apply(self, ctx, params):
        ctx.on_progress(StepProgress("t", 7, "batch", 0, 3, 0, {}, StepClock(0), 0.5))
        ctx.on_phase(Phase("t", "reading", 8))
        return Report("t", [f"stopped by {ctx.by}." if ctx.stop.is_set() else "done."], {"records": 3})

    def watch(self, ctx):
        return Report("t", ["under way."], {"records": 1})


class Interrupted(Long):
    """Be interrupted as by a person."""

    def apply(self, ctx, params):
        os.kill(os.getpid(), signal.SIGINT)
        assert ctx.stop.wait(10)
        return super().apply(ctx, params)


def test_operation_that_makes_steps_is_shown_and_is_stopped_by_a_signal(pipeline, tmp_path, shell):
    asked = ["long", tmp_path / "defs.yaml", "--root", pipeline.root]
    install(tmp_path / "site-1", shell, {"long": f"{__name__}:Long"})
    step, report = call(*asked, "--json").stdout.splitlines()
    assert (json.loads(step)["step"], json.loads(report)["records"]) == (7, 3)
    assert call(*asked).stdout == "t: done.\n"
    install(tmp_path / "site-2", shell, {"long": f"{__name__}:Interrupted"})
    stopped = call(*asked)
    assert re.fullmatch(r"t: stopped by .+@.+\.\n", stopped.stdout)
    assert "Stopping after this step" in stopped.stderr


def test_operation_that_makes_steps_is_watched_in_dagster(pipeline):
    resources = {"storage": StorageResource(root=pipeline.root), "clock": ClockResource(), "spark": SparkResource()}
    with dg.DagsterInstance.ephemeral() as instance:
        done = operation_job(Long(), [pipeline.spec]).execute_in_process(
            resources=resources, instance=instance, partition_key="t"
        )
        observed = [
            event.asset_observation_data.asset_observation.metadata for event in done.get_asset_observation_events()
        ]
    assert [(each["report"].value, each["long_records"].value) for each in observed] == [
        ("t: under way.", 1),
        ("t: done.", 3),
    ]
