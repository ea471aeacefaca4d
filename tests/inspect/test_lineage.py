"""Lineage events, judged by OpenLineage's own schemas, which are copies of its repository's (Apache-2.0)."""

import json
import threading
from pathlib import Path

import pytest
from frame.limits import set_limits
from frame.loopback import posts_kept
from jsonschema import Draft202012Validator, FormatChecker
from local.local_pipeline import LATER, up
from local.local_run import SPARK
from local.support import plain
from openlineage.client.serde import Serde
from referencing import Registry, Resource

import ebbtide
from ebbtide import MaterializedView
from ebbtide.extend import RunBegun
from ebbtide.inspect import _lineage as lineage
from ebbtide.inspect._lineage import Lineage
from ebbtide.inspect._lineage_datasets import Datasets, name_of_location
from ebbtide.runtime import Plan
from ebbtide.runtime._following import Following

SCHEMAS = Path(__file__).resolve().parents[1] / "data" / "openlineage"
TRANSFORM = {
    "key": ["id"],
    "schema": "id BIGINT NOT NULL, doubled BIGINT, shown BIGINT, constant STRING",
    "select": {"id": "id", "doubled": "n * 2 + id", "shown": "N", "constant": "'x'"},
    "where": "n > 0",
}


class Client:
    """Keeps events as they are sent."""

    def __init__(self):
        self.events = []

    def emit(self, event):
        self.events.append(json.loads(Serde.to_json(event)))

    @property
    def states(self):
        return [event["eventType"] for event in self.events]


@pytest.fixture
def client():
    return Client()


@pytest.fixture(scope="module")
def schemas():
    return {path.stem: json.loads(path.read_text()) for path in SCHEMAS.rglob("*.json")}


@pytest.fixture(scope="module")
def judge(schemas):
    """Refuses an event that is not as the schemas say: the event's own, and that of each of its facets."""
    registry = Registry().with_resources([(each["$id"], Resource.from_contents(each)) for each in schemas.values()])

    def validator(reference):
        return Draft202012Validator({"$ref": reference}, registry=registry, format_checker=FormatChecker())

    def facets_of(event):
        for holder in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
            for kind in ("facets", "inputFacets", "outputFacets"):
                yield from holder.get(kind, {}).items()

    def judge(event):
        validator(event["schemaURL"]).validate(event)
        names = []
        for name, facet in facets_of(event):
            validator(facet["_schemaURL"]).validate(facet)
            names.append(name)
        return names

    return judge


def transformed(make):
    return make(order={"sequence": ["n"]}, transform=TRANSFORM, description="Doubled orders.")


def test_events_fit_the_official_schemas_with_every_facet(make, client, judge):
    pipeline = make(description="Orders.")
    pipeline.put(up(1, 1), "bad")
    pipeline.run(observers=[Lineage(client)])
    ebbtide.refresh(SPARK, pipeline.spec, pipeline.root, observers=[Lineage(client)])
    judged = {name for event in client.events for name in judge(event)}
    assert client.states == ["START", "COMPLETE"] * 2
    assert judged == {
        *("processing_engine", "jobType", "documentation"),
        *("schema", "inputStatistics", "outputStatistics"),
        *("columnLineage", "storage", "version", "lifecycleStateChange"),
    }


def test_schemas_refuse_an_event_that_lacks_what_they_ask_for(make, client, judge):
    make().run(observers=[Lineage(client)])
    event = client.events[0]
    del event["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0]["field"]
    with pytest.raises(Exception, match="'field' is a required property"):
        judge(event)


def test_run_names_what_it_reads_and_writes_with_counts_and_version(make, client):
    pipeline = make()
    pipeline.put(up(1, 1), up(2, 2), "bad")
    pipeline.put(up(1, 3))
    pipeline.run(observers=[Lineage(client)])
    start, complete = client.events
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("ebbtide", "t")
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    [read], [written] = complete["inputs"], complete["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(pipeline.source))
    assert (written["namespace"], written["name"]) == ("file", f"{pipeline.root}/t/sink")
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3, "2 inserted, 1 updated"
    newest = max(int(path.stem) for path in (pipeline.home / "sink" / "_delta_log").glob("*.json"))
    assert written["facets"]["version"]["datasetVersion"] == str(newest)
    assert "version" not in start["outputs"][0]["facets"]


def test_columns_lead_back_to_those_of_the_source(make):
    spec = transformed(make).spec
    datasets = Datasets(Plan.under("/srv/root", spec))
    [sink] = datasets.outputs({"inserted": 0, "updated": 0}, has_ended=False)
    facet = sink.facets["columnLineage"]

    def short(fields):
        return [(each.field, *[(how.type, how.subtype) for how in each.transformations]) for each in fields]

    identity, made = ("DIRECT", "IDENTITY"), ("DIRECT", "TRANSFORMATION")
    assert {name: short(of.inputFields) for name, of in facet.fields.items()} == {
        "id": [("id", identity)],
        "doubled": [("id", made), ("n", made)],
        "shown": [("n", identity)],
    }
    window, where = ("INDIRECT", "WINDOW"), ("INDIRECT", "FILTER")
    assert short(facet.dataset) == [("id", window), ("n", window), ("n", where)]
    assert {(each.namespace, each.name) for each in facet.dataset} == {datasets.source}
    assert [(field.name, field.type) for field in sink.facets["schema"].fields] == [
        ("id", "BIGINT"),
        ("doubled", "BIGINT"),
        ("shown", "BIGINT"),
        ("constant", "STRING"),
    ]


def test_function_copies_its_key_and_makes_the_rest(make):
    spec = make(
        function="ebbtide.functions:LastSeen", schema="id BIGINT, last_seen TIMESTAMP", event_time="last_seen"
    ).spec
    [sink] = Datasets(Plan.under("/srv/root", spec)).outputs({"inserted": 0, "updated": 0}, has_ended=False)
    fields = sink.facets["columnLineage"].fields
    subtypes = {name: of.inputFields[0].transformations[0].subtype for name, of in fields.items()}
    assert subtypes == {"id": "IDENTITY", "last_seen": "TRANSFORMATION"}


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/srv/root/t/sink", ("file", "/srv/root/t/sink")),
        ("s3://lake/t/sink", ("s3://lake", "t/sink")),
        ("s3a://lake/t/sink", ("s3://lake", "t/sink")),
        ("gs://lake/t/sink", ("gs://lake", "t/sink")),
        (
            "abfs://box@account.dfs.core.windows.net/t/sink",
            ("abfss://box@account.dfs.core.windows.net", "t/sink"),
        ),
        ("s3://lake", ("s3://lake", "/")),
    ],
)
def test_locations_are_named_as_the_standard_says(location, name):
    assert name_of_location(location) == name


def test_topic_is_named_by_its_first_broker():
    spec = plain(source={"type": "kafka", "bootstrap_servers": "one:9092, two:9092", "topic": "orders"})
    [read] = Datasets(Plan.under("/srv/root", spec)).inputs({"records": 5})
    assert (read.namespace, read.name) == ("kafka://one:9092", "orders")


def test_view_names_its_inputs_and_its_query(client, judge, tmp_path):
    view = MaterializedView(
        name="totals",
        inputs=["orders", "people"],
        query=" SELECT id FROM orders ",
        schema="id BIGINT",
        key=["id"],
        refresh={"every": "5m"},
    )
    observer = Lineage(client)
    observer.begun(RunBegun(view, str(tmp_path), goes_on=False))
    observer._sender.close()
    [event] = client.events
    judge(event)
    assert [read["name"] for read in event["inputs"]] == [f"{tmp_path}/{name}/sink" for name in view.inputs]
    assert event["job"]["facets"]["sql"]["query"] == "SELECT id FROM orders"
    assert "columnLineage" not in event["outputs"][0]["facets"]


def test_changelog_is_a_second_output(make, client):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.run(observers=[Lineage(client)])
    names = [written["name"] for written in client.events[-1]["outputs"]]
    assert names == [f"{pipeline.root}/t/sink", f"{pipeline.root}/t/changelog"]


def test_columns_that_a_run_takes_in_are_in_its_last_event(make, client):
    pipeline = make(schema_evolution_mode="evolve")
    pipeline.put(up(1, 1, more="x"))
    pipeline.run(observers=[Lineage(client)])
    columns = [
        [field["name"] for field in event["outputs"][0]["facets"]["schema"]["fields"]] for event in client.events
    ]
    assert columns == [["id", "n"], ["id", "n", "more"]]


def test_followed_run_says_that_it_is_running_once_a_minute(make, client, judge):
    pipeline = make()
    for number in range(4):
        pipeline.put(up(number, number))
    stop, now_s = threading.Event(), [100.0]

    def on_progress(progress):
        now_s[0] += 25
        if progress.step == 4:
            stop.set()

    observer = Lineage(client, lambda: now_s[0])
    how = {"on_progress": on_progress, "stop": stop, "clock": lambda: LATER, "follow": Following(1, 10**9)}
    ebbtide.run(SPARK, pipeline.spec, pipeline.root, observers=[observer], **how)
    assert client.states == ["START", "RUNNING", "COMPLETE"]
    for event in client.events:
        judge(event)
        assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    counts = [event["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] for event in client.events]
    assert counts == [0, 4, 4]


@pytest.mark.parametrize(
    ("error", "state"), [(ValueError("token=hunter22"), "FAIL"), (KeyboardInterrupt("stop"), "ABORT")]
)
def test_failed_run_says_why_and_an_interrupted_one_is_aborted(make, client, judge, monkeypatch, error, state):
    def fail(*_, **__):
        raise error

    pipeline = make()
    pipeline.put(up(1, 1))
    monkeypatch.setattr("ebbtide.runtime._reading.SourceSteps._finish", fail)
    with pytest.raises(type(error)):
        pipeline.run(observers=[Lineage(client)])
    assert client.states == ["START", state]
    judge(client.events[-1])
    message = client.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith(type(error).__name__)
    assert "hunter22" not in message


def test_run_that_is_stopped_halfway_is_aborted(make, client):
    pipeline = make()
    for number in (1, 2):
        pipeline.put(up(number, number))
    stop = threading.Event()
    pipeline.run(observers=[Lineage(client)], stop=stop, on_progress=lambda _: stop.set())
    assert client.states == ["START", "ABORT"]


def test_variables_alone_send_events_by_http(make, shell, judge):
    pipeline = make()
    with posts_kept() as posted:
        shell.export(OPENLINEAGE_URL=f"http://127.0.0.1:{posted.port}", OPENLINEAGE_NAMESPACE="shop")
        pipeline.run()
    assert [path for path, _ in posted.bodies] == ["/api/v1/lineage"] * 2
    events = [json.loads(body) for _, body in posted.bodies]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    for event in events:
        judge(event)
        assert event["job"]["namespace"] == "shop"


def test_catalog_that_refuses_is_said_once_and_the_run_goes_on(make, shell, caplog):
    pipeline = make()
    pipeline.put(up(1, 1))
    with posts_kept() as posted:
        posted.status = 400
        shell.export(OPENLINEAGE_URL=f"http://127.0.0.1:{posted.port}")
        assert len(pipeline.run().steps) == 1
    said = [message for message in caplog.messages if message.startswith("Lineage events are lost: HTTPError: 400")]
    assert len(said) == 1


def test_run_does_not_wait_for_a_catalog_that_hangs(make, caplog):
    held = threading.Event()

    class Hanging(Client):
        def emit(self, event):
            held.wait()

    set_limits(lineage_sent_within_s=0.05)
    pipeline = make()
    pipeline.put(up(1, 1))
    try:
        assert len(pipeline.run(observers=[Lineage(Hanging())]).steps) == 1
    finally:
        held.set()
    assert caplog.messages == ["Lineage events are lost: not all was sent within 0.05 s"]


def test_events_that_no_one_takes_are_not_kept_without_end(monkeypatch, caplog, client):
    set_limits(most_waiting=1, lineage_sent_within_s=0.05)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    monkeypatch.setattr(threading.Thread, "join", lambda *_: None)
    sender = lineage._Sender(client)
    sender.send("first")
    sender.send("second")
    assert caplog.messages == ["Lineage events are lost: more events wait than are kept"]
