"""Each rule on tables that keep it and on tables that break it, through its expectation; on Spark: `tests/spark/test_rules.py`."""

import json
import math
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest
from local.folding import FoldedAtRandom, spec_at_random, steps_at_random, told
from local.local_run import HOUR, SPARK, START
from local.support import UNAVAILABLE, change, envelope, plain
from operating import act
from oracles.judging import sample_of, validate, verdict_of
from servers.store_support import stateful

from ebbtide import run
from ebbtide.checks import Check, VersionRange, checks_of
from ebbtide.checks._engines import InProcess, broken
from ebbtide.checks._entries import Entries
from ebbtide.checks._event_time import stale_events
from ebbtide.checks._inputs import TableRows
from ebbtide.checks._judged import Batch
from ebbtide.checks._keys import duplicate_keys
from ebbtide.checks._rule import Rows
from ebbtide.checks.great_expectations import checks
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.delta import DataFile, Log, Snapshot, Writer
from ebbtide.errors import ConfigError
from ebbtide.ledger import writer_of
from ebbtide.operations import Context, maintain
from ebbtide.runtime import Plan, StateRewrite
from ebbtide.spec._parts import ChecksConfig
from ebbtide.tables import KeepEntries

DAY = 24 * HOUR
OLD = {"step": 0, "part": 0, "position": 0}
STEPS = (
    [change("+I", id=1, v="a", n=1), change("+I", id=2, v="b", n=2), change("+I", id=3, v="c", n=3)],
    [change("+U", id=1, v="d", n=4), change("-D", id=3, v="c", n=5)],
)


def made_of(folder, *steps, **fields):
    """Run a pipeline over steps; return its plan."""
    source = folder / "in"
    source.mkdir()
    for number, lines in enumerate(steps):
        (source / f"{number:04d}.jsonl").write_text("\n".join(lines) + "\n")
    given = {"path": str(source), "records": "value", "max_files_per_step": 1}
    spec = plain("id BIGINT, v STRING, n BIGINT", source=given, **fields)
    run(SPARK, spec, str(folder / "root"), clock=lambda: START)
    return Plan.under(str(folder / "root"), spec)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return made_of(tmp_path_factory.mktemp("rules"), *STEPS, order={"sequence": ["n"]}, ttl="1d", max_clock_jump="60d")


@pytest.fixture
def tables(made, tmp_path):
    """Tables of a run by sequence, to be broken."""
    root = tmp_path / "root"
    shutil.copytree(made.root.rpartition("/")[0], root)
    return Plan.under(str(root), made.spec)


def rewrite(table, change, operation="UPDATE"):
    """Commit what another client makes of the rows: a function of each gives those in its place. Files without a change stay."""
    found = Snapshot.read(table.path)
    gone, rows = [], []
    for file in found.files.values():
        here = file.read(table.path, table.schema).to_pylist()
        changed = [new for row in here for new in change(row)]
        if changed != here:
            gone.append(file)
            rows += changed
    assert gone
    theirs = pa.Table.from_pylist(rows, table.schema)
    file = DataFile.write(table.path, f"theirs-{found.version}.parquet", theirs, bounded=())
    Writer().commit(found, DataFile.replacing(gone, [file]), {"operation": operation})


def judge(tables, check, clock_ms=START, judged=None):
    """Return what each expectation of a check found; no session is there."""
    verdict = verdict_of(None, tables, check, clock_ms=clock_ms, last_good=judged)
    return {(f.expectation, f.severity): f.broken for f in verdict.findings}


def test_right_tables_pass_every_check(tables):
    found = {check.name: judge(tables, check.name) for check in CHECKS}
    assert {name: sum(broken.values()) for name, broken in found.items()} == dict.fromkeys(found, 0)
    assert [len(broken) for broken in found.values()] == [2, 6, 1, 3, 1, 1, 1, 1, 1]


def test_commit_without_a_checksum_that_is_torn_between_two_lines_is_found(tables):
    """As Spark's are, which write what is added last: such a one reads as whole."""
    sink = tables.sink
    right = Snapshot.read(sink.path).rows(sink.schema)
    path = Path(Log(sink.path).commit_file(Log(sink.path).versions()[-1]))
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    *_, torn_off = (action for action in actions if "add" in action)
    actions.remove(torn_off)
    for action in actions:
        action.get("commitInfo", {}).pop("ebbtideChecksum", None)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    run(SPARK, tables.spec, tables.root.rpartition("/")[0], clock=lambda: START + HOUR)
    assert Snapshot.read(sink.path).rows(sink.schema) != right
    assert any(judge(tables, "complete").values())


def test_arrival_mode_passes_ordering_before_and_after_compaction(tmp_path):
    lines = [change(kind, id=1, v=v, n=n) for kind, v, n in (("+I", "a", 1), ("+I", "b", 2), ("-D", "b", 2))]
    tables = made_of(tmp_path, lines[:2], lines[2:], order="arrival", ttl="1d")
    assert set(judge(tables, "ordering").values()) == {0}
    maintain(SPARK, tables.spec, str(tmp_path / "root"), "compaction")
    assert set(judge(tables, "ordering").values()) == {0}


def again_later(row):
    order = {**row["_order"], "step": 9}
    return [row, {**row, "_order": order}] if row["_kind"] == "-D" else [row]


def test_second_deletion_in_the_changelog_breaks_ordering(tmp_path):
    lines = [change(kind, id=1, v="a", n=1) for kind in ("+I", "-D")]
    tables = made_of(tmp_path, lines, order="arrival", materializer={"emission": "every"})
    assert judge(tables, "ordering")["expect_emitted_to_follow", "critical"] == 0
    rewrite(tables.changelog, again_later, "WRITE")
    assert judge(tables, "ordering")["expect_emitted_to_follow", "critical"] == 1


def test_row_that_waited_for_a_value_until_that_expired_is_warned_of(tmp_path):
    moved = envelope("u", 5, before={"id": 1, "v": "a", "n": 1}, after={"id": 2, "v": UNAVAILABLE, "n": 1})
    fields = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}, "ttl": "30d", "max_clock_jump": "60d"}
    tables = made_of(tmp_path, [json.dumps(moved)], **fields)
    [tick] = run(SPARK, tables.spec, str(tmp_path / "root"), clock=lambda: START + 31 * DAY).steps
    assert (tick.kind, tick.metrics["waiting_expired"]) == ("tick", 1)
    waiting = sample_of(verdict_of(None, tables, "ordering", clock_ms=START), "expect_values_to_arrive")
    assert [(row["id"], row["_waits"]) for row in waiting] == [(2, ["v"])]


def test_contents_that_differ_at_one_sequence_break_ordering(tmp_path):
    first = [change("+I", id=id_, v=v, n=id_) for id_, v in ((1, "a"), (2, "b"))]
    there_and_back = [("+I", "a"), ("-U", "a"), ("+U", "b"), ("-U", "b"), ("+U", "a")]
    later = [change("+U", id=1, v="c", n=1)]
    later += [change(kind, id=3, v=v, n=4) for kind, v in there_and_back]
    later += [change(kind, id=4, v="a", n=5) for kind in ("+I", "-U")]
    tables = made_of(tmp_path, first, later, order={"sequence": ["n"]})
    verdict = verdict_of(None, tables, "ordering", clock_ms=START)
    undecided = sample_of(verdict, "expect_sequences_to_decide")
    assert [row["id"] for row in undecided] == [1, 3]
    [ordering] = [check for check in CHECKS if check.name == "ordering"]
    assert "Add a column to order.sequence" in ordering.way_out(verdict)
    assert "repair" not in ordering.way_out(verdict), "it would change nothing"


def settled_by(tables, name, **asked):
    act(name, "apply", Context(tables.spec, tables.root.rpartition("/")[0], SPARK, by="ann"), **asked)


def test_repair_does_not_settle_two_contents_at_one_sequence(tmp_path):
    """It would move the window, with nothing decided."""
    lines = [change("+I", id=1, v=v, n=1) for v in "ab"]
    tables = made_of(tmp_path, lines, order={"sequence": ["n"]})
    rule = ("expect_sequences_to_decide", "critical")
    assert judge(tables, "ordering")[rule] == 1
    settled_by(tables, "repair")
    assert judge(tables, "ordering")[rule] == 1
    settled_by(tables, "acknowledge", reason="either will do")
    assert judge(tables, "ordering")[rule] == 0
    (tmp_path / "in" / "0009.jsonl").write_text(change("+U", id=1, v="c", n=1) + "\n")
    run(SPARK, tables.spec, str(tmp_path / "root"), clock=lambda: START)
    assert judge(tables, "ordering")[rule] == 1, "another content since"


def test_repair_does_not_settle_what_the_input_did(tmp_path):
    tables = made_of(tmp_path, [change("-D", id=1, v="a", n=1)], order="arrival")
    rule = ("expect_retractions_to_find_their_rows", "critical")
    assert judge(tables, "ordering")[rule] == 1
    settled_by(tables, "repair")
    assert judge(tables, "ordering")[rule] == 1
    settled_by(tables, "acknowledge", reason="it began in the middle")
    assert sum(judge(tables, "ordering").values()) == 0


def test_sink_of_a_function_has_no_check_that_cannot_be_red():
    names = {check.name for check in checks_of(stateful("ebbtide.functions:Deduplicate"))}
    assert names == {check.name for check in CHECKS} - {"complete"}


def test_note_that_a_fold_leaves_beside_an_older_decision_keeps_ordering(tmp_path):
    steps = [[change(kind, id=1, v=v, n=n)] for kind, v, n in (("+I", "a", 1), ("+U", "b", 2), ("+U", "B", 2))]
    tables = made_of(tmp_path, *steps, order={"sequence": ["n"]})
    state = tables.state.snapshot()
    later = [file for file in state.files.values() if file.least("_step") > 1]
    keep = KeepEntries(is_whole=False)
    adds = StateRewrite(tables, later, keep, is_whole=False, data_change=False).written(SPARK)
    writer_of(tables.state.path).join(state, later, adds, {})
    rows = tables.state.snapshot().rows(tables.state.schema).to_pylist()
    noted = sorted((row["_step"], row["v"], row["_change"]) for row in rows if row["_entry"] == "row")
    assert noted == [(1, "a", "I"), (3, "b", None)]
    assert judge(tables, "ordering")["expect_sink_to_show_decisions", "critical"] == 0
    rewrite(tables.sink, lambda row: [{**row, "v": "x"}])
    assert judge(tables, "ordering")["expect_sink_to_show_decisions", "critical"] == 1


FOLDED = {"arrival": (4, 9), "sequence": (4, 36), "rows of a function": (5, 38)}


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        param
        for kind, (first, second) in FOLDED.items()
        for param in ((kind, first), pytest.param(kind, second, marks=pytest.mark.grid))
    ],
)
def test_state_folded_at_random_places_says_what_its_newest_entries_do(tmp_path, kind, seed):
    rng = random.Random(f"{kind}{seed}")
    pipeline = FoldedAtRandom(spec_at_random(kind, rng), tmp_path, rng)
    for lines, now_ms in steps_at_random(kind, rng):
        pipeline.play(lines, now_ms)
    plan, engine = pipeline.plan, InProcess()
    state_rows = TableRows(plan.state.path, plan.state.snapshot().version, plan.state.schema)
    [decided] = engine.run({"state_rows": state_rows}, iter([Entries(plan, engine.dialect).decided(None)]))
    found = decided.to_pylist()
    by_key = {tuple(row[name] for name in plan.sink.key): row for row in found}
    assert len(by_key) == len(found)
    want = {key: row and row["_changed_by"] for key, row in told(plan).items()}
    assert {key: None if row["_change"] == "D" else row["_changed_by"] for key, row in by_key.items()} == want
    assert judge(plan, "ordering")["expect_sink_to_show_decisions", "critical"] == 0


def judge_values(judged):
    """A check of another module: no value is 'b'."""
    import great_expectations as gx

    yield Batch(
        judged.sink_rows.read().to_pandas(),
        [gx.expectations.ExpectColumnValuesToMatchRegex(column="v", regex="^[^b]*$")],
    )


def test_check_of_a_module_of_its_own_is_judged_as_the_others_are(tables, monkeypatch):
    values = Check("values", "No value is 'b'.", judge="value_checks:judge_values")
    monkeypatch.setitem(sys.modules, "value_checks", SimpleNamespace(judge_values=judge_values))
    monkeypatch.setattr(checks, "CHECKS", (*CHECKS, values))
    assert judge(tables, "values") == {("expect_column_values_to_match_regex", "critical"): 1}


def test_every_check_names_its_repair():
    for check in CHECKS:
        assert check.repair.endswith("."), check.name


UNMATCHED = "expect_retractions_to_find_their_rows"


def retracted(n_wrong, **fields):
    """Ten rows that are retracted by what they hold, some of them by something else."""
    lines = [change("+I", id=number, v="a", n=number) for number in range(10)]
    lines += [change("-D", id=number, v="b" if number < n_wrong else "a", n=number) for number in range(10)]
    return [lines], {"order": "arrival", **fields}


@pytest.mark.demand("sum-no-row")
@pytest.mark.parametrize(
    ("n_wrong", "fields", "found"),
    [
        (0, {}, {(UNMATCHED, "warning"): 0}),
        (1, {"checks": {"max_unapplied_rate": 0.05}}, {(UNMATCHED, "warning"): 1}),
        (2, {"checks": {"max_unapplied_rate": 0.05}}, {(UNMATCHED, "critical"): 1}),
        (1, {"ttl": "1d", "checks": {"max_unapplied_rate": 0.05}}, {}),
        (2, {"ttl": "1d", "checks": {"max_unapplied_rate": 0.05}}, {(UNMATCHED, "warning"): 1}),
    ],
)
def test_unmatched_retractions_break_ordering_by_their_share(tmp_path, n_wrong, fields, found):
    steps, fields = retracted(n_wrong, **fields)
    broken = judge(made_of(tmp_path, *steps, **fields), "ordering")
    assert {rule: n for rule, n in broken.items() if rule[0] == UNMATCHED} == found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, 1),
        ({"materializer": {"upsert_key": ["id"]}}, 0),
        ({"format": {"type": "plain", "position": ["at"]}}, None),
    ],
)
def test_row_that_is_added_twice_breaks_ordering_unless_records_are_recognised(tmp_path, fields, found):
    added = json.dumps({"kind": "+I", "at": 0, "row": {"id": 1, "v": "a", "n": 1}})
    broken = judge(made_of(tmp_path, [added], [added], order="arrival", **fields), "ordering")
    counts = {name: n for (name, _), n in broken.items()}
    assert counts.get("expect_added_rows_to_be_new") == found


def update(lsn, id_, event_ms):
    return json.dumps(envelope("u", lsn, after={"id": id_, "v": str(lsn), "n": lsn}, ts_ms=event_ms))


def test_newer_changes_that_lose_break_ordering(tmp_path):
    """The log begins again from lower positions: what comes then is newer, and loses."""
    fields = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}}
    before = [update(1000 + number, number, START) for number in range(3)]
    again = [update(10 + number, number, START + HOUR) for number in range(3)]
    tables = made_of(tmp_path, before, again, **fields)
    assert judge(tables, "ordering")["expect_newer_changes_to_win", "critical"] == 1


def created(lsn, id_):
    return json.dumps(envelope("c", lsn, after={"id": id_, "v": str(lsn), "n": lsn}, ts_ms=START))


def deleted(lsn, id_):
    return json.dumps(envelope("d", lsn, before={"id": id_, "v": "", "n": 0}, ts_ms=START))


@pytest.mark.parametrize("cut", range(7))
def test_rows_that_a_statement_moves_onto_each_others_keys_break_ordering(tmp_path, cut):
    """SET id = id + 1, where uniqueness is looked at afterwards: 1 becomes 2 while the old 2 is there. Its delete comes behind."""
    fields = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}}
    moved = [deleted(10, 1), created(11, 2), deleted(12, 2), created(13, 3)]
    changes = [created(1, 1), created(2, 2), *moved]
    tables = made_of(tmp_path, changes[:cut], changes[cut:], **fields)
    assert judge(tables, "ordering")["expect_creates_to_meet_no_row", "critical"] == 1


def test_create_that_overtakes_the_delete_before_it_breaks_ordering_until_the_delete_is_there(tmp_path):
    fields = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}}
    overtaking = [created(1, 1), created(3, 1)]
    before, behind = tmp_path / "before", tmp_path / "behind"
    before.mkdir()
    behind.mkdir()
    tables = made_of(before, overtaking, **fields)
    assert judge(tables, "ordering")["expect_creates_to_meet_no_row", "critical"] == 1
    tables = made_of(behind, overtaking, [deleted(2, 1)], **fields)
    assert judge(tables, "ordering")["expect_creates_to_meet_no_row", "warning"] == 0


def test_keys_that_are_deleted_and_created_again_in_any_order_and_snapshots_are_no_creates_over_rows(tmp_path):
    fields = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}}
    snapshot = json.dumps(envelope("r", 5, after={"id": 2, "v": "", "n": 0}, ts_ms=START))
    changes = [created(1, 1), deleted(2, 1), created(3, 1), deleted(4, 1), created(6, 1), snapshot, created(7, 2)]
    tables = made_of(tmp_path, changes[1:], changes[:4], changes[::-1], **fields)
    assert judge(tables, "ordering")["expect_creates_to_meet_no_row", "warning"] == 0


@pytest.mark.parametrize("allowed_delay", ["0s", "1h"])
def test_late_and_redelivered_changes_may_lose(tmp_path, allowed_delay):
    fields = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}, "allowed_delay": allowed_delay}
    changes = [update(number, number % 2, START + number) for number in range(8)]
    tables = made_of(tmp_path, changes[4:], changes[2:], changes[:6], **fields)
    assert judge(tables, "ordering")["expect_newer_changes_to_win", "warning"] == 0


def older(row):
    return [{**row, "_changed_by": OLD} if row["id"] == 2 else row]


def test_row_with_an_older_cause_breaks_ordering(tables):
    rewrite(tables.sink, older)
    assert judge(tables, "ordering") == {
        ("expect_changes_to_rise_per_key", "critical"): 1,
        ("expect_sink_to_show_decisions", "critical"): 1,
        ("expect_sequences_to_decide", "critical"): 0,
        ("expect_values_to_arrive", "warning"): 0,
        ("expect_newer_changes_to_win", "warning"): 0,
        ("expect_creates_to_meet_no_row", "warning"): 0,
    }


BROKEN = {
    "a row is another": lambda row: [{**row, "v": "x", "_changed_by": {**OLD, "step": 9}} if row["id"] == 1 else row],
    "a row is gone": lambda row: [row] if row["id"] != 2 else [],
    "a row is there again": lambda row: [row, *([{**row, "id": 3}] if row["id"] == 1 else [])],
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_sink_that_does_not_show_the_decision_breaks_ordering_and_is_not_complete(tables, change):
    rewrite(tables.sink, change)
    assert judge(tables, "ordering")["expect_sink_to_show_decisions", "critical"] == 1
    assert sum(judge(tables, "complete").values()) == 1


def test_what_was_judged_good_is_not_judged_again_and_what_was_not_is(tables):
    good = VersionRange.after(tables).until
    rewrite(tables.sink, older)
    assert sum(judge(tables, "ordering", judged=good).values()) == 2
    bad = VersionRange.after(tables).until
    assert sum(judge(tables, "ordering", judged=bad).values()) == 0
    assert sum(judge(tables, "ordering", judged=bad | {"incarnation": "another"}).values()) == 2


@pytest.mark.parametrize(
    ("past_ms", "late", "warned", "left"),
    [
        (-1, 0, 0, 0),
        (0, 0, 0, 0),
        (HOUR // 2, 0, 1, 0),
        (2 * HOUR, 1, 1, 0),
        (8 * DAY, 1, 1, 1),
    ],
)
def test_entry_past_its_time_warns_within_the_grace_and_then_is_an_error(tables, past_ms, late, warned, left):
    assert judge(tables, "expiry", clock_ms=START + DAY + past_ms) == {
        ("expect_entries_to_expire", "critical"): late,
        ("expect_entries_to_expire", "warning"): warned,
        ("expect_expired_entries_to_be_deleted", "warning"): left,
    }


def test_key_with_two_rows_breaks_unique_key_and_is_a_foreign_write(tables):
    rewrite(tables.sink, lambda row: [row] * row["id"], "WRITE")
    assert judge(tables, "unique_key") == {("expect_keys_to_be_unique", "critical"): 1}
    assert judge(tables, "foreign_writes") == {("expect_commits_to_be_ours", "critical"): 1}


def test_joining_files_is_no_foreign_write_and_a_change_of_the_state_is(tables):
    sink = Snapshot.read(tables.sink.path)
    rows = sink.rows(tables.sink.schema)
    add = DataFile.write(sink.table, "joined.parquet", rows, bounded=())["add"]
    gone = [file.removed(0, data_change=False) for file in sink.files.values()]
    Writer().commit(sink, [*gone, {"add": {**add, "dataChange": False}}], {"operation": "OPTIMIZE"})
    assert judge(tables, "foreign_writes") == {("expect_commits_to_be_ours", "critical"): 0}
    rewrite(tables.state, lambda row: [row] if row["id"] != 1 else [], "DELETE")
    assert judge(tables, "foreign_writes") == {("expect_commits_to_be_ours", "critical"): 1}


def test_newest_event_is_held_to_what_the_spec_allows(tables):
    assert "event_time" not in {check.name for check in checks_of(tables.spec)}
    checked = tables.spec.model_copy(update={"checks": ChecksConfig(max_event_delay="1h")})
    asked = Plan.under(tables.root.rpartition("/")[0], checked)
    found = judge(asked, "event_time")
    assert found == {("expect_newest_event_to_be_recent", "critical"): 1}, "these records have no event time"
    newest = Rows.given(pa.table({"behind_ms": pa.array([None, HOUR + 1, HOUR], pa.int64())}))
    [stale] = broken(InProcess(), newest, [stale_events.expected(max_delay_ms=HOUR)])
    assert (stale.count, stale.sample) == (2, [{}, {"behind_ms": HOUR + 1}])


def test_share_of_bad_records_is_judged_over_all_steps_and_expiry_needs_a_ttl(tmp_path):
    made_of(tmp_path, [*STEPS[0][:2], "not JSON"])
    for rate, n_broken in [(0.25, 1), (0.5, 0)]:
        spec = plain("id BIGINT, v STRING, n BIGINT", checks={"max_quarantine_rate": rate})
        tables = Plan.under(str(tmp_path / "root"), spec)
        assert list(judge(tables, "quarantine_rate").values()) == [n_broken]
    assert judge(tables, "expiry") == {}


def test_expectation_that_raises_is_an_error_and_no_verdict(tmp_path):
    import great_expectations as gx

    raising = gx.expectations.ExpectColumnValuesToBeUnique(column="no_such_column")
    with pytest.raises(ConfigError, match="expect_column_values_to_be_unique could not be evaluated"):
        validate("unique_key", [Batch(pd.DataFrame({"id": [1, 2, 3]}), [raising])], tmp_path, keep=2)


def batch_of_keys(ids):
    """A batch of the rule of keys over some ids, judged here."""
    counted = "SELECT id, count(*) AS _rows FROM facts GROUP BY id"
    rows = replace(Rows.given(pa.table({"id": pa.array(ids, pa.int64())})), query=lambda _: counted)
    expected = [duplicate_keys.expected(key=["id"])]
    return Batch(rows, expected, broken=broken(InProcess(), rows, expected))


def test_sample_is_bounded_and_old_data_docs_are_deleted(tmp_path):
    batch = batch_of_keys([*range(50), *range(50)])
    for _ in range(3):
        verdict = validate("unique_key", [batch], tmp_path, keep=2)
    [finding] = verdict.findings
    assert (finding.broken, len(finding.sample)) == (50, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000003"]
    assert "unique_key_0" in verdict.docs.read_text()


def test_null_in_a_key_breaks_unique_key(tmp_path):
    verdict = validate("unique_key", [batch_of_keys([None, 1])], tmp_path, keep=1)
    assert [finding.broken for finding in verdict.findings] == [1]


def test_rules_of_the_project_are_judged_on_all_of_the_sinks_rows_without_our_own_columns(made):
    spec = made.spec
    rules = [
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "v", "value_set": ["d"]}},
        {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 3}, "severity": "warning"},
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "n", "min_value": 3, "max_value": math.inf},
        },
        {
            "type": "expect_table_columns_to_match_set",
            "kwargs": {"column_set": spec.sink_table.columns.names, "exact_match": True},
        },
    ]
    asked = spec.model_copy(update={"checks": ChecksConfig(expectations=rules)})
    tables = Plan.under(made.root.rpartition("/")[0], asked)
    assert judge(tables, "expectations", judged=VersionRange.after(tables).until) == {
        ("expect_column_values_to_be_in_set", "critical"): 1,
        ("expect_table_row_count_to_equal", "warning"): 1,
        ("expect_column_values_to_be_between", "critical"): 1,
        ("expect_table_columns_to_match_set", "critical"): 0,
    }
