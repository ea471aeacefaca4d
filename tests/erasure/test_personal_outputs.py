"""Planted values of personal columns are in no output: what commands print, Data Docs, Dagster's events, logs, errors."""

import json
import secrets

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from byte_scan import scan, scan_files
from click.testing import CliRunner
from local_run import kept_apart, spoil
from support import change

from ebbtide.cli import main
from ebbtide.dagster.definitions import pipeline_definitions
from ebbtide.dagster.resources import SparkResource, StorageResource
from ebbtide.delta.table import add_file, read_file
from ebbtide.errors import TableMismatchError
from ebbtide.inspect.personal import without_personal
from ebbtide.redaction import MASK
from ebbtide.runtime.plan import Plan
from ebbtide.spec.load import load

REGEX = {"type": "expect_column_values_to_match_regex", "kwargs": {"regex": "^never$"}}
ATTRIBUTES = {
    "name": "people",
    "source": {"path": "in", "records": "value", "max_files_per_step": 1},
    "format": {"type": "plain"},
    "schema": "id STRING, mail STRING, at STRUCT<street STRING>, n BIGINT",
    "key": ["id"],
    "order": "arrival",
    "materializer": {"emission": "every"},
    "engine": "local",
    "schema_evolution_mode": "quarantine",
    "columns": {name: {"personal": True} for name in ("id", "mail", "at")},
    "checks": {
        "expectations": [
            {**REGEX, "kwargs": {**REGEX["kwargs"], "column": "mail"}},
            {**REGEX, "kwargs": {**REGEX["kwargs"], "column": "id"}},
            {"type": "expect_column_max_to_be_between", "kwargs": {"column": "mail", "max_value": "0"}},
            {"type": "expect_column_distinct_values_to_be_in_set", "kwargs": {"column": "id", "value_set": ["a"]}},
            {"type": "expect_column_pair_values_to_be_equal", "kwargs": {"column_A": "id", "column_B": "mail"}},
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n"}},
        ]
    },
}
COMMANDS = [
    ["run", "--engine", "local"],
    ["status"],
    ["lag"],
    ["check"],
    ["quarantine", "list"],
    ["quarantine", "show"],
    ["quarantine", "replay"],
    ["quarantine", "replay", "--apply"],
    ["quarantine", "drop", "--step", "1"],
    ["cleanup"],
    ["compact"],
    ["vacuum"],
    ["repair"],
    ["rewind", "--to-step", "1"],
    ["migrate"],
    ["pause", "--reason", "x"],
    ["run", "--engine", "local"],
    ["resume"],
    ["clock", "--to", "now", "--reason", "x"],
]


@pytest.fixture
def planted():
    return [secrets.token_hex(16) for _ in range(40)]


@pytest.fixture
def home(tmp_path, planted, monkeypatch):
    """A project whose source has planted values in good records of each kind and in bad ones of each kind."""
    values = iter(planted)
    row = {}

    def made(kind, **more):
        row.update(id=next(values), mail=next(values), at={"street": next(values)}, n=1)
        return change(kind, **row, **more)

    good = [made("+I"), made("+U"), change("-U", **row), made("-D"), made("+I")]
    bad = [
        change("+I", id=next(values), mail=[next(values)], n=2),
        change("+I", id=next(values), mail="", at={"street": 5, next(values): 1}, n=2),
        change("+I", id=next(values), mail="", at=next(values), n=2),
        change("+I", id=next(values), mail="", n=next(values)),
        change("+I", id=None, mail=next(values), n=2),
        change("+I", id="", n=2, extra=next(values)),
        change(next(values), id="", n=2),
        json.dumps({"kind": "+I", "row": next(values)}),
        json.dumps([next(values)]),
        f'{{"kind": "+I", "row": {{"id": "{next(values)}"',
        json.dumps({"kind": {"x": next(values)}, "row": {}}),
        next(values),
    ]
    source = tmp_path / "in"
    source.mkdir()
    (tmp_path / "pyproject.toml").touch()
    (source / "0.jsonl").write_text("\n".join(good) + "\n")
    (source / "1.jsonl").write_text("\n".join(bad) + "\n")
    (source / "2.jsonl").write_text(made("+I") + "\n")
    document = {"type": "ebbtide.UpsertPipeline", "attributes": ATTRIBUTES}
    (tmp_path / "defs.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(tmp_path)
    with kept_apart():
        yield tmp_path


def outputs(commands, *options):
    """Yield each command, and all that it prints; ended by an error it counts as any other."""
    for command in commands:
        result = CliRunner().invoke(main, [*command, ".", "--root", "root", *options])
        yield " ".join(command), (result.output + result.stderr).encode()
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception


@pytest.mark.parametrize("options", [(), ("--json",), ("-v",)], ids=["text", "json", "verbose"])
def test_no_command_prints_a_personal_value(home, planted, options):
    printed = list(outputs(COMMANDS[:1], *options))
    spoil(Plan.under(str(home / "root"), load(home)).sink.path)
    printed += outputs(COMMANDS[1:], *options)
    by_command = dict(printed)
    assert b"***" in by_command["check"]
    assert b"***" in by_command["quarantine show"]
    assert scan_files(printed, planted) == []
    assert scan([home / "root" / "people"], planted), "the tables have them"


def test_bytes_of_bad_records_are_shown_when_they_are_asked_for(home, planted):
    dict(outputs(COMMANDS[:1]))
    shown = list(outputs([["quarantine", "show"]], "--json", "--show-personal"))
    assert len(scan_files(shown, planted)) > 5
    (home / "corrected.jsonl").write_bytes(dict(outputs([["quarantine", "show"]], "--json"))["quarantine show"])
    refused = CliRunner().invoke(main, ["quarantine", "replay", ".", "--root", "root", "--records", "corrected.jsonl"])
    assert refused.exit_code == 2
    assert "--show-personal" in refused.output


def test_dagster_data_docs_and_logs_have_no_personal_value(home, planted, caplog, capfd):
    spec = load(home)
    storage = StorageResource(root=str(home / "root"), data_docs=str(home / "docs"))
    definitions = dg.Definitions.merge(
        pipeline_definitions([spec]),
        dg.Definitions(resources={"spark": SparkResource(engine="local"), "storage": storage}),
    )
    (home / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(home / "dagster")) as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        job.execute_in_process(instance=instance, raise_on_error=False)
        spoil(Plan.under(str(home / "root"), spec).sink.path)
        (home / "in" / "3.jsonl").write_text(change("+I", id=planted[0], mail=[planted[1]], n=3) + "\n")
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        evaluations = result.get_asset_check_evaluations()
        assert not all(evaluation.passed for evaluation in evaluations)
        assert "***" in repr(evaluations)
    logged = capfd.readouterr()
    texts = {"log": caplog.text, "out": logged.out, "err": logged.err}
    assert any((home / "docs").rglob("*.html"))
    assert scan([home / "dagster", home / "docs"], planted) == []
    assert scan_files(((name, text.encode()) for name, text in texts.items()), planted) == []


def test_file_that_does_not_fit_its_columns_is_refused_without_the_value(tmp_path, planted):
    add_file(str(tmp_path), "a.parquet", pa.table({"n": [planted[0]]}), bounded=())
    with pytest.raises(TableMismatchError) as caught:
        read_file(str(tmp_path), DataFile({"path": "a.parquet"}), pa.schema([("n", pa.int64())]))
    assert planted[0] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_state_is_masked_but_for_nulls(home, planted):
    rows = pa.table({"id": [planted[0], None], "mail": [planted[1]] * 2, "n": [1, 2], "live": [True, True]})
    masked = without_personal(rows, load(home)).to_pylist()
    assert masked == [
        {"id": MASK, "mail": MASK, "n": 1, "live": True},
        {"id": None, "mail": MASK, "n": 2, "live": True},
    ]
