"""A source, a format and a sink of other packages on Spark: tasks read and decode the records, a died run is finished, a rewind goes back."""

import json

import pytest
from clusters.spark_support import act
from frame.installing import EXAMPLES, install
from local.local_run import die_behind_a_decision
from local.support import plain

from ebbtide import run
from ebbtide.runtime import Plan
from ebbtide.sources._positioned import RECORDS_IN_DRIVER

FIRST = range(RECORDS_IN_DRIVER + 1)
"""More records than the driver reads by itself."""


@pytest.fixture
def logbook(spark, tmp_path, shell):
    """A logbook's folder; the packages of its source, its format and its sink are installed, on the workers too."""
    install(tmp_path / "logbook", shell, "logbook")
    install(tmp_path / "documents", shell, "documents")
    for module in ("logbook", "puts"):
        spark.sparkContext.addPyFile(str(EXAMPLES / "logbook" / f"{module}.py"))
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "id").write_text("first")
    return folder


def put(folder, ids, n, partition=0):
    with (folder / f"{partition}.log").open("a") as log:
        log.writelines(json.dumps({"put": {"id": id_, "n": n}}) + "\n" for id_ in ids)


def shown(spec, root):
    return {row["id"]: row["n"] for row in Plan.under(root, spec).sink.rows()}


def test_records_are_read_by_tasks_and_a_run_that_died_is_finished_and_a_rewind_goes_back(spark, tmp_path, logbook):
    root = str(tmp_path / "root")
    spec = plain(
        "id BIGINT NOT NULL, n BIGINT",
        source={"type": "logbook", "folder": str(logbook)},
        format={"type": "puts"},
        sink={"type": "documents"},
        order={"sequence": ["n"]},
    )
    put(logbook, FIRST, n=1)
    put(logbook, [-1], n=1, partition=1)
    [first] = run(spark, spec, root).steps
    assert (first.kind, first.records) == ("batch", len(FIRST) + 1)
    before = shown(spec, root)
    assert before == dict.fromkeys([*FIRST, -1], 1)

    put(logbook, [0], n=2)
    die_behind_a_decision(spark, tmp_path / "root", spec)
    put(logbook, [1], n=2)
    replayed, second = run(spark, spec, root).steps
    assert (replayed.kind, replayed.records, second.kind, second.records) == ("replay", 1, "batch", 1)
    after = before | {0: 2, 1: 2}
    assert shown(spec, root) == after

    act(spark, spec, root, "rewind", to_step=first.step)
    assert shown(spec, root) == before
    [again] = run(spark, spec, root).steps
    assert (again.kind, again.records) == ("batch", 2)
    assert shown(spec, root) == after


def test_output_that_is_added_takes_the_rows_of_the_sink_from_tasks(spark, tmp_path, logbook):
    root = str(tmp_path / "root")
    fields = {
        "source": {"type": "logbook", "folder": str(logbook)},
        "format": {"type": "puts"},
        "order": {"sequence": ["n"]},
        "engine": "spark",
    }
    put(logbook, [1, 2], n=1)
    run(spark, plain("id BIGINT NOT NULL, n BIGINT", **fields), root)
    put(logbook, [2, 3], n=2)
    spec = plain("id BIGINT NOT NULL, n BIGINT", **fields, outputs={"copy": {"type": "documents"}})
    run(spark, spec, root)
    copy = Plan.under(root, spec).outputs["copy"]
    assert {row["id"]: row["n"] for row in copy.rows()} == {1: 1, 2: 2, 3: 2}
    assert [json.loads(path.read_text())["step"] for path in sorted((tmp_path / "root/t/outputs/copy").iterdir())] == [
        0,
        2,
        3,
    ]
