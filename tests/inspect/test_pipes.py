"""Reports to the Dagster asset that started the process, as Dagster's clients read them."""

import json
import sys

import dagster as dg
import dagster_pipes
import pytest
from frame.interrupting import killed_before
from local.local_pipeline import up
from local.metrics_support import command, write_spec

from ebbtide.inspect import _pipes as pipes
from ebbtide.inspect._pipes import Pipes
from ebbtide.runtime import RunBegun

CONTEXT = {
    "asset_keys": ["shop/t"],
    "code_version_by_asset_key": {"shop/t": None},
    "provenance_by_asset_key": {"shop/t": None},
    "partition_key": None,
    "partition_key_range": None,
    "partition_time_window": None,
    "run_id": "r",
    "job_name": "j",
    "retry_number": 0,
    "extras": {},
}


@pytest.fixture
def started(monkeypatch, shell, tmp_path):
    """Starts the process from assets; returns what reads its messages."""
    messages = tmp_path / "messages"

    def start(*assets):
        keys = [*assets] or None
        of_each = dict.fromkeys(assets) or None
        context = {
            **CONTEXT,
            "asset_keys": keys,
            "provenance_by_asset_key": of_each,
            "code_version_by_asset_key": of_each,
        }
        shell.export(
            DAGSTER_PIPES_CONTEXT=dagster_pipes.encode_param({"data": context}),
            DAGSTER_PIPES_MESSAGES=dagster_pipes.encode_param({"path": str(messages)}),
        )

        def read():
            pipes._context_of_process().close()
            return [json.loads(line) for line in messages.read_text().splitlines()]

        return read

    monkeypatch.setattr(dagster_pipes.PipesContext, "_instance", None)
    pipes._context_of_process.cache_clear()
    yield start
    pipes._context_of_process.cache_clear()


def methods(messages):
    return [message["method"] for message in messages]


def test_run_reports_its_steps_and_that_the_sink_is_materialized(make, started):
    read = started("shop/other", "shop/t")
    pipeline = make()
    pipeline.put(up(1, 1), up(2, 2))
    pipeline.run()
    messages = read()
    assert methods(messages) == ["opened", "log", "report_asset_materialization", "closed"]
    assert "step 1" in messages[1]["params"]["message"]
    made = messages[2]["params"]
    assert made["asset_key"] == "shop/t"
    raw = {name: value["raw_value"] for name, value in made["metadata"].items()}
    assert raw == {
        "run_steps": 1,
        "run_records": 2,
        "run_changes": 2,
        "run_inserted": 2,
        "dagster/uri": f"{pipeline.root}/t/sink",
    }


def test_only_asset_stands_for_the_pipeline_whatever_its_name(make, started):
    read = started("revenue")
    make().run()
    assert [each["params"]["asset_key"] for each in read() if "asset_key" in each["params"]] == ["revenue"]


@pytest.mark.parametrize("assets", [(), ("a", "b")])
def test_step_without_an_asset_of_the_pipeline_gets_the_log_alone(make, started, assets):
    read = started(*assets)
    pipeline = make()
    pipeline.put(up(1, 1))
    pipeline.run()
    assert methods(read()) == ["opened", "log", "closed"]


def test_failed_run_materializes_nothing_and_says_why(make, started):
    read = started("t")
    pipeline = make()
    pipeline.put(up(1, 1))
    with killed_before("a source is done"):
        pipeline.run()
    messages = read()
    assert methods(messages) == ["opened", "log", "closed"]
    assert messages[1]["params"] == {"message": "InterruptedError: ", "level": "ERROR"}


def test_command_that_finds_nothing_to_do_materializes_the_asset_too(make, started, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1))
    read = started("t")
    assert command(pipeline, tmp_path, "run").exit_code == 0
    messages = read()
    assert methods(messages) == ["opened", "report_asset_materialization", "closed"]
    assert messages[1]["params"]["metadata"]["run_steps"]["raw_value"] == 0


def test_run_that_goes_on_logs_a_line_a_minute(make, started):
    read = started("t")
    pipeline = make()
    now_s = [0.0]
    observer = Pipes(now_s=lambda: now_s[0])
    observer.begun(RunBegun(pipeline.spec, pipeline.root, goes_on=True))
    [progress] = pipeline.read(up(1, 1))
    for _ in range(4):
        observer.step(progress)
        now_s[0] += 30
    assert methods(read()).count("log") == 3  # one of the run itself, which ends


@pytest.mark.grid
@pytest.mark.filterwarnings("default")  # Dagster's client warns of its own calls
def test_asset_of_dagster_starts_a_process_and_is_materialized_by_it(make, tmp_path):
    pipeline = make()
    pipeline.put(up(1, 1), up(2, 2))
    run = [sys.executable, "-m", "ebbtide.cli", "run", write_spec(pipeline, tmp_path), "--root", pipeline.root]

    @dg.asset(name="t")
    def in_a_process(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient):
        return client.run(command=[*run, "--engine", "local"], context=context).get_materialize_result()

    def records():
        made = dg.materialize([in_a_process], resources={"client": dg.PipesSubprocessClient()})
        [event] = made.asset_materializations_for_node("t")
        return {name: value.value for name, value in event.metadata.items() if name in ("run_records", "run_steps")}

    assert records() == {"run_records": 2, "run_steps": 1}
    assert records() == {"run_steps": 0}, "nothing is new, and the asset is there"
