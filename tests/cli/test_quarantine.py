"""`ebbtide quarantine` as far as it goes without Spark."""

import base64
import json

from click.testing import CliRunner
from crashes.disk import DiskPipeline
from frame.circumstances import assume
from local.quarantine_support import context_of, raws
from operating import act

from ebbtide import load
from ebbtide.cli import main

SPEC = """
type: ebbtide.dagster.UpsertPipeline
attributes:
  name: {name}
  source: {{path: in, records: value}}
  format: {{type: plain}}
  schema: id BIGINT, n INT
  key: [id]
  order: {order}
"""
BAD = ["{", '{"kind": "+I", "row": {"id": 1}}', b"\xff\x1b[2J"]


def call(*arguments):
    return CliRunner().invoke(main, ["quarantine", *map(str, arguments)])


def pipeline(tmp_path, name="t", order="{sequence: [n]}"):
    folder = tmp_path / "specs" / name
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(SPEC.format(name=name, order=order))
    disk = DiskPipeline(load(folder), tmp_path / "root")
    disk.step(BAD, now_ms=0)
    disk.step(["["], now_ms=60_000)
    return folder, disk


def test_list_counts_the_records_of_each_pipeline_by_reason(tmp_path):
    for name in ("one", "two"):
        folder, _ = pipeline(tmp_path, name)
    shown = call("list", folder.parent, "--root", tmp_path / "root")
    assert shown.output.splitlines()[:4] == [
        "one: 4 records in quarantine.",
        "  bad_json: 2, steps 1 to 2, 1970-01-01 00:00 to 1970-01-01 00:01 UTC",
        "  missing_column: 1, step 1, 1970-01-01 00:00 to 1970-01-01 00:00 UTC",
        "  not_utf8: 1, step 1, 1970-01-01 00:00 to 1970-01-01 00:00 UTC",
    ]
    assert shown.output.splitlines()[4].startswith("two: 4")
    line = json.loads(call("list", folder, "--root", tmp_path / "root", "--json").output)
    assert (line["pipeline"], line["records"]) == ("two", 4)
    assert line["reasons"][0] | {"oldest": 0, "newest": 0} == {
        "reason": "bad_json",
        "records": 2,
        "first_step": 1,
        "last_step": 2,
        "oldest": 0,
        "newest": 0,
    }


def test_list_of_a_pipeline_that_never_ran_is_empty(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "defs.yaml").write_text(SPEC.format(name="t", order="arrival"))
    assert call("list", folder, "--root", tmp_path).output == "t: 0 records in quarantine.\n"
    assert call("show", folder, "--root", tmp_path).output == ""
    assert call("replay", folder, "--root", tmp_path).output == "t: no quarantined record fits.\n"
    assert call("drop", folder, "--root", tmp_path).output == "t: no quarantined record fits.\n"
    assert not (tmp_path / "t" / "ledger").exists()


def test_show_writes_records_without_what_a_terminal_would_obey(tmp_path):
    folder, _ = pipeline(tmp_path)
    shown = call("show", folder, "--root", tmp_path / "root").output
    assert shown.startswith("t: step 1, step-1/0 at 0: bad_json\n")
    assert r"\xff\x1b[2J" in shown
    assert "\x1b" not in shown
    few = call("show", folder, "--root", tmp_path / "root", "--json", "--step", "1", "--step", "2", "--limit", "2")
    assert [json.loads(line)["raw"] for line in few.output.splitlines()] == BAD[:2]
    by_reason = call("show", folder, "--root", tmp_path / "root", "--json", "--reason", "not_utf8").output
    assert (json.loads(by_reason)["raw"], json.loads(by_reason)["raw_base64"]) == (
        None,
        base64.b64encode(BAD[2]).decode(),
    )


def test_what_show_prints_is_mended_and_replayed(tmp_path):
    folder, disk = pipeline(tmp_path)
    lines = call("show", folder, "--root", tmp_path / "root", "--json").output.splitlines()
    records = [json.loads(line) for line in lines]
    records[1]["raw"] = '{"kind": "+I", "row": {"id": 1, "n": 5}}'
    corrected = tmp_path / "corrected.jsonl"
    corrected.write_text("\n".join(json.dumps(record) for record in records[:2]) + "\n")
    before = raws(disk)
    shown = call("replay", folder, "--root", tmp_path / "root", "--records", corrected)
    assert shown.output.splitlines()[0] == "t: 1 record to replay, 1 left."
    assert raws(disk) == before
    printed = json.loads(call("replay", folder, "--root", tmp_path / "root", "--records", corrected, "--json").output)
    assert (printed["replayed"], printed["step"], [kept["reason"] for kept in printed["kept"]]) == (
        1,
        None,
        ["bad_json"],
    )
    act("quarantine.replay", "apply", context_of(disk), records=str(corrected))
    disk.reload()
    assert disk.rows() == [{"id": 1, "n": 5}]


def test_mended_records_are_of_one_pipeline(tmp_path):
    for name in ("one", "two"):
        folder, _ = pipeline(tmp_path, name)
    shown = call("replay", folder.parent, "--root", tmp_path / "root", "--records", "any")
    assert (shown.exit_code, "Allowed: one spec" in shown.output) == (2, True)


def test_drop_needs_a_note_and_without_apply_only_tells(tmp_path):
    folder, disk = pipeline(tmp_path)
    refused = call("drop", folder, "--root", tmp_path / "root", "--apply")
    assert (refused.exit_code, "needs a note" in refused.output) == (2, True)
    shown = call("drop", folder, "--root", tmp_path / "root", "--reason", "bad_json")
    assert shown.output.splitlines()[0] == "t: 2 records to drop (2 bad_json)."
    assert len(raws(disk)) == 4


def test_plans_start_no_jvm(tmp_path):
    folder, _ = pipeline(tmp_path)
    assume("without Spark")
    for command in ("list", "show", "replay", "drop"):
        done = call(command, folder, "--root", tmp_path / "root")
        assert done.exit_code == 0, done.output
