"""Erasure: keys go from tables, history, logs and local copies; their records are refused until they are released."""

import json
import shutil
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from frame.interrupting import killed_before
from frame.limits import limits, set_limits, swap_inside
from frame.shell import Shell
from frame.thinned import graded
from local.local_pipeline import LATER, Kept, LocalPipeline, up
from local.local_run import HOUR, SPARK, START
from local.support import UNAVAILABLE
from operating import operation_named
from victims import KINDS, spec_of, write_source

from ebbtide import MaterializedView
from ebbtide.delta import Log
from ebbtide.delta import _copy_files as copy_files
from ebbtide.errors import BackfillError, ConfigError, HistoryGoneError, QuarantineThresholdError
from ebbtide.ledger import ErasureLedger
from ebbtide.operations import Context
from ebbtide.operations._erase import erase, views
from ebbtide.runtime import Plan
from ebbtide.storage import ArrowFile

CANARY = "canary-7d1f"
OTHER = "stays-5a20"
SCHEMA = "id STRING, n BIGINT, v STRING"


def content(folder):
    """All that the files of a folder hold, as text by file: Parquet and Arrow files decoded."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if not path.is_file():
            continue
        if path.suffix == ".parquet":
            with path.open("rb") as file:
                rows = pq.ParquetFile(file)
                found[path.name] = f"{rows.read().to_pylist()} {rows.metadata.to_dict()}"
        elif "staged" in path.parts:
            with ArrowFile(str(path)).reading() as staged:
                found[path.name] = str(staged.read_all().to_pylist())
        elif path.suffix == ".arrow":
            found[path.name] = str(copy_files.Copy(path).rows.to_pylist())
        else:
            found[path.name] = path.read_bytes().decode(errors="replace")
    return found


def holders(folder, text=CANARY):
    """Names of the files of a folder that hold a text."""
    return [name for name, held in content(folder).items() if text in held]


def act(pipeline, action, keys=CANARY, **params):
    file = pipeline.source.parent / "keys.jsonl"
    lines = [json.dumps({"id": keys})] if isinstance(keys, str) else keys
    file.write_text("\n".join(lines))
    operation = operation_named("erase")
    ctx = Context(pipeline.spec, pipeline.root, SPARK, by="me", clock=lambda: LATER)
    return operation.act(action, ctx, operation.asked({"keys": str(file), **params}))


@pytest.fixture
def copies(tmp_path, shell):
    shell.export(EBBTIDE_CACHE=tmp_path / "copies")
    return tmp_path / "copies"


BY_ARRIVAL = {"order": "arrival", "materializer": {"emission": "every"}}
BY_SEQUENCE = pytest.mark.parametrize(
    "pipeline",
    [pytest.param({}, id="sequence"), pytest.param(BY_ARRIVAL, id="arrival", marks=pytest.mark.grid)],
    indirect=True,
)
"""What is the same by arrival: it is refused, said, or read from a ledger that knows keys alone."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Makes a pipeline with its local copies, once by each order."""
    made = {}

    def find(name, fields):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            with limits(), Shell() as shell:
                shell.export(EBBTIDE_CACHE=folder / "copies")
                pipeline = LocalPipeline(folder, schema=SCHEMA, **fields)
                pipeline.read(up(CANARY, 1, "+I", v="first"), up(OTHER, 1, "+I", v="a"))
                pipeline.read(
                    up(CANARY, 1, "-U", v="first"), up(CANARY, 2, "+U", v="second"), up("third", 2, "+I", v="b")
                )
                pipeline.read(json.dumps({"kind": "+I", "row": {"id": CANARY, "n": "no number", "v": "bad"}}), "{")
            made[name] = Kept(pipeline)
        return made[name].again()

    return find


@pytest.fixture(params=[{}, BY_ARRIVAL], ids=["sequence", "arrival"])
def pipeline(request, kept, shell):
    pipeline = kept("arrival" if request.param else "sequence", request.param)
    shell.export(EBBTIDE_CACHE=copies_of(pipeline))
    return pipeline


def copies_of(pipeline):
    return pipeline.source.parent / "copies"


def ids(pipeline):
    return {row["id"] for row in pipeline.table("sink", pipeline.spec.sink_table.columns)}


SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters at which Python's `splitlines` cuts, and no editor and no reader of JSON lines."""


def test_key_with_any_separator_in_it_is_one_key(tmp_path):
    pipeline = LocalPipeline(tmp_path, schema=SCHEMA)
    texts = [f"a{separator}b" for separator in SEPARATORS]
    pipeline.read(*(up(text, 1, "+I", v="x") for text in [*texts, OTHER]))
    raw = [json.dumps({"id": text}, ensure_ascii=text[1] < " ") for text in texts]
    assert act(pipeline, "plan", keys=raw)["keys"] == len(texts)
    # In CSV a control character stands as it is.
    assert act(pipeline, "plan", keys=["id", *texts])["keys"] == len(texts)
    act(pipeline, "apply", keys=raw)
    assert ids(pipeline) == {OTHER}


@pytest.mark.demand("ttl-law")
def test_erased_key_is_in_no_file_of_the_pipeline_and_in_no_local_copy(pipeline):
    copies = copies_of(pipeline)
    kept = holders(pipeline.home, OTHER)
    assert len(holders(pipeline.home)) > len(Log(pipeline.plan.at("state")).versions())
    assert holders(copies)
    report = act(pipeline, "apply", reason="asked")
    assert holders(pipeline.home) == holders(copies) == []
    assert ids(pipeline) == {OTHER, "third"}
    assert kept
    assert holders(pipeline.home, OTHER)
    places = {place["place"]: place for place in report["places"]}
    assert places["quarantine"]["rows"] == 1
    assert places["quarantine: records without a key"]["rows"] == 1
    assert places["source"]["fate"].startswith("not ours")


def test_rows_that_a_vector_hides_are_erased_too(pipeline):
    pipeline.read(up(CANARY, 2, "-D", v="second"))
    assert CANARY not in ids(pipeline)
    assert holders(pipeline.home)
    act(pipeline, "apply")
    assert holders(pipeline.home) == []


@BY_SEQUENCE
def test_record_of_an_erased_key_is_refused_and_stored_nowhere_until_the_key_is_released(pipeline):
    act(pipeline, "apply")
    bad = json.dumps({"kind": "+I", "row": {"id": CANARY, "n": "no number"}})
    [step, *_] = pipeline.read(up(CANARY, 7, "+I", v="again"), bad, up("fourth", 7, "+I", v="new"))
    assert (step.metrics["erased"], step.records, step.quarantined) == (2, 3, 0)
    for _ in ("by the run", "by a refresh"):
        assert ids(pipeline) == {OTHER, "third", "fourth"}
        assert holders(pipeline.home) == []
        pipeline.do("refresh")
    assert act(pipeline, "release")["released"] == 1
    assert act(pipeline, "release")["released"] == 0
    pipeline.read(up(CANARY, 8, "+I", v="again"))
    assert CANARY in ids(pipeline)


@BY_SEQUENCE
def test_refresh_that_is_refused_has_read_no_erased_key(pipeline):
    """What it tried first stays, since it shows the reasons."""
    set_limits(flush_bytes=1)  # else few changes stay in memory
    act(pipeline, "apply")
    with (pipeline.source / "0000.jsonl").open("a") as file:
        file.write("{\n")
    pipeline.spec = pipeline.with_fields(quarantine={"max_rows_per_step": 0})
    with pytest.raises(QuarantineThresholdError):
        pipeline.do("refresh")
    assert holders(pipeline.plan.rehearsal, OTHER)
    assert holders(pipeline.home) == []


@BY_SEQUENCE
def test_replay_refuses_and_counts_corrected_records_of_an_erased_key_and_applies_the_others(pipeline):
    act(pipeline, "apply")
    pipeline.read("[", "(")
    bad = json.dumps({"kind": "+I", "row": {"id": CANARY, "n": "no number"}})
    mended = [up(CANARY, 8, "+I", v="again"), bad, up("fifth", 8, "+I", v="mended")]
    report = pipeline.do("replay", mended=mended)
    assert (report["replayed"], report["erased"], report["counts"]["inserted"], report["counts"]["erased"]) == (
        1,
        2,
        1,
        2,
    )
    assert "2 records" in report.text()
    assert ids(pipeline) == {OTHER, "third", "fifth"}
    assert pipeline.last.decision.removed == {"replayed": 1, "erased": 2}
    assert len(pipeline.plan.quarantine.values("raw")) == 0
    assert holders(pipeline.home) == []


def test_backfill_begun_after_an_erasure_has_no_erased_key(pipeline):
    act(pipeline, "apply")
    pipeline.do("backfill")
    assert pipeline.plan.backfill.state.last()[1].state.erased == pipeline.last.state.erased
    assert holders(pipeline.home) == []
    pipeline.put(up(CANARY, 6, "+I", v="while it is built"))
    report = pipeline.do("swap")
    assert report.step is not None
    assert ids(pipeline) == {OTHER, "third"}
    [step, *_] = pipeline.read(up(CANARY, 7, "+I", v="again"))
    assert step.metrics["erased"] >= 1
    assert ids(pipeline) == {OTHER, "third"}
    assert holders(pipeline.home) == []


@BY_SEQUENCE
def test_swap_of_a_backfill_that_does_not_know_an_erasure_is_refused(pipeline, monkeypatch):
    act(pipeline, "apply", OTHER)
    pipeline.do("backfill")
    with monkeypatch.context() as patch:
        patch.setattr(
            erase, "refuse_others", lambda _: None
        )  # as of an erasure that looked before the backfill was begun
        act(pipeline, "apply")
    with pytest.raises(BackfillError, match="erased after its backfill"):
        pipeline.do("swap")
    assert ids(pipeline) == {"third"}


@BY_SEQUENCE
def test_swap_of_a_backfill_that_does_not_know_a_release_is_refused(pipeline):
    act(pipeline, "apply")
    pipeline.do("backfill")
    act(pipeline, "release")
    pipeline.read(up(CANARY, 8, "+I", v="again"))
    for applies in (False, True):
        with pytest.raises(BackfillError, match=r"released after its backfill was begun.*begin it again"):
            pipeline.do("swap", applies=applies)
    assert ids(pipeline) == {CANARY, OTHER, "third"}


def test_row_that_had_an_erased_key_before_keeps_its_values_and_names_it_no_more(tmp_path, copies):
    pipeline = LocalPipeline(tmp_path, schema=SCHEMA, format={"type": "debezium"}, order={"sequence": ["_lsn"]})
    pipeline.read(key_change(None, CANARY, 1, "kept"), key_change(None, OTHER, 1, "a"))
    pipeline.read(key_change(CANARY, "renamed", 2, UNAVAILABLE))
    rows = {"renamed": "kept", OTHER: "a"}
    assert values(pipeline) == rows
    act(pipeline, "apply")
    assert values(pipeline) == rows
    assert holders(pipeline.home) == holders(copies) == []
    # A change of the key that comes again, or late, neither brings the name back nor takes a value from there.
    pipeline.read(key_change(CANARY, "renamed", 2, UNAVAILABLE), key_change(CANARY, "late", 3, UNAVAILABLE))
    assert values(pipeline) == {**rows, "late": None}
    pipeline.read(key_change("renamed", "again", 4, UNAVAILABLE))
    assert values(pipeline) == {"again": "kept", OTHER: "a", "late": None}
    assert holders(pipeline.home) == []


def values(pipeline):
    return {row["id"]: row["v"] for row in pipeline.table("sink", pipeline.spec.sink_table.columns)}


def key_change(old, new, n, v):
    """A row that Debezium sends: created, or with another key than before."""
    before = None if old is None else {"id": old, "n": n - 1, "v": v}
    op = "c" if old is None else "u"
    return json.dumps(
        {
            "before": before,
            "after": {"id": new, "n": n, "v": v},
            "op": op,
            "ts_ms": 0,
            "source": {"lsn": n, "connector": "postgresql"},
        }
    )


@BY_SEQUENCE
def test_rewind_to_before_an_erasure_is_refused(pipeline):
    act(pipeline, "apply")
    with pytest.raises(HistoryGoneError):
        pipeline.act("rewind", to_step=1)


@BY_SEQUENCE
@pytest.mark.parametrize(
    ("keys", "line", "got"),
    [
        ([json.dumps({"id": "a"}), "{"], "Line 2", "JSON"),
        ([json.dumps({"id": "a"}), "", json.dumps({"n": 1})], "Line 3", "no column 'id'"),
        ([json.dumps({"id": 1})], "Line 1", "does not fit"),
        (["n,v", "1,2"], "Line 1", "lacks columns of the key"),
        (["id,v", "a"], "Line 2", "1 values"),
    ],
)
def test_key_that_does_not_parse_is_refused_with_its_line(pipeline, keys, line, got):
    before = content(pipeline.home)
    with pytest.raises(ConfigError, match=line) as refused:
        act(pipeline, "apply", keys)
    assert got in str(refused.value)
    assert content(pipeline.home) == before


def test_keys_of_a_csv_file_have_the_types_of_the_key(tmp_path, copies):
    pipeline = LocalPipeline(tmp_path)
    pipeline.read(up(1, 1), up(2, 1))
    report = act(pipeline, "apply", ["name,id", "x,1"])
    assert report["keys"] == 1
    assert pipeline.rows() == {2: 1}


@BY_SEQUENCE
def test_neither_or_both_of_keys_and_where_are_refused(pipeline):
    with pytest.raises(ConfigError, match="not clear"):
        act(pipeline, "plan", where="id = 'a'")


@BY_SEQUENCE
def test_erasure_beside_a_backfill_is_refused(pipeline):
    pipeline.do("backfill")
    with pytest.raises(BackfillError):
        act(pipeline, "apply")


@BY_SEQUENCE
def test_copy_of_another_table_stays(pipeline, tmp_path):
    other = LocalPipeline(tmp_path / "other", schema=SCHEMA)
    other.read(up(CANARY, 1, "+I", v="theirs"))
    act(pipeline, "apply")
    assert len(holders(copies_of(pipeline), "theirs")) > 0


def test_purge_that_was_interrupted_is_done_by_the_next_run(pipeline):
    with killed_before("a log is cut"):
        act(pipeline, "apply")
    assert pipeline.plan.erasures.unfinished()
    assert holders(pipeline.home)
    assert not pipeline.is_idle()
    pipeline.run()
    assert pipeline.plan.erasures.unfinished() is None
    assert holders(pipeline.home) == []


def test_mark_of_a_later_erasure_outlives_the_end_of_an_earlier_one(tmp_path):
    home = str(tmp_path)
    ErasureLedger(home).mark_unfinished()
    first = ErasureLedger(home).unfinished()
    ErasureLedger(home).mark_unfinished()
    ErasureLedger(home).mark_finished(first)
    assert ErasureLedger(home).unfinished() not in (None, first)
    ErasureLedger(home).mark_finished(ErasureLedger(home).unfinished())
    assert ErasureLedger(home).unfinished() is None


def views_there_are(inputs):
    """Have an erasure find these views, by the tables that each reads; None: unknown."""
    swap_inside("ebbtide.runtime.Plan.views_beside", lambda _: inputs)


@BY_SEQUENCE
def test_view_that_cannot_be_computed_now_is_named_with_the_reason(pipeline):
    view = MaterializedView(name="v", query="SELECT id FROM t", schema="id STRING", key=["id"], inputs=["t"])
    views_there_are({"v": frozenset({"t"}), "older": None})
    ErasureLedger(f"{pipeline.root}/v").mark_unfinished()
    ctx = Context(pipeline.spec, pipeline.root, SPARK, clock=lambda: LATER, beside=lambda: [view])
    [of_view, of_older] = views.computed_again(ctx, pipeline.plan)
    assert of_view.fate.startswith("deleted by the next run of the view: it was not computed now: ")
    assert of_older.fate.startswith("unknown")
    assert ErasureLedger(f"{pipeline.root}/v").unfinished()


@BY_SEQUENCE
def test_views_are_computed_after_those_that_they_read(pipeline):
    inputs = {"a": frozenset({"c", "t"}), "b": frozenset({"other"}), "c": frozenset({"t"}), "d": frozenset({"a"})}
    views_there_are(inputs)
    assert views.views_above(pipeline.plan) == ["c", "a", "d"]


PLACES = {
    "the ledger is written": ("ebbtide.ledger._erasures:ErasureLedger", "write", "after", 1),
    "it is marked as unfinished": ("ebbtide.ledger._erasures:ErasureLedger", "mark_unfinished", "after", 1),
    "the state is not committed": ("ebbtide.tables._state.table:StateTable", "perform", "before", 1),
    "the state is committed": ("ebbtide.tables._state.table:StateTable", "perform", "after", 1),
    "the sink's files are rewritten": (
        "ebbtide.delta:FileWithout from ebbtide.tables._step_commits",
        "actions_of",
        "after",
        2,
    ),
    "the sink is committed": ("ebbtide.tables._delta_sink", "erase_stage", "after", 1),
    "the step is published": ("ebbtide.runtime._step", "publish", "after", 2),
    "an old file is deleted": ("ebbtide.storage:Location from ebbtide.runtime._purging", "delete", "after", 1),
    "the state's log gets its last commit": ("ebbtide.delta:Writer from ebbtide.delta._cutting", "commit", "after", 1),
    "the checkpoint is written": ("ebbtide.delta._cutting", "write_checkpoint", "after", 1),
    "a commit is deleted": ("ebbtide.storage:Location from ebbtide.delta._cutting", "delete", "after", 1),
    "the state's log is cut": ("ebbtide.delta:Writer", "cut_log", "after", 1),
    "the sink's log is cut": ("ebbtide.delta:Writer", "cut_log", "after", 2),
    "the copies are dropped": ("ebbtide.runtime._purging", "drop_copies", "after", 1),
    "it is not marked as finished": ("ebbtide.ledger._erasures:ErasureLedger", "mark_finished", "before", 1),
}
BEFORE_THE_STEP = {"the ledger is written", "it is marked as unfinished", "the state is not committed"}
ERASED = [3, 5]


@pytest.fixture(scope="module")
def ready(killer, tmp_path_factory):
    """A root of each kind, after a run, and its source."""
    made = {}

    def find(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            source = write_source(folder / "in", kind)
            order(killer, kind, source, folder / "root", "run")
            made[kind] = source, folder / "root"
        return made[kind]

    return find


def order(killer, kind, source, root, *jobs, **how):
    spec = spec_of(kind, source).model_dump_json(by_alias=True)
    works = [[kind, job, spec, START + HOUR, {"keys": ERASED, "width": 2}] for job in jobs]
    done = killer.order(root=str(root), works=works, **how)
    if not how:
        assert done["code"] == 0, done["said"]
    return done


def killings():
    """Yield every kind at every place. A run goes on only with what was decided."""
    for kind in KINDS:
        for place in PLACES:
            yield kind, place, "erase"
            if place not in BEFORE_THE_STEP:
                yield kind, place, "run"


@pytest.fixture
def begun(ready, tmp_path):
    """Makes a pipeline that is to erase keys: its source, its root, and one that stays as it is."""

    def make(kind):
        source, before = ready(kind)
        return source, shutil.copytree(before, tmp_path / "root"), before

    return make


def test_erasure_killed_at_one_place_after_the_other_is_finished_by_the_last_run(killer, begun):
    """Each process goes on where the one before it was killed, and gets a little further."""
    kind = "arrival"
    source, root, before = begun(kind)
    asked = "erase"
    for place, (owner, name, when, _) in PLACES.items():
        died = order(killer, kind, source, root, asked, place=(owner, name, when, 1))
        assert died["code"] == -signal.SIGKILL, (place, died["said"])
        if place == "the state is committed":  # from here on a run goes on with it
            asked = "run"
    refuse_unfinished(killer, kind, source, root, before, asked)


AGAIN = [("sequence", place, "erase") for place in ("the state is committed", "a commit is deleted")]
"""An erasure that is asked for again, and is one more: in the quick tests after two of the kills."""


@pytest.mark.parametrize(("kind", "place", "again"), graded(killings(), AGAIN))
def test_erasure_killed_at_any_place_is_finished(killer, begun, kind, place, again):
    source, root, before = begun(kind)
    died = order(killer, kind, source, root, "erase", place=PLACES[place])
    assert died["code"] == -signal.SIGKILL, died["said"]
    refuse_unfinished(killer, kind, source, root, before, again)


def refuse_unfinished(killer, kind, source, root, before, again):
    """Have an erasure finished that was killed; refuse other rows than before, and erased ones."""
    order(killer, kind, source, root, again, "run")
    plan = Plan.under(str(root), spec_of(kind, source))
    assert plan.erasures.unfinished() is None
    assert rows_by_key(plan, before) == rows_by_key(plan, root)
    for table in ("state", "sink", "changelog"):
        for path in Path(plan.at(table)).rglob("*.parquet"):
            if "checkpoint" not in path.name:
                assert not set(pq.read_table(path, columns=["id"])["id"].to_pylist()) & set(ERASED), path
    assert list(Path(plan.at("erasures")).iterdir())


def rows_by_key(plan, root):
    """The rows of the sink under a root, without the erased keys."""
    from ebbtide.delta import Snapshot

    snapshot = Snapshot.read(str(Path(root, plan.spec.name, "sink")))
    rows = snapshot.rows(plan.sink.schema).to_pylist()
    return sorted((row for row in rows if row["id"] not in ERASED), key=repr)
