"""An erasure judged by the bytes that are left: of planted values every kind is found before, and none after."""

import secrets
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from frame.interrupting import killed_before
from inputs.byte_scan import scan, scan_files
from inputs.erasing import KINDS, Plants
from local.local_pipeline import LATER, LocalPipeline
from local.local_run import HOUR, SPARK
from operating import act
from s3_server import BUCKET, S3Server, environment
from servers.kafka_support import TopicPipeline

import ebbtide
from ebbtide import MaterializedView
from ebbtide.checks import Newest
from ebbtide.dagster import StorageResource
from ebbtide.dagster import checks as dagster_checks
from ebbtide.delta import Log, Snapshot
from ebbtide.delta import _copy_files as copy_files
from ebbtide.errors import ConfigError
from ebbtide.operations import Context
from ebbtide.runtime import Plan

FEW = 4
MANY = 200
PARTS = {"value", "nested", "list", "binary", "bad", "staged", "log"}


@pytest.fixture
def copies(tmp_path, shell):
    shell.export(EBBTIDE_CACHE=tmp_path / "copies")
    return tmp_path / "copies"


def found_before(plants, *places, parts=None):
    """Look for each kind of plant; return the folders that have some."""
    hits = scan(places, plants.canaries)
    found = {hit.canary for hit in hits}
    by_part = {
        part: set(canaries) & found
        for person in plants.erased
        for part, canaries in person.planted.items()
        if parts is None or part in parts
    }
    assert all(by_part.values()), by_part
    assert {person.id for person in plants.erased} <= found
    return hits


def refused_again(plants, run):
    """Have all records come once more; return how many were refused."""
    for lines in plants.files:
        plants.pipeline.put(*lines)
    return sum(step.metrics.get("erased", 0) for step in run().steps)


@pytest.mark.parametrize(
    ("kind", "n_erased"),
    [
        ("arrival", FEW),  # by sequence: in a store, below
        *(pytest.param(kind, FEW, marks=pytest.mark.grid) for kind in ("sequence", "headers", "rewrite", "function")),
        *(pytest.param(kind, MANY, marks=pytest.mark.grid) for kind in KINDS),
    ],
)
def test_no_byte_of_erased_keys_is_left(tmp_path, copies, kind, n_erased):
    plants = Plants(tmp_path, kind, n_erased, 6 if n_erased == FEW else 20)
    plants.play()
    places = (plants.pipeline.root, copies)
    before = found_before(plants, *places)
    folders = {Path(hit.path).parts[1] if hit.path.startswith(plants.pipeline.spec.name) else "" for hit in before}
    assert {"state", "sink", "quarantine", "staged"} <= folders
    shown = [row for row in plants.shown() if row["id"] not in {person.id for person in plants.erased}]
    report = plants.act("apply")
    kept = [canary for person in plants.kept for canary in person.canaries]
    left = {hit.canary for hit in scan(places, [*plants.canaries, *kept])}
    assert left
    assert left <= set(kept), "those who stay are there, and they alone"
    if kind != "function":
        assert plants.shown() == plants.want()
    assert plants.shown() == shown
    assert report["keys"] == n_erased
    n_refused = refused_again(plants, plants.pipeline.run)
    assert n_refused == sum(person.id in line for lines in plants.files for line in lines for person in plants.erased)
    if kind != "function":  # it computes again what comes again
        assert plants.shown() == shown
    assert scan(places, plants.canaries) == []


def test_name_of_a_source_file_stays_and_the_report_says_so(plants):
    name = secrets.token_hex(16)
    (plants.pipeline.source / f"9-{name}.jsonl").write_text("".join(line + "\n" for line in plants.files[0]))
    plants.pipeline.run()
    report = plants.act("apply")
    stays = {Path(hit.path).parts[1] for hit in scan([plants.pipeline.root], [name])}
    assert stays
    assert any("names of source files" in place["fate"] for place in report["places"])


def test_copy_in_another_format_of_an_older_process_is_dropped(plants, played):
    copies = played.copies
    [first, *_] = sorted(copies.glob("*.arrow"))
    shutil.copy(first, copies / "1234567890abcdef-2.arrow")
    assert scan([copies], plants.canaries)
    plants.act("apply")
    assert scan([copies], plants.canaries) == []


@pytest.mark.parametrize("does", ["run", "check", "worker"])
def test_copies_in_another_folder_are_dropped_by_the_next_process_there(plants, played, tmp_path, shell, does):
    other = shutil.copytree(played.copies, tmp_path / "other host")
    plants.act("apply")
    assert scan([played.copies], plants.canaries) == []
    found_before(plants, other, parts={"value", "nested", "list", "binary"})
    left = other / "1234567890abcdef-2.arrow"  # of an earlier release, which names no table
    shutil.copy(min(other.glob("*.arrow")), left)
    shell.export(EBBTIDE_CACHE=other)
    plan = plants.pipeline.plan
    if does == "run":
        plants.pipeline.run()
    elif does == "check":
        assert Newest.between_steps(plan) is not None
    else:
        replace(plan.state.stored(plan.state.snapshot()), generation=plants.pipeline.last.state.erased).copies(["id"])
    state = copy_files.prefix_of(plan.state.path)
    hits = [hit for hit in scan([other], plants.canaries) if does != "worker" or hit.path.startswith(state)]
    assert hits == []
    assert not left.exists()
    assert plants.shown() == plants.want()


def test_copies_of_the_folder_that_an_erasure_reached_are_kept(tmp_path, copies):
    plants = Plants(tmp_path, "sequence", 2, 8)
    plants.play()
    plants.act("apply")
    state = plants.pipeline.plan.state
    stored = state.stored(state.snapshot())
    for file in stored.files:
        stored.copies(["id"]).index_of(file)
    kept = {path.name for path in copies.glob("*.arrow")}
    assert kept
    Newest.between_steps(plants.pipeline.plan)
    assert {path.name for path in copies.glob("*.arrow")} == kept


def leave_site(plants, docs, pipeline):
    """Leave the Data Docs of a check; return its canary."""
    site = docs / pipeline / "keys" / "000007"
    site.mkdir(parents=True)
    canary = plants.erased[0].plant("docs")
    (site / "index.html").write_text(f"<td>{canary}</td>")
    return canary


@pytest.mark.parametrize("by", ["erasure", "check"])
def test_data_docs_are_deleted_where_their_folder_is_known_and_elsewhere_by_the_next_check(plants, tmp_path, by):
    docs = tmp_path / "docs"
    name = plants.pipeline.spec.name
    of_it = leave_site(plants, docs, name)
    of_another = leave_site(plants, docs, "another")
    known = {"data_docs": docs} if by == "erasure" else {}
    assert scan([docs], [of_it])
    plants.act("plan", **known)
    assert scan([docs], [of_it])
    report = plants.act("apply", **known)
    [place] = [place for place in report["places"] if place["place"] == "Data Docs"]
    assert place["files"] == (by == "erasure")
    if by == "check":
        assert scan([docs], [of_it])
        dagster_checks._newest(plants.pipeline.spec, StorageResource(root=plants.pipeline.root, data_docs=str(docs)))
    assert scan([docs], [of_it]) == []
    assert scan([docs], [of_another])


def test_data_docs_of_after_an_erasure_stay(plants, tmp_path):
    plants.act("apply")
    storage = StorageResource(root=plants.pipeline.root, data_docs=str(tmp_path / "docs"))
    dagster_checks._newest(plants.pipeline.spec, storage)
    canary = leave_site(plants, tmp_path / "docs", plants.pipeline.spec.name)
    dagster_checks._newest(plants.pipeline.spec, storage)
    assert scan([tmp_path / "docs"], [canary])


CALLS = ("link", "unlink", "fsync")
"""Every commit is a link, every removal an unlink; each file that must last is synced."""


@pytest.mark.parametrize("kind", ["sequence", pytest.param("arrival", marks=pytest.mark.grid)])
@pytest.mark.parametrize("call", ["link", *(pytest.param(call, marks=pytest.mark.grid) for call in CALLS[1:])])
def test_erasure_that_is_killed_at_any_call_is_finished_by_the_same_command(
    killer, tmp_path, request, kind, call, copies
):
    plants = Plants(tmp_path, kind, 3, 3)
    plants.play()
    spec = plants.pipeline.spec.model_dump_json(by_alias=True)
    keys = [person.id for person in plants.erased]
    works = [[kind, "erase", spec, LATER + 4 * HOUR, {"keys": keys, "width": 100}]]
    is_whole = "grid" in request.config.option.markexpr.replace("not grid", "")
    root = Path(plants.pipeline.root)
    before = shutil.copytree(root, tmp_path / "before")
    cache = killer.folder / "cache"
    which = 1
    n_killed = 0
    while True:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(before, root)
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(copies, cache)
        died = killer.order(root=str(root), works=works, place=["os", call, "before", which])
        if died["code"] == 0:
            break
        assert died["code"] == -signal.SIGKILL, died["said"]
        n_killed += 1
        done = killer.order(root=str(root), works=works)
        assert done["code"] == 0, done["said"]
        (root / "keys.jsonl").unlink()
        assert scan([root, cache], plants.canaries) == [], (call, which)
        which += 1 if is_whole else 15
    assert n_killed >= (5 if is_whole else 1)


@pytest.mark.group("object_store")
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.grid)])
def test_no_object_of_a_store_holds_erased_keys(tmp_path, copies, shell, is_whole):
    with S3Server() as server:
        shell.export(**environment(server.port))
        plants = Plants(tmp_path, "sequence", 2, 2, make=InStore)
        if is_whole:
            plants.play()
            code, said = plants.command()
            assert (code, f"list-object-versions --bucket {BUCKET}" in said) == (0, True)
        else:
            first = next(plants.lines())
            plants.pipeline.put(*first)
            plants.pipeline.run()
        assert scan_files(objects(server.port), plants.canaries)
        report = plants.act("apply")
        assert plants.shown() == plants.want()
        kept = {person.id for person in plants.kept}
        left = {hit.canary for hit in scan_files(objects(server.port), [*plants.canaries, *kept])}
        assert left == kept
        assert scan([copies], plants.canaries) == []
        assert any("list-object-versions" in place["fate"] for place in report["places"])


class InStore(LocalPipeline):
    """A pipeline whose tables are in the store, and whose source is on disk."""

    def __init__(self, folder, **fields):
        super().__init__(folder, **fields)
        self.root = f"s3://{BUCKET}/{secrets.token_hex(4)}"


def objects(port):
    """Yield name and content of all objects, also of earlier versions that the store keeps."""
    own = environment(port)
    client = boto3.client(
        "s3",
        endpoint_url=own["AWS_ENDPOINT_URL"],
        aws_access_key_id=own["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=own["AWS_SECRET_ACCESS_KEY"],
        region_name=own["AWS_REGION"],
    )
    for page in client.get_paginator("list_object_versions").paginate(Bucket=BUCKET):
        for version in page.get("Versions", ()):
            found = client.get_object(Bucket=BUCKET, Key=version["Key"])
            yield version["Key"], found["Body"].read()


def test_topic_s_records_are_not_ours_and_the_tables_are_clean(tmp_path, copies, broker):
    topic = f"erased-{secrets.token_hex(4)}"
    broker.create(topic, 3)
    plants = Plants(
        tmp_path, "sequence", 4, 4, make=lambda folder, **fields: TopicPipeline(folder, broker, topic, **fields)
    )
    plants.play()
    found_before(plants, plants.pipeline.root, copies)
    report = plants.act("apply")
    assert scan([plants.pipeline.root, copies], plants.canaries) == []
    assert plants.shown() == plants.want()
    [source] = [place for place in report["places"] if place["place"] == "source"]
    assert source["fate"].startswith("not ours")
    n_refused = refused_again(plants, plants.pipeline.run)
    assert n_refused == sum(person.id in line for lines in plants.files for line in lines for person in plants.erased)
    assert scan([plants.pipeline.root, copies], plants.canaries) == []


@pytest.mark.spark
def test_what_spark_wrote_is_clean_too(spark, tmp_path, copies):
    plants = Plants(tmp_path, "sequence", 4, 4)
    plants.play()
    sink = f"delta.`{plants.pipeline.plan.sink.path}`"
    spark.sql(f"ALTER TABLE {sink} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'classic')")
    spark.sql(f"OPTIMIZE {sink}")
    assert list(Path(plants.pipeline.plan.sink.path, "_delta_log").glob("*.crc"))
    found_before(plants, plants.pipeline.root, copies)
    plants.act("apply", spark)
    assert scan([plants.pipeline.root, copies], plants.canaries) == []
    assert plants.shown() == plants.want()


def test_table_that_is_partitioned_by_its_key_is_clean_too(tmp_path, copies):
    plants = Plants(tmp_path, "sequence", 3, 3)
    plan = plants.pipeline.plan
    columns = plan.spec.sink_table.columns
    old = [{"id": person.id, "v": person.plant("value"), "n": 0} for person in plants.people]
    write_deltalake(plan.sink.path, pa.Table.from_pylist(old, columns), partition_by=["id"])
    act("adopt", "apply", Context(plan.spec, plants.pipeline.root, SPARK, clock=lambda: LATER))
    plants.play()
    found_before(plants, plants.pipeline.root, copies)
    plants.act("apply")
    assert scan([plants.pipeline.root, copies], plants.canaries) == []
    assert plants.shown() == plants.want()
    assert all("id" in file.partition for file in Snapshot.read(plan.sink.path).files.values())
    refused_again(plants, plants.pipeline.run)
    assert plants.shown() == plants.want()


@pytest.mark.spark
def test_condition_selects_by_the_values_of_rows_and_is_refused_where_it_is_none(spark, plants):
    [person] = [each for each in plants.kept if each.id == plants.want()[0]["id"]]
    value = plants.rows[person.id]["nested"]["a"]
    assert plants.act("plan", spark, where=f"nested.a IN ('{value}', 'no one')")["keys"] == 1
    with pytest.raises(ConfigError, match="is a condition neither on"):
        plants.act("plan", spark, where="no_such_column = 1")


@pytest.mark.spark
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.grid)])
def test_views_that_read_the_sink_are_computed_again_without_a_byte_of_erased_keys(spark, tmp_path, copies, is_whole):
    plants = Plants(tmp_path, "sequence", 4, 4)
    name = plants.pipeline.spec.name
    columns = "who STRING NOT NULL, v STRING, n BIGINT"
    people = view_of("people", f"SELECT id AS who, v, n FROM `{name}`", columns, [name])
    counted = view_of("counted", "SELECT who, max(v) AS v, count(*) AS n FROM people GROUP BY who", columns, ["people"])
    views = [people, counted] if is_whole else [people]

    def compute():
        for view in views:
            ebbtide.run(spark, view, plants.pipeline.root, clock=lambda: LATER)

    def run(**how):
        plants.pipeline.do("run", **how)
        if len(plants.files) in ((1, 3) if is_whole else (2,)):
            compute()

    plants.play(run=run)
    values = [canary for person in plants.erased for canary in (person.id, *person.planted["value"])]
    tables = {view.name: Path(plants.pipeline.root, view.name) for view in views}
    assert all(scan([table], values) for table in tables.values())
    if is_whole:
        unknown = plants.act("apply", spark)
        assert {place["place"]: place["fate"][:16] for place in unknown["places"] if "view" in place["place"]} == {
            "view people": "gone by the next",
            "view counted": "gone by the next",
        }
        with killed_before("a view is purged"):
            ebbtide.run(spark, people, plants.pipeline.root, clock=lambda: LATER)
    report = plants.act("apply", spark, beside=lambda: views[::-1])
    fates = {place["place"]: place["fate"] for place in report["places"]}
    assert all(fates[f"view {view.name}"].startswith("gone now") for view in views)
    assert scan([plants.pipeline.root, copies], plants.canaries) == []
    shown = [row["id"] for row in plants.shown()]
    assert shown == [row["id"] for row in plants.want()]
    for view in views:
        assert sorted(row["who"] for row in rows_of(plants, view)) == shown
        assert scan([tables[view.name]], shown)
    if is_whole:
        versions = [Log(f"{table}/sink").versions()[-1] for table in tables.values()]
        compute()
        assert [Log(f"{table}/sink").versions()[-1] for table in tables.values()] == versions, "nothing is left to do"


def view_of(name, query, schema, inputs):
    return MaterializedView(name=name, query=query, schema=schema, key=["who"], inputs=inputs)


def rows_of(plants, view):
    snapshot = Snapshot.read(Plan.under(plants.pipeline.root, view).at("sink"))
    return snapshot.rows(view.sink_table.columns).to_pylist()
