"""What a plan says of files, rows and bytes is what then leaves the tables."""

import pytest
from frame.limits import set_limits
from local.local_pipeline import up
from local.local_run import HOUR, SPARK, START

from ebbtide.delta import Snapshot
from ebbtide.ledger import Cause
from ebbtide.operations import Context, dropped, operations

CASES = {
    "rewind": {"to_step": 1},
    "backfill.swap": {},
    "migrate": {},
    "compact": {},
    "cleanup": {},
}


def files_of(pipeline):
    """The data files of the newest versions, by table and path."""
    found = {}
    for name in ("state", "sink", "changelog", "quarantine"):
        snapshot = Snapshot.read(pipeline.plan.at(name))
        for file in snapshot.files.values() if snapshot else ():
            found[name, file.path] = file
    return found


def act(name, action, pipeline, spec, **params):
    [operation] = [each for each in operations() if each.name == name]
    ctx = Context(spec, pipeline.root, SPARK, clock=lambda: START + HOUR)
    return operation.act(action, ctx, operation.asked(params))


@pytest.mark.parametrize("name", CASES)
def test_planned_files_rows_and_bytes_are_those_that_leave_the_newest_versions(make, name):
    set_limits(width=100)
    pipeline = make(ttl={"ttl": "1h"}, schema="id BIGINT NOT NULL, n BIGINT, old STRING")
    pipeline.read(up(1, 1), up(2, 2), clock_ms=START)
    pipeline.read(up(1, 3), "{", clock_ms=START)
    pipeline.read(up(2, 4, "-D"), clock_ms=START)
    spec = pipeline.spec
    if name == "migrate":
        spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n BIGINT")
    if name == "backfill.swap":
        pipeline.do("backfill")
    if name == "cleanup":
        with pipeline.stepper() as stepper:
            stepper.commit(stepper.facts(Cause(what="cleanup"), stepper.next_clock(START + 2 * HOUR)), [])
    before = files_of(pipeline)
    if name == "backfill.swap":
        planned = pipeline.do("swap")  # its plan and its report say the same, and the comparison of rows needs Spark
    else:
        planned = act(name, "dry_run" if name in ("compact", "cleanup") else "plan", pipeline, spec, **CASES[name])
        assert files_of(pipeline).keys() == before.keys(), "a plan changes nothing"
        act(name, "apply", pipeline, spec, **CASES[name])
    left = files_of(pipeline)
    gone = {key: file for key, file in before.items() if key not in left}
    assert gone
    wanted = {}
    for (table, _), file in gone.items():
        files, n_bytes = wanted.get(table, (0, 0))
        wanted[table] = (files + 1, n_bytes + file.size)
    found = {each["place"]: (each["files"], each["bytes"]) for each in planned["places"] if each["place"] != "backfill"}
    assert {table: found.get(table) for table in wanted} == wanted
    rows = {each["place"]: each["rows"] for each in planned["places"]}
    if name in ("rewind", "migrate", "backfill.swap"):
        n_rows = {table: sum(file.live_rows for (own, _), file in gone.items() if own == table) for table in wanted}
        assert {table: rows[table] for table in wanted} == n_rows


def test_refresh_asks_with_the_rows_that_it_drops(make):
    pipeline = make()
    assert list(dropped(pipeline.spec, pipeline.root)) == []
    pipeline.read(up(1, 1), up(2, 2), "{")
    sizes = {}
    for (table, _), file in files_of(pipeline).items():
        sizes[table] = sizes.get(table, 0) + file.size
    later = "dropped, gone by the first 'ebbtide vacuum' after 7 days"
    lines = list(dropped(pipeline.spec, pipeline.root))
    assert f"t: sink: 2 rows, 1 file, {sizes['sink']:,} bytes: {later}" in lines
    assert f"t: quarantine: 1 row, 1 file, {sizes['quarantine']:,} bytes: {later}" in lines
    assert len(lines) == 3
    for commit in (pipeline.home / "sink" / "_delta_log").iterdir():
        commit.write_text("{")
    first, second, third = dropped(pipeline.spec, pipeline.root)
    assert (first, third) == (lines[0], lines[2])
    assert second.startswith("t: sink: ")
    assert later not in second, "a refresh can still be asked for"
