"""Structured logs: what a command writes to standard error as JSON, an object a line."""

import json
import logging
import re
import shutil
import warnings
from pathlib import Path

import pytest
from local.local_pipeline import up
from local.metrics_support import command

from ebbtide.redaction import hide

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def logged(result):
    """Return the records, each an object of its own line."""
    records = [json.loads(line) for line in result.stderr.splitlines()]
    assert all(TIME.fullmatch(record["time"]) for record in records)
    return records


def run(pipeline, folder, *options):
    return command(pipeline, folder, "run", "--engine", "local", "--log-format", "json", *options)


def test_step_is_a_record_with_pipeline_number_and_counts(make, tmp_path):
    pipeline = make()
    pipeline.put(up(1, 1), "bad")
    ended = run(pipeline, tmp_path)
    assert ended.exit_code == 0
    [step] = logged(ended)
    del step["time"]
    seconds = step.pop("seconds")
    assert seconds >= 0
    assert step == {
        "level": "INFO",
        "logger": "ebbtide.run",
        "message": "step finished",
        "pipeline": "t",
        "step": 1,
        "kind": "batch",
        "counts": {"records": 2, "changes": 1, "inserted": 1, "quarantined": 1},
    }
    assert ended.stdout.startswith("t: 1 step, 2 records"), "results are where they were"


def test_variable_asks_for_it_too_and_steps_on_standard_output_stay(make, tmp_path, shell):
    pipeline = make()
    pipeline.put(up(1, 1))
    shell.export(EBBTIDE_LOG_FORMAT="json")
    ended = command(pipeline, tmp_path, "run", "--engine", "local", "--json")
    assert [record["message"] for record in logged(ended)] == ["step finished"]
    assert [json.loads(line).get("step") for line in ended.stdout.splitlines()] == [1, None]


def test_quiet_shows_warnings_and_verbose_phases_too(make, tmp_path):
    pipeline = make()
    pipeline.put(up(1, 1))
    assert logged(run(pipeline, tmp_path, "-q")) == []
    pipeline.put(up(2, 2))
    records = logged(run(pipeline, tmp_path, "-v"))
    phases = [(record["message"], record.get("step")) for record in records if record["level"] == "DEBUG"]
    assert phases[:2] == [("opening the tables", None), ("listing the source", None)]
    assert ("reading", 2) in phases


def test_error_is_a_record_with_its_class_and_with_verbose_its_traceback(make, tmp_path):
    pipeline = make()
    shutil.rmtree(pipeline.source)
    refused = run(pipeline, tmp_path)
    [record] = logged(refused)
    assert (refused.exit_code, record["level"], record["error"]) == (5, "ERROR", "SourceReadError")
    assert str(pipeline.source) in record["message"]
    assert "traceback" not in record
    [record] = [each for each in logged(run(pipeline, tmp_path, "-v")) if each["level"] == "ERROR"]
    assert record["traceback"].startswith("Traceback")


def test_spec_that_is_not_usable_is_a_record_too(make, tmp_path):
    pipeline = make()
    pipeline.spec = pipeline.spec.model_copy(update={"key": ["nothing"]})
    refused = run(pipeline, tmp_path)
    [record] = logged(refused)
    assert (refused.exit_code, record["error"]) == (2, "ConfigError")


def test_records_of_the_product_and_warnings_name_pipeline_and_step_and_hide_credentials(make, tmp_path, monkeypatch):
    pipeline = make()
    pipeline.put(up(1, 1))
    hide("hunter2hunter2")

    def fold(stepper, _):
        logging.getLogger("ebbtide.storage._faults").warning("The store of %s failed.", "s3://a:hunter2hunter2@b")
        logging.getLogger("ebbtide.delta").debug("noise")
        another = logging.getLogger("another.library")
        another.setLevel(logging.INFO)
        another.info("noise")
        warnings.warn("odd", UserWarning, stacklevel=1)

    monkeypatch.setattr("ebbtide.runtime._step.Stepper.fold", fold)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # Great Expectations captures warnings when it is imported; if a test imported it, pytest undid but half of that.
        logging.captureWarnings(capture=False)
        store, odd, _ = logged(run(pipeline, tmp_path))
    assert (store["level"], store["logger"], store["message"]) == (
        "WARNING",
        "ebbtide.storage._faults",
        "The store of s3://***@b failed.",
    )
    assert (store["pipeline"], store["step"]) == (odd["pipeline"], odd["step"]) == ("t", 1)
    assert (odd["logger"], "UserWarning: odd" in odd["message"]) == ("py.warnings", True)


@pytest.mark.parametrize("name", ["check", "status", "lag", "cleanup"])
def test_every_command_that_works_on_pipelines_has_it(make, tmp_path, name):
    pipeline = make()
    shutil.rmtree(pipeline.source)
    Path(pipeline.root).mkdir(parents=True, exist_ok=True)
    result = command(pipeline, tmp_path, name, "--log-format", "json")
    logged(result)
    assert result.exit_code in (0, 1, 2, 5)


def test_log_ends_with_its_command(make, tmp_path):
    before = list(logging.getLogger().handlers), logging.getLogger("ebbtide").level
    run(make(), tmp_path)
    assert (logging.getLogger().handlers, logging.getLogger("ebbtide").level) == before
