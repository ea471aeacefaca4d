"""Roots of earlier releases are opened, run on and maintained by this one.

`tests/data/format_N` has them as those releases left them. What an earlier release must refuse of this one: tests/runtime/test_newer.py.
"""

import json
import re
import shutil
import tarfile
from datetime import date
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from frame.installing import install
from local.local_pipeline import LATER, LocalPipeline, killed, up
from local.support import plain
from victims import refuse_fed_twice

from ebbtide.delta import Log, Snapshot
from ebbtide.errors import DamagedFileError, StoredFormatError
from ebbtide.inspect import Lag, status
from ebbtide.model import StoredDocument

KEPT = Path(__file__).parent.parent / "data"
ROOTS = (
    "format_2/batch_emitting",
    "format_2/rewind",
    "format_3/arrival",
    "format_3/sequence",
    "format_3/decided",
    "format_3/planned",
    "format_4/arrival",
    "format_4/sequence",
)
"""Those of format 2, and `decided`, were killed behind a decision; tests/ledger/test_upgrade.py finishes one of each kind. `planned` had noted its
next batch in the checkpoint folder, and was killed before the decision."""
MORE = ("format_2/batch", "format_2/compaction", "format_2/quarantine_drop")
MERGED = ("format_4/merged_decided", "format_4/merged_applied")
"""Their sink, partitioned by others, was adopted and then written by Spark's MERGE. The last run was killed before, or behind, a step's MERGE."""
OF_A_LOG = ("format_3/positions", "format_3/begun")
"""Of a source that is read by position: behind two steps, and before the first one."""
REFUSED = ("format_1/arrival", "format_1/sequence")
"""Format 1 never had a converter: its rows lack what a step decides by since. A refresh reads the source again."""


class LogPipeline(LocalPipeline):
    """A pipeline over a log of the sample source."""

    def with_fields(self, **more):
        return plain("id BIGINT NOT NULL, n BIGINT", **{**self.fields, **more})

    def log(self, id_, n):
        with Path("logs", "0.log").open("a") as file:
            file.write(json.dumps({"put": {"id": id_, "n": n}}) + "\n")


def kept_root(name, kind=LocalPipeline):
    """Unpack a root here; return its pipeline, and what its release made of it."""
    expected = json.loads((KEPT / f"{name}.json").read_text())
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(filter="data")
    return kind(Path(), **expected["fields"]), expected


@pytest.fixture
def logbook(tmp_path, shell):
    install(tmp_path / "site", shell, "logbook")
    shell.cd(tmp_path)


@pytest.mark.parametrize("name", [*ROOTS, *(pytest.param(name, marks=pytest.mark.grid) for name in MORE)])
def test_root_of_an_earlier_release_goes_on(name, make, tmp_path, shell):
    shell.cd(tmp_path)
    pipeline, expected = kept_root(name)
    assert status(pipeline.spec, pipeline.root).last.step == expected["step"]
    pipeline.run()
    want = dict(expected["rows"])
    assert pipeline.rows() == want
    n_bad = len(pipeline.table("quarantine", pipeline.plan.quarantine.schema))
    pipeline.read(up(9, 9), "{")
    for work in ("compaction", "cleanup", "undo"):
        pipeline.do(work)
    pipeline.read(up(9, 10))
    assert pipeline.rows() == want | {9: 10}
    assert len(pipeline.table("quarantine", pipeline.plan.quarantine.schema)) == n_bad + 1
    for table in ("state", "sink", "quarantine"):
        _, newest = next(Log(pipeline.plan.at(table)).own_commits())
        assert newest[StoredDocument.FORMAT_KEY] == StoredDocument.FORMAT
    assert pipeline.is_idle()


@pytest.mark.parametrize("write", ["vectors", "rewrite"])
@pytest.mark.parametrize("name", MERGED)
def test_root_whose_sink_spark_merged_goes_on_with_the_same_tables(name, write, tmp_path, shell):
    shell.cd(tmp_path)

    def go_on(folder, sink, **fields):
        with pytest.raises(
            ValueError, match=r"sink.write: got 'merge'; allowed: vectors, or rewrite .* the same tables"
        ):
            LocalPipeline(folder, **fields, sink=sink)
        return LocalPipeline(folder, **fields, sink={**sink, "write": write})

    pipeline, expected = kept_root(name, go_on)
    sink = pipeline.plan.sink.path
    before = Snapshot.read(sink)
    pipeline.run()
    want = {id_: (n, region, day and date.fromisoformat(day)) for id_, n, region, day in expected["rows"]}
    assert shown_of(pipeline) == want
    pipeline.read(up(9, 9, region="us", day="2024-02-29"), up(100, 9, region="new =%", day=None), up(1, 9, "-D"))
    for work in ("compaction", "cleanup", "undo"):
        pipeline.do(work)
    pipeline.read(up(9, 10, region=None, day="2024-02-29"))
    del want[1]
    want |= {9: (10, None, date(2024, 2, 29)), 100: (9, "new =%", None)}
    assert shown_of(pipeline) == want
    after = Snapshot.read(sink)
    assert (after.id, after.partitioned) == (before.id, ("region", "day"))
    assert after.configuration["delta.logRetentionDuration"] == "interval 40 days"
    theirs = QueryBuilder().register("t", DeltaTable(sink)).execute("SELECT id, n, region, day FROM t").read_all()
    assert {row["id"]: tuple(row.values())[1:] for row in pa.table(theirs).to_pylist()} == want
    refuse_fed_twice(pipeline.plan)
    assert "nothing to repair" in pipeline.repair(action="plan").text()
    assert pipeline.is_idle()


def shown_of(pipeline):
    """What its sink shows: the other columns by id."""
    rows = pipeline.table("sink", pipeline.spec.sink_table.columns)
    return {row["id"]: (row["n"], row["region"], row["day"]) for row in rows}


@pytest.mark.parametrize("name", REFUSED)
def test_root_of_the_first_format_is_refused_until_a_refresh(name, tmp_path, shell):
    shell.cd(tmp_path)
    pipeline, expected = kept_root(name)
    before = pipeline.versions()
    assert sorted(map(list, pipeline.rows().items())) == expected["rows"]
    works = (
        pipeline.run,
        pipeline.repair,
        *(partial(pipeline.do, work) for work in ("compaction", "cleanup", "rewind")),
    )
    for work in works:
        with pytest.raises(StoredFormatError, match=r"older Ebbtide.*format 1.*'ebbtide refresh'"):
            work()
    assert pipeline.versions() == before
    pipeline.do("refresh")
    assert sorted(map(list, pipeline.rows().items())) == expected["rows"]
    assert len(pipeline.table("quarantine", pipeline.plan.quarantine.schema)) == expected["quarantined"]
    pipeline.read(up(9, 9))
    pipeline.do("compaction")
    assert pipeline.rows()[9] == 9
    assert pipeline.is_idle()


@pytest.mark.usefixtures("logbook")
@pytest.mark.parametrize("name", OF_A_LOG)
def test_log_of_an_earlier_release_is_read_on_where_its_root_stands(name):
    pipeline, expected = kept_root(name, LogPipeline)
    want = dict(expected["rows"])
    n_waiting = 1 if name == "format_3/positions" else 2
    assert Lag.of(pipeline.spec, pipeline.root, LATER).backlog.total_records == n_waiting
    [step] = pipeline.run().steps
    assert (step.records, pipeline.rows()) == (n_waiting, want)
    (pipeline.home / "checkpoint").rename("away")
    assert pipeline.is_idle()
    pipeline.log(9, 9)
    assert [step.records for step in pipeline.run().steps] == [1]
    assert pipeline.rows() == want | {9: 9}


@pytest.mark.usefixtures("logbook")
@pytest.mark.parametrize("first", ["a run that died", "a pause"])
def test_begin_that_an_earlier_release_has_noted_is_read_once(monkeypatch, first):
    pipeline, expected = kept_root("format_3/begun", LogPipeline)
    if first == "a pause":
        pipeline.act("pause", clock_ms=LATER, reason="an upgrade")
        pipeline.act("resume", clock_ms=LATER)
    else:
        with monkeypatch.context() as patch:
            patch.setattr("ebbtide.runtime._stream.Stream.discover", killed)
            with pytest.raises(InterruptedError):
                pipeline.run()
    turn = pipeline.plan.ledger.turn
    assert (turn.format, turn.beginning.asked) == (StoredDocument.FORMAT, "latest")
    shutil.rmtree(pipeline.home / "checkpoint")
    pipeline.run()
    assert pipeline.rows() == dict(expected["rows"])


@pytest.mark.usefixtures("logbook")
def test_begin_that_an_earlier_release_left_torn_is_named():
    pipeline, _ = kept_root("format_3/begun", LogPipeline)
    (pipeline.home / "checkpoint" / "ebbtide_start.json").write_text("{")
    damaged = r"ebbtide_start\.json' is damaged"
    for look in (pipeline.run, pipeline.is_idle):
        with pytest.raises(DamagedFileError, match=damaged):
            look()
    refusal = status(pipeline.spec, pipeline.root).next_run.refusal
    assert isinstance(refusal, DamagedFileError)
    assert re.search(damaged, str(refusal))


def test_each_format_has_roots():
    formats = {int(name.partition("/")[0].removeprefix("format_")) for name in (*ROOTS, *REFUSED)}
    assert formats == set(range(1, StoredDocument.FORMAT + 1)), (
        "keep roots of the format before a new one: see docs/reference/stored-formats.md"
    )
