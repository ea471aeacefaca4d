"""Status, metrics and exit code say of each fault what the next run says of it: the fault is made for real, and the run is tried."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from crashes.damages import alters, drop, lose_all_files, overwrite, put_earlier_back, replace_table
from frame.limits import set_limits
from local.local_pipeline import LATER, up
from local.support import plain

from ebbtide.cli import main
from ebbtide.delta import Snapshot, Writer
from ebbtide.errors import EbbtideError, Terminal
from ebbtide.inspect import MetricsAtRest, status


def spec_with(**fields):
    def make(pipeline):
        pipeline.spec = pipeline.with_fields(**fields)

    return make


def without(name):
    return lambda pipeline: shutil.rmtree(pipeline.home / name)


def without_files_of_the_state(pipeline):
    table = pipeline.plan.at("state")
    for file in Snapshot.read(table).files.values():
        Path(file.location(table)).unlink()


def rows_of_the_state_changed(pipeline):
    state = Snapshot.read(pipeline.plan.at("state"))
    removes = [file.removed(0, data_change=True) for file in state.files.values()]
    Writer().commit(state, removes, {"operation": "DELETE"})


def first_file_longer(pipeline):
    with (pipeline.source / "0000.jsonl").open("a") as file:
        file.write(up(9, 9) + "\n")


def no_folder(pipeline):
    shutil.rmtree(pipeline.source)


def folder_moved(pipeline):
    moved = pipeline.source.rename(pipeline.source.with_name("moved"))
    pipeline.spec = pipeline.with_fields(source={"path": str(moved)})


FAULTS = {
    "another type of a column": spec_with(schema="id BIGINT, n STRING"),
    "another key": spec_with(key=["id", "n"]),
    "another order": spec_with(order="upsert"),
    "another ttl": spec_with(ttl="1h"),
    "another format": spec_with(format={"type": "plain", "row": None}),
    "source moved": folder_moved,
    "source gone": no_folder,
    "file changed": first_file_longer,
    "sink gone": drop,
    "sink put back": lambda pipeline: put_earlier_back(pipeline, "sink"),
    "sink replaced": replace_table,
    "sink's columns changed": lambda pipeline: alters(pipeline.plan.sink.path, n={"type": "date"}),
    "sink's files gone": lose_all_files,
    "state gone": without("state"),
    "state put back": lambda pipeline: put_earlier_back(pipeline, "state"),
    "state's rows changed": rows_of_the_state_changed,
    "state's files gone": without_files_of_the_state,
    "ledger gone": without("ledger"),
    "quarantine gone": without("quarantine"),
}


@pytest.fixture
def pipeline(make):
    """A pipeline with three steps; its tables behind the first are kept."""
    made = make()
    made.read(up(1, 1), "{")
    shutil.copytree(made.home, made.home.with_name("earlier"))
    made.read(up(2, 1))
    made.read(up(3, 1))
    return made


def sample(text, name, **labels):
    """The value of a metric's sample."""
    shown = ",".join(f'{label}="{value}"' for label, value in {"pipeline": "t", **labels}.items())
    [value] = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name}{{{shown}}} ")]
    return float(value)


@pytest.mark.parametrize("fault", FAULTS)
def test_status_and_metrics_name_what_the_next_run_is_refused_for(pipeline, fault):
    FAULTS[fault](pipeline)
    found = status(pipeline.spec, pipeline.root, clock_ms=LATER)
    metrics = MetricsAtRest.of([pipeline.spec], pipeline.root, LATER)
    with pytest.raises(Terminal) as refused:
        pipeline.run()
    assert found.misfit == str(refused.value)
    assert found.level == "refused"
    assert f"the next run is refused: {found.misfit}" in found.text()
    assert sample(metrics.text, "ebbtide_misfit") == 1
    assert [str(error) for _, error in metrics.errors] == [found.misfit]


def test_pipeline_that_a_run_takes_is_healthy_with_what_waits(pipeline):
    pipeline.put(up(4, 1))
    found = status(pipeline.spec, pipeline.root, clock_ms=LATER)
    assert (found.level, found.misfit, found.next_run.waiting.backlog.files) == ("healthy", None, 1)
    assert "waiting: 1 file" in found.text()
    assert sample(MetricsAtRest.of([pipeline.spec], pipeline.root, LATER).text, "ebbtide_misfit") == 0
    pipeline.run()
    found = status(pipeline.spec, pipeline.root, clock_ms=LATER)
    assert found.next_run.waiting.is_empty
    assert "waiting" not in found.text()


def test_what_waits_is_known_though_the_spec_no_longer_fits(pipeline):
    pipeline.put(up(4, 1))
    FAULTS["another ttl"](pipeline)
    found = status(pipeline.spec, pipeline.root, clock_ms=LATER)
    assert (found.level, found.next_run.waiting.backlog.files) == ("refused", 1)
    text = MetricsAtRest.of([pipeline.spec], pipeline.root, LATER).text
    assert sample(text, "ebbtide_lag_files") == 1
    assert sample(text, "ebbtide_readable", what="source") == 1


def test_first_run_without_a_source_is_refused_before_anything_is_made(make):
    pipeline = make()
    no_folder(pipeline)
    found = status(pipeline.spec, pipeline.root, clock_ms=LATER)
    with pytest.raises(EbbtideError) as refused:
        pipeline.run()
    assert found.misfit == str(refused.value)
    assert found.text().startswith("t: no step can be made.")
    assert not pipeline.home.exists()


def test_pipeline_that_needs_spark_is_refused_where_its_spec_says_local(make):
    pipeline = make(
        engine="local", transform={"schema": "id BIGINT, m INT", "key": ["id"], "select": {"id": "id", "m": "n + 1"}}
    )
    found = status(pipeline.spec, pipeline.root, clock_ms=LATER)
    with pytest.raises(EbbtideError) as refused:
        pipeline.run()
    assert found.misfit == str(refused.value)


def test_source_that_does_not_answer_needs_a_look(tmp_path):
    set_limits(answer_s=0.5)
    spec = plain(
        "id BIGINT NOT NULL, n INT", source={"type": "kafka", "bootstrap_servers": "localhost:1", "topic": "t"}
    )
    found = status(spec, str(tmp_path), clock_ms=LATER)
    assert (found.level, found.misfit) == ("attention", None)
    assert f"the source could not be read: {found.next_run.unavailable}" in found.text()
    text = MetricsAtRest.of([spec], str(tmp_path), LATER).text
    assert (sample(text, "ebbtide_readable", what="source"), sample(text, "ebbtide_misfit")) == (0, 0)


def test_source_that_is_not_asked_refuses_nothing(pipeline):
    no_folder(pipeline)
    found = status(pipeline.spec, pipeline.root, asks_source=False)
    assert (found.misfit, found.next_run.waiting) == (None, None)


@pytest.mark.parametrize(("fault", "code"), [(None, 0), ("sink gone", 5), ("source gone", 5)])
def test_command_ends_by_what_it_found(pipeline, tmp_path, fault, code):
    pipeline.fields["freshness"] = {"fail_window": "100000d"}  # its steps are of 1970
    pipeline.spec = pipeline.with_fields()
    if fault is not None:
        FAULTS[fault](pipeline)
    assert exit_code(pipeline, tmp_path) == code


def test_command_ends_by_a_pause_and_by_what_needs_a_look(pipeline, tmp_path):
    overwrite(pipeline)
    assert exit_code(pipeline, tmp_path) == 1
    pipeline.act("pause", reason="the source is being repaired")
    assert exit_code(pipeline, tmp_path) == 4


def exit_code(pipeline, folder):
    location = folder / "spec.json"
    attributes = json.loads(pipeline.spec.model_dump_json(by_alias=True, exclude_unset=True))
    location.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": attributes}))
    return CliRunner().invoke(main, ["status", str(location), "--root", pipeline.root]).exit_code
