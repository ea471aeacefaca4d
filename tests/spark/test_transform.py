"""Transforms on Spark: what a sink shows is what the same SELECT over the true table gives."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from clusters.spark_support import act, change, context, cut, plain_spec, shop_lines, shop_spec, sink, table, write
from local.support import SHOP, lines_of
from operating import replay
from oracles.judging import verdict_of

from ebbtide import UpsertPipeline, refresh, run
from ebbtide.ddl import type_ddl
from ebbtide.errors import ConfigError, MigrationError, QuarantineThresholdError, SpecChangedError
from ebbtide.inspect import state
from ebbtide.operations import maintain
from ebbtide.runtime import Plan, system_clock
from ebbtide.runtime._selection import expressions_of
from ebbtide.sessions import executor_of

CRASH = Path(__file__).parent / "crash.py"
DAY_MS = 86_400_000
BY_SEQUENCE = {"order": {"sequence": ["seq"]}}
SHOP_TRANSFORMS = {
    "orders": {
        "schema": "id BIGINT NOT NULL, double DECIMAL(14,2), label STRING, long INT, day DATE, net DECIMAL(14,2)",
        "select": {
            "id": "order_id",
            "double": "total * 2",
            "label": "upper(status) || '/' || currency",
            "long": "length(notes)",
            "day": "CAST(placed_at AS DATE)",
            "net": "CASE WHEN discount > 0 THEN total - discount END",
        },
        "where": "status <> 'cancelled' AND length(coalesce(notes, '')) < 400",
        "key": ["id"],
    },
    "price_list": {
        "schema": "sku STRING NOT NULL, price DECIMAL(10,2), kilos DOUBLE, since DATE",
        "select": {
            "sku": "sku",
            "price": "price",
            "kilos": "CAST(weight AS DOUBLE)",
            "since": "valid_from",
        },
        "where": "price > 1",
        "key": ["sku"],
    },
    "customers": {
        "schema": "no BIGINT NOT NULL, mail STRING, years INT, tier STRING",
        "select": {
            "no": "customer_id",
            "mail": "lower(email)",
            "years": "2026 - year(born)",
            "tier": "coalesce(loyalty_tier, 'none') || if(vip, '!', '')",
        },
        "where": "balance IS NOT NULL AND NOT name LIKE 'A%'",
        "key": ["no"],
    },
    "order_balances": {
        "schema": "order_id BIGINT NOT NULL, rest DECIMAL(15,2), mail STRING",
        "select": {"order_id": "order_id", "rest": "balance - total", "mail": "lower(email)"},
        "where": "status <> 'cancelled' AND balance > 0",
        "key": ["order_id"],
    },
}
NUMBERS = {
    "schema": "id BIGINT NOT NULL, n INT, label STRING",
    "select": {"id": "id", "n": "CAST(v AS INT)", "label": "'v' || v"},
    "where": "v <> 'hidden'",
    "key": ["id"],
}
FILES = (
    [change("+I", 1, "1", 1), change("+I", 2, "2", 2), change("+I", 3, "hidden", 3), change("+I", 4, "4", 4)],
    [change("+U", 1, "hidden", 5), change("+U", 2, "x", 6), change("+U", 3, "3", 7), change("-D", 9, "9", 8)],
)


def transformed(spec, transform, **more):
    """The spec with a transform, checked."""
    fields = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return UpsertPipeline(**fields | {"transform": transform} | more)


def by_select(spark, spec):
    """What the same SELECT gives over the true final table, in order of key."""
    truth = [json.loads(line) for line in lines_of(SHOP / "truth" / f"{spec.name}.jsonl.gz")]
    names = spec.table.columns.names
    texts = spark.createDataFrame(
        [[row[name] for name in names] for row in truth], ", ".join(f"{name} STRING" for name in names)
    )
    typed = [f"CAST({field.name} AS {type_ddl(field.type)}) AS {field.name}" for field in spec.table.columns]
    texts.selectExpr(*typed).createOrReplaceTempView("truth")
    selected = [
        f"CAST({spec.transform.select[field.name]} AS {type_ddl(field.type)}) AS {field.name}"
        for field in spec.sink_table.columns
    ]
    found = spark.sql(f"SELECT {', '.join(selected)} FROM truth WHERE {spec.transform.where}").toArrow().to_pylist()
    return sorted(found, key=lambda row: json.dumps([row[k] for k in spec.sink_key], default=str))


def rows(spark, root, spec):
    return [tuple(row.values()) for row in sink(spark, root, spec)]


def red(spark, root, spec, judged=("ordering", "complete", "unique_key")):
    tables = Plan.under(str(root), spec)
    found = {}
    for name in judged:
        for finding in verdict_of(spark, tables, name).findings:
            if finding.broken:
                found[name, finding.expectation] = finding.severity
    return found


SELECTED = [
    ("order_balances", 2),
    ("price_list", 2),
    ("order_balances", 8),
    ("price_list", 8),
    ("customers", 8),
    ("orders", 1),
    ("orders", 8),
    ("orders", 40),
]


@pytest.mark.grid  # of fewer rows: test_sql.py, test_table_of_expressions_functions_and_a_condition...
@pytest.mark.parametrize(("name", "steps"), SELECTED)
def test_shop_table_selected_equals_the_select_over_the_truth(spark, tmp_path, name, steps):
    lines = shop_lines(name)
    if name == "orders":  # in order of arrival nothing is promised for shuffled records
        random.Random(steps).shuffle(lines)
    parts = cut(lines, steps)
    spec = shop_spec(name, write(tmp_path / "in", *parts, parts[0]))
    spec = transformed(spec, SHOP_TRANSFORMS[name], checks={})
    summary = run(spark, spec, str(tmp_path))
    shown = sink(spark, tmp_path, spec)
    assert len(shown) > 50
    assert shown == by_select(spark, spec)
    assert summary.totals["quarantined"] == 0
    assert red(spark, tmp_path, spec) == {}


@pytest.mark.grid
def test_row_that_fails_leaves_what_was_shown_and_all_jobs_go_by_what_is_selected(spark, tmp_path, capfd):
    root = str(tmp_path)
    source = write(tmp_path / "in", *FILES)
    spec = transformed(plain_spec(source, **BY_SEQUENCE), NUMBERS)
    run(spark, spec, root)
    assert "The value 'x'" not in capfd.readouterr().err, "PySpark logs what fails, personal or not"
    shown = [(2, 2, "v2"), (3, 3, "v3"), (4, 4, "v4")]
    assert rows(spark, tmp_path, spec) == shown, "1 left, 3 came, 2 keeps its row"
    [bad] = table(spark, tmp_path, spec, "quarantine")
    assert (bad["step"], bad["reason"], bad["raw"].decode()) == (2, "transform_failed", FILES[1][1])
    assert bad["detail"].startswith("id=2: n: [CAST_INVALID_INPUT]")
    assert bad["origin"]["position"] == 6
    assert red(spark, tmp_path, spec) == {}

    maintain(spark, spec, root, "compaction")
    location = Plan.under(root, spec).sink.path
    spark.sql(f"DELETE FROM delta.`{location}` WHERE id = 4")
    spark.sql(f"UPDATE delta.`{location}` SET n = 7 WHERE id = 3")
    assert list(red(spark, tmp_path, spec, ["complete"])) == [("complete", "expect_sink_to_be_complete")]
    act(spark, spec, root, "repair")
    assert rows(spark, tmp_path, spec) == shown
    spark.sql(f"DELETE FROM delta.`{location}` WHERE id = 4")
    assert act(spark, spec, root, "acknowledge", reason="meant so")["missing"] == 1
    assert red(spark, tmp_path, spec, ["complete", "unique_key"]) == {}, "`ordering` does not look behind it"

    kept = act(spark, spec, root, "quarantine.replay", "plan")["kept"]
    assert ["transform fails" in record["detail"] for record in kept] == [True]
    mended = {tuple(bad["origin"].values()): change("+U", 2, "22", 60)}
    done = replay("apply", context(spark, spec, root), mended)
    assert done["counts"]["updated"] == 1
    assert rows(spark, tmp_path, spec) == [(2, 22, "v22"), (3, 3, "v3")]
    assert table(spark, tmp_path, spec, "quarantine") == []
    act(spark, spec, root, "rewind", to_step=2)
    assert rows(spark, tmp_path, spec) == shown


def test_migrated_transform_takes_what_it_can_evaluate_now_out_of_the_quarantine(spark, tmp_path):
    root = str(tmp_path)
    spec = transformed(plain_spec(write(tmp_path / "in", *FILES), **BY_SEQUENCE), NUMBERS)
    run(spark, spec, root)
    assert [row["reason"] for row in table(spark, tmp_path, spec, "quarantine")] == ["transform_failed"]
    other = transformed(spec, NUMBERS | {"select": NUMBERS["select"] | {"n": "length(v)"}})
    act(spark, other, root, "migrate")
    assert table(spark, tmp_path, other, "quarantine") == []


@pytest.mark.grid
def test_changed_transform_is_refused_and_migrated_from_the_state_and_undone(spark, tmp_path):
    root = str(tmp_path)
    source = write(tmp_path / "in", *FILES)
    spec = transformed(plain_spec(source, **BY_SEQUENCE), NUMBERS)
    run(spark, spec, root)
    before = rows(spark, tmp_path, spec)
    select = NUMBERS["select"] | {"n": "length(v) * 10"}
    other = transformed(spec, NUMBERS | {"select": select, "where": "v <> '4'"})
    with pytest.raises(SpecChangedError, match="ebbtide migrate"):
        run(spark, other, root)
    planned = act(spark, other, root, "migrate", "plan")
    assert planned["changes"] == [
        "transform.select.n: CAST(v AS INT) -> length(v) * 10",
        "transform.where: v <> 'hidden' -> v <> '4'",
    ]
    act(spark, other, root, "migrate")
    after = [(1, 60, "vhidden"), (2, 10, "vx"), (3, 10, "v3")]
    assert rows(spark, tmp_path, other) == after
    assert table(spark, tmp_path, other, "quarantine") == [], "it does not fail any more"
    assert red(spark, tmp_path, other, ["complete", "unique_key"]) == {}, "`ordering` does not look behind it"
    act(spark, other, root, "migrate", "undo")
    assert rows(spark, tmp_path, spec) == before
    assert [row["step"] for row in table(spark, tmp_path, spec, "quarantine")] == [2]

    wider = transformed(
        spec,
        NUMBERS
        | {
            "schema": "id BIGINT NOT NULL, seq BIGINT, n BIGINT",
            "select": {"id": "id", "seq": "seq", "n": "CAST(v AS BIGINT)"},
        },
    )
    act(spark, wider, root, "migrate")
    assert rows(spark, tmp_path, wider) == [(3, 7, 3), (4, 4, 4)], "a row that fails anew leaves the sink"
    assert [row["reason"] for row in table(spark, tmp_path, wider, "quarantine")] == ["transform_failed"]
    write(source, [change("+U", 2, "5", 9)], first=2)
    run(spark, wider, root)
    assert rows(spark, tmp_path, wider) == [(2, 9, 5), (3, 7, 3), (4, 4, 4)]
    assert red(spark, tmp_path, wider) == {}
    plain = plain_spec(source, **BY_SEQUENCE)
    act(spark, plain, root, "migrate")
    assert [row["v"] for row in sink(spark, tmp_path, plain)] == ["hidden", "5", "3", "4"]
    assert red(spark, tmp_path, plain, ["complete", "unique_key"]) == {}


def test_changes_selected_in_order_of_arrival_may_have_another_key(spark, tmp_path):
    root = str(tmp_path)
    by_value = NUMBERS | {"key": ["n"], "schema": "n INT NOT NULL, id BIGINT, label STRING"}
    moved = [change("-U", 1, "1", 5), change("+U", 1, "3", 6), change("+I", 5, "x", 7), change("-D", 4, "4", 8)]
    source = write(tmp_path / "in", FILES[0], moved, [change("+I", 1, "1", 1), change("-D", 5, "x", 9)])
    strict = transformed(plain_spec(source), by_value, quarantine={"max_rows_per_step": 0})
    with pytest.raises(QuarantineThresholdError, match="1 of 4"):
        run(spark, strict, root)
    assert rows(spark, tmp_path, strict) == [(1, 1, "v1"), (2, 2, "v2"), (4, 4, "v4")]
    spec = transformed(plain_spec(source), by_value)
    summary = run(spark, spec, root)
    assert rows(spark, tmp_path, spec) == [(2, 2, "v2"), (3, 1, "v3")]
    bad = table(spark, tmp_path, spec, "quarantine")
    assert sorted((row["step"], row["origin"]["position"]) for row in bad) == [(2, 7), (3, 9)]
    assert (summary.totals["redelivered"], summary.totals.get("unmatched", 0)) == (1, 0)
    other = transformed(spec, by_value | {"where": "v <> '4'"})
    with pytest.raises(MigrationError, match="refresh"):
        act(spark, other, root, "migrate", "plan")


REFUSED = {
    "v +": "does not parse",
    "nothing": "no column nothing",
    "udf(v) = 'a'": "udf",
    "v": "a type that INSERT takes for boolean|string",
    "to_date(v) = current_timestamp": "CURRENT_TIMESTAMP|current_timestamp",
    "unix_timestamp() > seq": "follow from the row",
    "seq > rand()": "RAND",
    "element_at(array(explode(array(seq))), 1) > 0": "generator",
}


def test_what_spark_cannot_evaluate_row_by_row_is_refused_before_anything_is_made(spark, tmp_path):
    source = write(tmp_path / "in", FILES[0])
    for where, reason in REFUSED.items():
        with pytest.raises((ConfigError, ValueError), match=reason):
            run(spark, transformed(plain_spec(source, **BY_SEQUENCE), NUMBERS | {"where": where}), str(tmp_path))
    unfit = NUMBERS | {"schema": "id BIGINT NOT NULL, n DATE, label STRING"}
    with pytest.raises(ConfigError, match=r"transform.select.n .* int\. Allowed: a type that INSERT takes for date"):
        run(spark, transformed(plain_spec(source, **BY_SEQUENCE), unfit), str(tmp_path))
    assert not (tmp_path / "plain").exists()


NOT_OF_A_ROW = (
    "sum(id)",
    "row_number() OVER (ORDER BY id)",
    "(SELECT 1)",
    "explode(array(id))",
    "CAST(rand() AS BIGINT)",
    "monotonically_increasing_id()",
    "unix_timestamp()",
    "unix_timestamp(now())",
    "length(uuid())",
    "length(current_user())",
    "unix_date(current_date)",
    "nothing + 1",
    "udf(id)",
    "id +",
)


def test_sparks_analyzer_refuses_what_does_not_follow_from_a_row(spark, tmp_path):
    spec = transformed(plain_spec(tmp_path / "in", **BY_SEQUENCE), NUMBERS)
    own = expressions_of(executor_of(spark), Plan.under(str(tmp_path), spec))
    empty = own._frame(own.inputs.empty_table())

    def refused(text, type_):
        own.calls.texts[text] = text  # it calls no function of the spec
        return own._problem(empty, text, type_, is_condition=False) is not None

    assert [text for text in NOT_OF_A_ROW if not refused(text, pa.int64())] == []
    assert not refused("transform(array(id), x -> x + 1)[0]", pa.int64())
    assert not refused("id", pa.int32()), "a number that is out of range fails as it is met"
    assert refused("v", pa.int64())


@pytest.mark.grid
def test_run_killed_after_the_decision_is_finished_by_the_next(spark, tmp_path):
    personal = {"columns": {"v": {"personal": True}}}
    spec = transformed(plain_spec(write(tmp_path / "in", *FILES), **BY_SEQUENCE, **personal), NUMBERS)
    given = spec.model_dump_json(by_alias=True)
    killed = subprocess.run([sys.executable, CRASH, given, tmp_path, "after the decision"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert rows(spark, tmp_path, spec) == [(1, 1, "v1"), (2, 2, "v2"), (4, 4, "v4")]
    rest = run(spark, spec, str(tmp_path))
    assert [step.kind for step in rest.steps] == ["replay"]
    assert rows(spark, tmp_path, spec) == [(2, 2, "v2"), (3, 3, "v3"), (4, 4, "v4")]
    [bad] = table(spark, tmp_path, spec, "quarantine")
    assert bad["detail"] == "id=2: n: [CAST_INVALID_INPUT] ***"
    assert red(spark, tmp_path, spec) == {}


@pytest.mark.grid
@pytest.mark.parametrize("write_mode", ["vectors", "rewrite"])
def test_every_way_to_write_the_sink_shows_what_is_selected_and_a_refresh_too(spark, tmp_path, write_mode):
    root = str(tmp_path)
    more = [change("+U", 2, "2", 9), change("-D", 3, "3", 10), change("+U", 4, "hidden", 11)]
    source = write(tmp_path / "in", *FILES, more, [change("+U", 4, "44", 12)])
    spec = transformed(plain_spec(source, **BY_SEQUENCE), NUMBERS, sink={"write": write_mode})
    shown = [(2, 2, "v2"), (4, 44, "v44")]
    for make in (run, refresh):
        make(spark, spec, root)
        assert rows(spark, tmp_path, spec) == shown
        assert red(spark, tmp_path, spec) == {}
    spark.sql(f"DELETE FROM delta.`{Plan.under(root, spec).sink.path}` WHERE id = 4")
    act(spark, spec, root, "repair")
    assert rows(spark, tmp_path, spec) == shown
    assert red(spark, tmp_path, spec) == {}


@pytest.mark.grid
def test_selected_rows_expire_in_order_of_arrival_and_jobs_leave_what_is_shown(spark, tmp_path):
    root = str(tmp_path)
    source = write(tmp_path / "in", FILES[0])
    expiring = {"ttl": "2d", "materializer": {"on_expire": "delete"}}
    spec = transformed(plain_spec(source, **expiring), NUMBERS)
    run(spark, spec, root)
    write(source, [change("+U", 2, "22", 20), change("+I", 5, "x", 21)], first=1)
    run(spark, spec, root, clock=lambda: system_clock() + DAY_MS)
    [bad] = table(spark, tmp_path, spec, "quarantine")
    mended = {tuple(bad["origin"].values()): change("+I", 5, "5", 21)}
    replay("apply", context(spark, spec, root, system_clock() + DAY_MS), mended, accept_late=True)
    assert rows(spark, tmp_path, spec) == [(1, 1, "v1"), (2, 22, "v22"), (4, 4, "v4"), (5, 5, "v5")]
    run(spark, spec, root, clock=lambda: system_clock() + int(2.5 * DAY_MS))
    of_second_run = [(2, 22, "v22"), (5, 5, "v5")]
    assert rows(spark, tmp_path, spec) == of_second_run
    for job in ("cleanup", "compaction", "vacuum"):
        maintain(spark, spec, root, job)
    assert rows(spark, tmp_path, spec) == of_second_run
    assert sorted(row["n"] for row in state(spark, spec, root).to_pylist()) == [5, 22]
    assert red(spark, tmp_path, spec) == {}
