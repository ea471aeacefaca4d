"""Every key type and column name that a spec takes works to the end on Spark; nothing personal is shown on the way."""

import base64
import json
import os
import subprocess
import sys

import pytest
from clusters.spark_support import act, write
from delta import DeltaTable
from inputs.hostile import TEXTS, quoted
from local.support import plain
from oracles.judging import verdict_of

from ebbtide import InProcess, UpsertPipeline, run
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.ddl import as_compared, parse_ddl
from ebbtide.errors import ConfigError
from ebbtide.inspect import state
from ebbtide.operations import maintain
from ebbtide.redaction import has_unseen
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline

PLANTED = "planted@example.org"
KEY_TYPES = {
    "BOOLEAN": [True, False],
    "TINYINT": [1, -2],
    "SMALLINT": [1, -2],
    "INT": [1, -2],
    "BIGINT": [1, -(2**63)],
    "DECIMAL(20,2)": ["1.50", "-2.25"],
    "STRING": [PLANTED, "\u202e'`;"],
    "BINARY": [base64.b64encode(b"\x00\xff").decode(), ""],
    "DATE": ["2024-01-01", "1969-12-31"],
    "TIMESTAMP": ["2024-01-01T00:00:00.123456Z", "1969-12-31T00:00:00Z"],
    "TIMESTAMP_NTZ": ["2024-01-01T00:00:00.123456", "1969-12-31T00:00:00"],
}


def is_taken(name):
    try:
        return parse_ddl(f"{quoted(name)} INT").columns.names == [name] and name not in Pipeline.RESERVED_COLUMNS
    except ConfigError:
        return False


def taken():
    names = [name for name in TEXTS if is_taken(name)]
    return list({as_compared(name): name for name in names if name not in ("\u00e9", "v", "seq", "email")}.values())


def hostile_spec(home, order, sink):
    names = taken()
    key = dict(zip(names, KEY_TYPES, strict=False))
    columns = [f"{quoted(name)} {key.get(name, 'STRING')}" for name in names]
    rule = {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "email", "regex": "^never$"}}
    query = {"type": "email_rule:ExpectNoEmail"}
    return UpsertPipeline(
        name="hostile",
        source={"path": str(home / "in"), "records": "value", "max_files_per_step": 1},
        format={"type": "plain", "position": ["p", "n"]},
        schema=", ".join([*columns, "email STRING", "v INT", "seq BIGINT"]),
        key=list(key),
        order=order,
        sink=sink,
        columns={"email": {"personal": True}, names[list(KEY_TYPES).index("STRING")]: {"personal": True}},
        checks={"expectations": [rule, query]},
    )


def change(spec, kind, which, n, **more):
    row = {name: name for name in spec.table.columns.names}
    types = list(KEY_TYPES.values())
    row |= {name: types[number][which] for number, name in enumerate(spec.key)}
    row |= {"email": f"{n}.{PLANTED}", "v": which, "seq": n} | more
    return json.dumps({"p": 0, "n": n, "kind": kind, "row": row})


@pytest.mark.parametrize(
    ("order", "sink", "is_whole"),
    [
        pytest.param({"sequence": ["seq"]}, {}, False, id="some"),
        pytest.param({"sequence": ["seq"]}, {}, True, id="sequence", marks=pytest.mark.grid),
        pytest.param("arrival", {}, True, id="arrival", marks=pytest.mark.grid),
        pytest.param(
            {"sequence": ["seq"]}, {"table_properties": {"team": "é"}}, True, id="properties", marks=pytest.mark.grid
        ),
    ],
)
def test_names_and_key_types_work_to_the_end_and_nothing_personal_is_shown(spark, tmp_path, order, sink, is_whole):
    spec, root = hostile_spec(tmp_path, order, sink), str(tmp_path / "root")
    write(
        tmp_path / "in", [change(spec, "+I", 0, 1), change(spec, "+I", 1, 2), change(spec, "+I", 0, 3, email=[PLANTED])]
    )
    old = {"email": f"2.{PLANTED}", "seq": 2}
    write(tmp_path / "in", [change(spec, "-U", 1, 4, **old), change(spec, "+U", 1, 5)], first=1)
    assert len(run(spark, spec, root).steps) >= 2
    plan = Plan.under(root, spec)
    sink_rows = spark.read.format("delta").load(plan.sink.path)
    assert sorted(row["seq"] for row in sink_rows.toArrow().to_pylist()) == [1, 5]
    assert len(state(spark, spec, root)) >= 2
    if is_whole:
        maintain(spark, spec, root, "compaction")
    for check in CHECKS if is_whole else ():
        if check.name != "ordering":  # below
            verdict = verdict_of(spark, plan, check.name)
            assert verdict.passed or check.name == "quarantine_rate", (check.name, verdict.findings)
    if not is_whole:
        _refuse_shown(spark, plan, tmp_path, ("expectations",))
        return
    DeltaTable.forPath(spark, plan.sink.path).update(set={"v": "7"})
    _refuse_shown(spark, plan, tmp_path, ("ordering", "expectations", "quarantine_rate"))
    act(spark, spec, root, "repair")
    assert verdict_of(spark, plan, "complete").passed


def _refuse_shown(spark, plan, home, judged):
    """Break every rule that shows rows, and look for what was planted wherever people look."""
    verdicts = [verdict_of(spark, plan, name, docs=home / "docs") for name in judged]
    findings = [finding for verdict in verdicts for finding in verdict.findings if finding.broken]
    assert [(f.expectation, f.broken) for f in findings if "email" in f.rule] == [
        ("expect_no_email", 2),
        ("expect_column_values_to_match_regex", 2),
    ]
    shows_decisions = [each for each in findings if each.expectation == "expect_sink_to_show_decisions"]
    assert bool(shows_decisions) == ("ordering" in judged)
    assert PLANTED not in repr(findings)
    assert "***" in repr(findings)
    pages = [page for page in (home / "docs").rglob("*") if page.is_file()]
    assert pages
    assert not [page for page in pages if PLANTED.encode() in page.read_bytes()]
    [bad] = spark.read.format("delta").load(plan.quarantine.path).toArrow().to_pylist()
    assert PLANTED.encode() in bad["raw"], "it is kept to be repaired"
    assert bad["detail"] == "email: got ***; allowed: string"


START = """
import os, sys
from pathlib import Path
from ebbtide.errors import EbbtideError
from ebbtide.sessions._session import build_session

name = "spark.hadoop.fs.s3a.secret.key"
session = build_session(settings={name: "${PLANTED}", "spark.driver.memory": "512m"})
jvm = session.sparkContext._gateway.proc.pid
lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
print(session.sparkContext.getConf().get(name) == os.environ["PLANTED"])
print(any(os.environ["PLANTED"].encode() in line for line in lines), any(b"spark.driver.memory=512m" in line for line in lines))
print(EbbtideError(os.environ["PLANTED"]))
"""


def test_credential_reaches_spark_and_no_command_line():
    environment = os.environ | {"PLANTED": PLANTED}
    started = subprocess.run(
        [sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=False
    )
    assert started.stdout.splitlines()[-3:] == ["True", "False True", "***"], started.stderr
    assert PLANTED not in started.stdout + started.stderr


@pytest.mark.parametrize(
    "where", ["1=1); DROP TABLE x", "id ==", "no_such = 1", "'", "`", "id = 1; SELECT 1", "\x00", "id", "id IN (SELECT", "\u202eid"]
)  # fmt: skip
def test_text_that_is_no_condition_is_refused_in_our_words(spark, tmp_path, where):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"kind": "+I", "id": 1}\n')
    spec = plain("id BIGINT NOT NULL", source={"path": str(tmp_path / "in"), "records": "value"})
    root = str(tmp_path / "root")
    run(InProcess(), spec, root)
    with pytest.raises(
        ConfigError, match=r"not a condition on the state's columns. Got: .* Allowed: SQL on id, "
    ) as caught:
        state(spark, spec, root, where=where)
    assert not has_unseen(str(caught.value))
