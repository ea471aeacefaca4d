"""A source and a format that another package brings along, into a sink of a third: run, replayed, refreshed, rewound, read again, refused."""

import json

import pytest
from frame.installing import install
from frame.interrupting import killed_before
from local.local_pipeline import LATER
from local.local_run import SPARK
from local.support import plain
from pydantic import ValidationError

from ebbtide.errors import BackfillError, ConfigError, SourceLostError, SourceReadError
from ebbtide.inspect import Lag
from ebbtide.operations._backfill import rereading
from ebbtide.runtime import Plan
from ebbtide.spec import SourceStart
from ebbtide.tables import Selection

BY_SEQUENCE = {"order": {"sequence": ["n"]}}


def put(id_, n):
    return json.dumps({"put": {"id": id_, "n": n}})


def drop(id_, n):
    return json.dumps({"drop": {"id": id_, "n": n}})


class Logged:
    """A pipeline from the sample source, in the sample format, into the sample sink."""

    def __init__(self, folder, pipeline):
        self.folder = folder
        folder.mkdir()
        (folder / "id").write_text("first")
        self.pipeline = pipeline
        self.respec()

    def respec(self, *, source=None, **fields):
        given = {"type": "logbook", "folder": str(self.folder), "max_records_per_step": 2, **(source or {})}
        whole = {**BY_SEQUENCE, "format": {"type": "puts"}, "sink": {"type": "documents"}, **fields}
        self.pipeline.spec = plain("id BIGINT NOT NULL, n BIGINT", source=given, **whole)
        return self.pipeline.spec

    def log(self, *lines, partition=0):
        with (self.folder / f"{partition}.log").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def read(self, *lines, **where):
        self.log(*lines, **where)
        return self.pipeline.run()

    def shown(self):
        return {row["id"]: row["n"] for row in self.pipeline.plan.sink.rows()}


@pytest.fixture
def logged(make, tmp_path, shell):
    install(tmp_path / "logbook", shell, "logbook")
    install(tmp_path / "documents", shell, "documents")
    return Logged(tmp_path / "logs", make())


def test_runs_go_on_where_the_last_one_ended_and_a_new_partition_from_its_first_record(logged):
    first = logged.read(put(1, 1), put(2, 2), put(3, 3))
    assert [step.records for step in first.steps if step.kind == "batch"] == [2, 1], "max_records_per_step is 2"
    logged.log(put(4, 4), partition=1)
    logged.read(drop(1, 5))
    assert logged.shown() == {2: 2, 3: 3, 4: 4}
    assert logged.pipeline.last.source.position["to"] == {"0": 4, "1": 1}
    assert logged.pipeline.is_idle()


def test_changes_apply_as_they_arrive(logged):
    logged.respec(order="arrival")
    logged.read(put(1, 2), put(1, 1))
    assert logged.shown() == {1: 1}


def test_bad_records_are_kept_with_their_places_and_replayed(logged):
    logged.read(put(1, 1), '{"set": {}}', "{")
    found = logged.pipeline.plan.quarantine.records(Selection()).to_pylist()
    assert [(record["reason"], record["origin"]["position"]) for record in found] == [("not_a_put", 1), ("bad_json", 2)]
    lines = [
        json.dumps({"topic": "logbook", "partition": 0, "offset": n, "key": None, "value": put(n, n)}) for n in (1, 2)
    ]
    logged.pipeline.do("replay", mended=lines)
    assert logged.shown() == {1: 1, 2: 2}


@pytest.mark.parametrize("place", ["a step is published", "tables are folded"])
def test_run_that_died_is_finished_by_the_next_without_a_record_twice(logged, place):
    logged.respec(order="arrival")
    logged.read(put(1, 1))
    with killed_before(place):
        logged.read(put(2, 2), drop(1, 1))
    logged.pipeline.run()
    assert logged.shown() == {2: 2}
    assert logged.pipeline.last.source.position["to"] == {"0": 3}


def test_refresh_reads_all_again_and_a_rewind_goes_back(logged):
    logged.read(put(1, 1))
    logged.read(put(2, 2))
    logged.pipeline.do("rewind")
    assert logged.shown() == {1: 1}
    logged.pipeline.run()
    assert logged.shown() == {1: 1, 2: 2}
    logged.pipeline.do("refresh")
    assert logged.shown() == {1: 1, 2: 2}


def test_lag_is_what_no_step_has_read(logged):
    logged.read(put(1, 1))
    logged.log(put(2, 2), put(3, 3))
    assert Lag.of(logged.pipeline.spec, logged.pipeline.root, LATER).text() == "waiting: 2 records (partition 0: 2)"


def test_sample_has_records_with_their_places(logged):
    logged.log(put(1, 1), put(2, 2))
    line, *_ = Plan("", logged.pipeline.spec).positioned_source.sample(1)
    assert json.loads(line) == {"topic": "logbook", "partition": 0, "offset": 0, "key": None, "value": put(1, 1)}


def test_records_are_read_again_into_its_sink(logged):
    logged.read(put(1, 1), put(2, 2), put(3, 3))
    pipeline = logged.pipeline
    pipeline.act("pause", clock_ms=LATER, reason="repair of rows")
    report = rereading.reread(
        SPARK, pipeline.spec, pipeline.root, SourceStart(offsets={0: 1}), "again", clock=lambda: LATER
    )
    assert (report["records"], report["waiting"]) == (2, 0)
    assert logged.shown() == {1: 1, 2: 2, 3: 3}


def test_first_step_begins_where_the_spec_says(logged):
    logged.log(put(1, 1), put(2, 2))
    logged.respec(source={"start": {"offsets": {0: 1}}})
    logged.pipeline.run()
    assert logged.shown() == {2: 2}


def test_start_by_time_is_refused_by_a_source_that_finds_none(logged):
    logged.log(put(1, 1))
    logged.respec(source={"start": {"timestamp": "2026-01-01T00:00:00Z"}})
    with pytest.raises(ConfigError, match=r"Records of logbook '.*' are not found by their time.*Allowed: earliest"):
        logged.pipeline.run()


def test_source_that_is_gone_or_another_one_or_shorter_is_refused(logged):
    logged.read(put(1, 1), put(2, 2))
    log = logged.folder / "0.log"
    log.write_text(put(1, 1) + "\n")
    with pytest.raises(SourceLostError, match=r"ends before the records that were read.*0: 2 is next, it has up to 1"):
        logged.pipeline.run()
    (logged.folder / "id").write_text("second")
    with pytest.raises(
        SourceLostError, match=r"not the one that was read.*Got: logbook 'second'. Allowed: logbook 'first'"
    ):
        logged.pipeline.run()
    (logged.folder / "id").unlink()
    with pytest.raises(SourceReadError, match="There is no logbook"):
        logged.pipeline.run()


def test_loss_that_is_accepted_is_noted_and_read_on_from(logged):
    logged.read(put(1, 1), put(2, 2))
    (logged.folder / "id").write_text("second")
    (logged.folder / "0.log").write_text(put(3, 3) + "\n")
    logged.pipeline.do("run", accept_loss=True)
    assert logged.shown() == {1: 1, 2: 2, 3: 3}


def test_backfill_beside_is_refused_where_the_sink_cannot_be_swapped(logged):
    logged.read(put(1, 1))
    with pytest.raises((ConfigError, BackfillError), match="cannot perform the action 'replace'"):
        logged.pipeline.do("backfill")


def test_backfill_is_built_beside_reads_what_has_come_since_and_is_swapped_in(logged):
    logged.respec(sink={})
    logged.read(put(1, 1), put(2, 2))
    logged.pipeline.do("backfill")
    logged.log(put(3, 3))
    logged.pipeline.run()
    assert logged.pipeline.plan.backfill.state.last()[1].source.position["to"] == {"0": 2}
    logged.pipeline.do("swap")
    assert logged.pipeline.last.source.position["to"] == {"0": 3}, "a swap reads what has come since"
    assert logged.pipeline.rows() == {1: 1, 2: 2, 3: 3}


def test_spec_names_options_of_the_packages_and_comes_back_from_its_fields(logged):
    spec = logged.respec(format={"type": "puts", "put": "set"})
    again = type(spec)(**spec.model_dump(by_alias=True, exclude_unset=True))
    assert (again.source, again.format) == (spec.source, spec.format)
    plan = Plan.under("/x", again)
    assert plan.source.folder == str(logged.folder)
    assert plan.decoding.format.kinds == {"set": "+U", "drop": "-D"}
    assert spec.identity["format"] == {"type": "puts", "put": "set"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"source": {"type": "nowhere"}}, "got nowhere; .*entry point of the group 'ebbtide.sources' .*logbook"),
        ({"source": {"type": "documents"}}, "entry point of the group 'ebbtide.sources'"),
        ({"source": {"type": "logbook", "folder": 7}}, "source.folder: Input should be a valid string"),
        ({"format": {"type": "nowhere"}}, "entry point of the group 'ebbtide.formats'"),
        ({"format": {"type": "puts", "table": "t"}}, "format.table: Extra inputs are not permitted"),
        ({"source": {"table": "t"}}, "none with format puts"),
    ],
)
def test_unusable_part_is_refused_by_what_is_wrong(logged, fields, why):
    with pytest.raises(ValidationError, match=why):
        logged.respec(**fields)


def test_dagster_names_it_by_the_pipeline(logged):
    from ebbtide.dagster.metadata import source_key

    assert source_key(logged.pipeline.spec).path == ["source", "t"]
