"""Planted values of personal columns are in no output: what commands print, Data Docs, Dagster's events, logs, errors."""

import json
import secrets
import traceback

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from clusters.shared_spark import SharedSpark
from inputs.byte_scan import scan, scan_files
from local.local_run import spoil
from local.support import change

from ebbtide import InProcess, load
from ebbtide.cli import main
from ebbtide.dagster import ClockResource, StorageResource, pipeline_definitions
from ebbtide.delta import DataFile
from ebbtide.errors import ConfigError, TableMismatchError
from ebbtide.inspect import state, without_personal
from ebbtide.redaction import MASK
from ebbtide.runtime import Plan

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
            {"type": "expect_column_most_common_value_to_be_in_set", "kwargs": {"column": "mail", "value_set": ["a"]}},
            {"type": "expect_column_distinct_values_to_be_in_set", "kwargs": {"column": "id", "value_set": ["a"]}},
            {"type": "expect_column_pair_values_to_be_equal", "kwargs": {"column_A": "id", "column_B": "mail"}},
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n"}},
        ]
    },
}
HERE = [
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": name, "value_set": ["a"]}}
    for name in ("id", "mail")
]
"""Rules that run in this process; those above run on Spark alone."""
RUN = ["run", "--engine", "local"]
QUICK = [
    ["status"],
    ["quarantine", "show"],
    ["quarantine", "replay"],
]
COMMANDS = [
    *QUICK,
    ["lag"],
    ["check"],
    ["quarantine", "list"],
    ["quarantine", "drop", "--step", "2"],
    ["compact"],
    ["repair"],
    ["rewind", "--to-step", "1"],
    ["migrate"],
    ["clock", "--to", "now", "--reason", "x"],
    ["quarantine", "replay", "--apply"],
]
MODES = ((), ("--json",), ("-v",))


@pytest.fixture
def planted():
    return [secrets.token_hex(16) for _ in range(40)]


@pytest.fixture
def home(tmp_path, planted, shell):
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
    for number, lines in enumerate([good, bad[::2], bad[1::2], [made("+I")]]):
        (source / f"{number}.jsonl.later").write_text("\n".join(lines) + "\n")
    document = {"type": "ebbtide.UpsertPipeline", "attributes": ATTRIBUTES}
    (tmp_path / "defs.yaml").write_text(yaml.safe_dump(document))
    shell.cd(tmp_path)
    return tmp_path


def arrive(home, number):
    """Have a file of the source come."""
    (home / "in" / f"{number}.jsonl.later").rename(home / "in" / f"{number}.jsonl")


def printed(command, *options):
    """Return all that a command prints, the trace of an unexpected error too."""
    result = CliRunner().invoke(main, [*command, ".", "--root", "root", *options])
    trace = "" if isinstance(result.exception, SystemExit) else "".join(traceback.format_exception(result.exception))
    return " ".join([*command, *options]), (result.output + result.stderr + trace).encode()


@pytest.mark.parametrize("commands", [QUICK, pytest.param(COMMANDS, marks=pytest.mark.grid)], ids=["quick", "all"])
def test_no_command_prints_a_personal_value(home, planted, commands):
    outputs = []
    for number, options in enumerate(MODES):
        arrive(home, number)
        outputs.append(printed(RUN, *options))
    spoil(Plan.under(str(home / "root"), load(home)).sink.path)
    outputs += [printed(command, *options) for command in commands for options in MODES]
    by_command = dict(outputs)
    assert commands is QUICK or b"***" in by_command["check"]
    assert b"***" in by_command["quarantine show"]
    assert b"Traceback" not in b"".join(text for name, text in outputs if not name.endswith("-v"))
    assert scan_files(outputs, planted) == []
    assert scan([home / "root" / "people"], planted), "the tables have them"


def test_bytes_of_bad_records_are_shown_when_they_are_asked_for(home, planted):
    for number in range(3):
        arrive(home, number)
    printed(RUN)
    shown = [printed(["quarantine", "show"], "--json", "--show-personal")]
    assert len(scan_files(shown, planted)) > 5
    _, masked = printed(["quarantine", "show"], "--json")
    (home / "corrected.jsonl").write_bytes(masked)
    _, refused = printed(["quarantine", "replay"], "--records", "corrected.jsonl")
    assert b"--show-personal" in refused


@pytest.mark.group("judged")
def test_dagster_data_docs_and_logs_have_no_personal_value(home, planted, caplog, capfd):
    spec = load(home)
    given = type(spec.checks)(expectations=HERE).expectations
    rules = spec.checks.model_copy(update={"expectations": given})
    spec = spec.model_copy(update={"checks": rules})
    hold_without_personal_values(home, planted, caplog, capfd, spec, None, {"expectations", "quarantine_rate"})


@pytest.mark.grid
@pytest.mark.spark
def test_dagster_data_docs_and_logs_of_all_checks_have_no_personal_value(spark, home, planted, caplog, capfd):
    hold_without_personal_values(home, planted, caplog, capfd, load(home), spark, None)


def hold_without_personal_values(home, planted, caplog, capfd, spec, spark, checks):
    for number in range(3):
        arrive(home, number)
    printed(RUN)
    spoil(Plan.under(str(home / "root"), spec).sink.path)
    arrive(home, 3)
    storage = StorageResource(root=str(home / "root"), data_docs=str(home / "docs"))
    shared = SharedSpark(engine="local")
    shared._session = spark
    given = {"spark": shared, "storage": storage, "clock": ClockResource()}
    definitions = dg.Definitions.merge(pipeline_definitions(spec), dg.Definitions(resources=given))
    keys = [key for key in definitions.resolve_asset_graph().asset_check_keys if checks is None or key.name in checks]
    selection = dg.AssetSelection.assets(spec.name, f"{spec.name}_state").without_checks()
    job = dg.define_asset_job("all", selection=selection | dg.AssetSelection.checks(*keys))
    (home / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(home / "dagster")) as instance:
        resolved = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job])).resolve_job_def("all")
        result = resolved.execute_in_process(instance=instance, raise_on_error=False)
        evaluations = result.get_asset_check_evaluations()
    assert not all(evaluation.passed for evaluation in evaluations)
    assert "***" in repr(evaluations)
    logged = capfd.readouterr()
    texts = {"log": caplog.text, "out": logged.out, "err": logged.err}
    assert any((home / "docs").rglob("*.html"))
    assert scan([home / "dagster", home / "docs"], planted) == []
    assert scan_files(((name, text.encode()) for name, text in texts.items()), planted) == []


def test_file_that_does_not_fit_its_columns_is_refused_without_the_value(tmp_path, planted):
    DataFile.write(str(tmp_path), "a.parquet", pa.table({"n": [planted[0]]}), bounded=())
    with pytest.raises(TableMismatchError) as caught:
        DataFile({"path": "a.parquet"}).read(str(tmp_path), pa.schema([("n", pa.int64())]))
    assert planted[0] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_state_is_masked_but_for_nulls(home, planted):
    rows = pa.table({"id": [planted[0], None], "mail": [planted[1]] * 2, "n": [1, 2], "live": [True, True]})
    masked = without_personal(rows, load(home)).to_pylist()
    assert masked == [
        {"id": MASK, "mail": MASK, "n": 1, "live": True},
        {"id": None, "mail": MASK, "n": 2, "live": True},
    ]


def test_state_that_is_shown_is_masked(home, planted):
    arrive(home, 0)
    printed(RUN)
    spec = load(home)
    rows = state(InProcess(), spec, str(home / "root"), where=f"mail = '{planted[-1]}' OR n = 1")
    masked = without_personal(rows, spec).to_pylist()
    assert {row["mail"] for row in masked} == {MASK}
    assert scan_files([("rows", repr(masked).encode())], planted) == []
    assert scan_files([("rows", repr(rows.to_pylist()).encode())], planted)


@pytest.mark.spark
def test_error_of_a_condition_that_fails_on_a_row_of_the_state_shows_no_value(spark, home, planted):
    arrive(home, 0)
    printed(RUN)
    with pytest.raises(ConfigError, match=r"\[CAST_INVALID_INPUT\] \*\*\*") as caught:
        state(spark, load(home), str(home / "root"), where="CAST(mail AS INT) > 1")
    trace = "".join(traceback.format_exception(caught.value))
    assert scan_files([("error", trace.encode())], planted) == []
