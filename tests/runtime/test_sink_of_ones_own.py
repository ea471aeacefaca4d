"""A sink that another package brings along runs as long as ours, and what it cannot do is refused before anything is committed."""

import shutil
from pathlib import Path

import pytest
from frame.installing import install
from frame.interrupting import killed_before
from local.local_pipeline import killed, up
from local.local_run import START
from pydantic import ValidationError

from ebbtide.checks import checks_of
from ebbtide.errors import ConfigError, TableMismatchError
from ebbtide.inspect import status
from ebbtide.model import Apply
from ebbtide.runtime import Plan

DOCUMENTS = {"type": "documents"}
LATER = START + 10 * 3_600_000


@pytest.fixture
def documents(make, tmp_path, shell):
    """A pipeline into the sample sink, which is installed."""
    install(tmp_path / "site", shell, "documents")

    def made(**fields):
        return make(sink=DOCUMENTS, **fields)

    return made


def shown(pipeline):
    return {row["id"]: row["n"] for row in pipeline.plan.sink.rows()}


def n_steps(pipeline):
    return pipeline.last.step


def test_second_run_goes_on_where_the_first_one_ended(documents):
    pipeline = documents()
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(1, 3), up(2, 4, kind="-D"))
    assert shown(pipeline) == {1: 3}
    assert pipeline.last.state.tables["sink"].step == 1


def test_run_that_finds_nothing_is_idle(documents):
    pipeline = documents()
    assert not pipeline.is_idle()
    pipeline.run()
    assert pipeline.is_idle(), "before the first step"
    pipeline.read(up(1, 1))
    assert pipeline.is_idle()
    pipeline.put(up(2, 2))
    assert not pipeline.is_idle()


def test_run_that_died_before_the_sink_had_its_step_is_finished_by_the_next(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    with killed_before("a sink of documents performs"):
        pipeline.read(up(2, 2))
    assert not pipeline.is_idle()
    pipeline.run()
    assert shown(pipeline) == {1: 1, 2: 2}


def test_run_that_died_behind_the_sink_performs_no_step_twice(documents, monkeypatch):
    pipeline = documents()
    sink = type(pipeline.plan.sink)
    pipeline.read(up(1, 1))
    with killed_before("tables are folded"):
        pipeline.read(up(2, 2))
    assert shown(pipeline) == {1: 1, 2: 2}
    monkeypatch.setattr(sink, "perform", killed)
    pipeline.run()


def test_jobs_run_over_it(documents):
    pipeline = documents(ttl={"ttl": "1h"})
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2), clock_ms=LATER)
    for work in ("cleanup", "compaction"):
        pipeline.do(work, clock_ms=LATER)
    pipeline.read(up(3, 3), clock_ms=LATER)
    assert shown(pipeline)[3] == 3


def test_replayed_records_reach_it(documents):
    pipeline = documents()
    pipeline.read(up(1, 1), "{")
    pipeline.do("replay", mended=[up(2, 2)])
    assert shown(pipeline) == {1: 1, 2: 2}


def test_refresh_empties_it_and_fills_it_again(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    pipeline.do("refresh")
    assert shown(pipeline) == {1: 1, 2: 2}
    pipeline.read(up(3, 3))
    assert shown(pipeline) == {1: 1, 2: 2, 3: 3}


def test_rewind_shows_what_an_earlier_step_had(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    pipeline.do("rewind")
    assert shown(pipeline) == {1: 1}
    pipeline.run()
    assert shown(pipeline) == {1: 1, 2: 2}


def erase(pipeline, *ids):
    return pipeline.do("erase", keys=list(ids))


def test_erased_keys_are_in_no_document_any_more(documents):
    pipeline = documents()
    erased = [11_000_011, 22_000_022, 11_100_111, 22_200_222]  # so long that no id has them by chance
    pipeline.read(up(1, erased[0]), up(2, erased[1]), up(3, 33))
    pipeline.read(up(1, erased[2]), up(2, erased[3]))
    for key, left in ((1, {2: erased[3], 3: 33}), (2, {3: 33})):
        report = erase(pipeline, key)
        assert shown(pipeline) == left
        places = {place["place"]: place["fate"] for place in report["places"]}
        assert places["sink of type documents"].startswith("gone now")
    stored = "".join(path.read_text() for path in Path(pipeline.plan.sink.path).iterdir())
    assert not [n for n in erased if str(n) in stored]
    pipeline.read(up(1, 11_110_111), up(4, 44))
    assert shown(pipeline) == {3: 33, 4: 44}


def test_erasure_that_died_before_its_document_was_written_is_finished_by_the_next_run(documents):
    pipeline = documents()
    pipeline.read(up(1, 11), up(2, 22))
    with killed_before("a sink of documents performs"):
        erase(pipeline, 1)
    assert shown(pipeline) == {1: 11, 2: 22}
    pipeline.run()
    assert shown(pipeline) == {2: 22}


def test_erasure_in_a_sink_that_cannot_erase_is_refused(documents, limited):
    pipeline = documents()
    limited(pipeline.plan.sink, Apply)
    pipeline.read(up(1, 11))
    with pytest.raises(ConfigError, match="cannot erase rows"):
        erase(pipeline, 1)
    assert shown(pipeline) == {1: 11}


def test_status_names_it_and_its_last_step(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    found = status(pipeline.spec, pipeline.root)
    assert (found.misfit, found.sink.type, found.sink.step, found.sink.version) == (None, "documents", 1, None)
    assert "sink of type documents, changed last by step 1; state version" in found.text()
    assert found.foreign_writes == ()


def test_foreign_write_to_the_state_is_found_beside_it(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    pipeline.do("change")
    assert [write.table for write in status(pipeline.spec, pipeline.root).foreign_writes] == ["state"]


def test_sink_that_is_gone_put_back_or_another_one_is_refused(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    sink = pipeline.home / "sink"
    shutil.copytree(sink, pipeline.home / "older")
    pipeline.read(up(2, 2))
    pipeline.read(up(3, 3))
    shutil.move(sink, pipeline.home / "newer")
    with pytest.raises(TableMismatchError, match="is gone"):
        pipeline.run()
    shutil.copytree(pipeline.home / "older", sink)
    with pytest.raises(TableMismatchError, match="is older than the state"):
        pipeline.run()
    for document in sink.iterdir():
        document.write_text(document.read_text().replace('"id": "', '"id": "x'))
    with pytest.raises(TableMismatchError, match="is another one"):
        pipeline.run()


@pytest.mark.parametrize(("work", "action"), [("refresh", "clear"), ("rewind", "restore")])
def test_action_that_it_does_not_know_is_refused_before_anything_is_committed(documents, limited, work, action):
    pipeline = documents()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    limited(pipeline.plan.sink, Apply)
    before = pipeline.versions()
    refused = f"cannot perform the action '{action}', which the {work} asks for"
    with pytest.raises(ConfigError, match=refused):
        pipeline.do(work)
    if work == "rewind":
        with pytest.raises(ConfigError, match=refused):
            pipeline.act("rewind", "plan", to_step=1)
    assert pipeline.versions() == before
    assert shown(pipeline) == {1: 1, 2: 2}
    pipeline.read(up(3, 3))
    assert shown(pipeline) == {1: 1, 2: 2, 3: 3}


def test_other_columns_are_refused_with_the_way_out(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    pipeline.spec = pipeline.with_fields(sink=DOCUMENTS, schema="id BIGINT NOT NULL, n BIGINT, w STRING DEFAULT 'x'")
    before = pipeline.versions()
    for action in ("plan", "apply"):
        with pytest.raises(ConfigError, match=r"action 'alter', which the migration asks for.*run 'ebbtide refresh'"):
            pipeline.act("migrate", action)
    assert pipeline.versions() == before
    pipeline.do("refresh")
    assert pipeline.plan.sink.rows() == [{"id": 1, "n": 1, "w": "x"}]


def test_migration_of_the_state_alone_is_made(documents):
    pipeline = documents()
    pipeline.read(up(1, 1))
    pipeline.spec = pipeline.with_fields(sink=DOCUMENTS, ttl={"ttl": "1h"})
    pipeline.do("migrate")
    pipeline.read(up(2, 2))
    assert shown(pipeline) == {1: 1, 2: 2}


def test_columns_that_a_run_would_take_in_are_refused(documents):
    pipeline = documents(schema_evolution_mode="evolve")
    pipeline.read(up(1, 1))
    steps = n_steps(pipeline)
    with pytest.raises(ConfigError, match="cannot perform the action 'alter'"):
        pipeline.read(up(2, 2, more=3))
    assert n_steps(pipeline) == steps


def test_truncate_is_refused(documents):
    pipeline = documents(
        format={"type": "debezium"}, order={"sequence": ["_lsn"]}, schema="id BIGINT NOT NULL, n BIGINT", key=["id"]
    )
    source = '"source": {"lsn": %d, "table": "t", "ts_ms": 1}'
    pipeline.read('{"op": "c", "after": {"id": 1, "n": 1}, "before": null, %s}' % (source % 1))
    steps = n_steps(pipeline)
    with pytest.raises(ConfigError, match="cannot delete the rows that a TRUNCATE leaves dead"):
        pipeline.read('{"op": "t", "after": null, "before": null, %s}' % (source % 2))
    assert n_steps(pipeline) == steps
    assert shown(pipeline) == {1: 1}


@pytest.mark.parametrize(
    ("name", "action", "asked"),
    [
        ("repair", "plan", {}),
        ("repair", "apply", {}),
        ("acknowledge", "apply", {"reason": "meant"}),
        ("adopt", "plan", {}),
        ("adopt", "apply", {}),
        ("backfill.start", "apply", {}),
    ],
)
def test_what_compares_it_with_the_state_is_refused(documents, name, action, asked):
    pipeline = documents()
    pipeline.read(up(1, 1))
    before = pipeline.versions()
    with pytest.raises(ConfigError, match="The sink of 't' cannot perform the action"):
        pipeline.act(name, action, **asked)
    assert pipeline.versions() == before


def test_pipeline_that_reads_its_own_sink_is_refused(documents):
    pipeline = documents(ttl={"ttl": "1h", "expire_live": True})
    pipeline.put(up(1, 1))
    with pytest.raises(
        ConfigError, match=r"'t' reads its own sink.*Got: sink.type: documents with ttl.expire_live: true"
    ):
        pipeline.run()


def test_checks_that_read_a_delta_table_are_not_made(documents):
    assert {check.name for check in checks_of(documents().spec)} == {
        *("next_run", "expiry", "quarantine_rate", "schema_drift", "foreign_writes", "source_loss")
    }


def test_spec_names_it_with_options_of_its_own(documents):
    spec = documents().with_fields(sink={"type": "documents", "indent": 2})
    again = type(spec)(**spec.model_dump(by_alias=True, exclude_unset=True))
    assert again.sink == spec.sink
    assert Plan.under("/x", again).sink.options.indent == 2


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        (
            {"type": "nowhere"},
            r"got nowhere; allowed: 'delta', or an entry point of the group 'ebbtide.sinks' \(documents\)",
        ),
        ({"type": "documents", "indent": "secret"}, "sink.indent: Input should be a valid integer"),
        ({"type": "documents", "depth": 1}, "sink.depth: Extra inputs are not permitted"),
    ],
)
def test_unusable_sink_is_refused_by_what_is_wrong(documents, sink, why):
    pipeline = documents()
    with pytest.raises(ValidationError, match=why) as refused:
        pipeline.with_fields(sink=sink)
    assert "secret" not in str(refused.value)
