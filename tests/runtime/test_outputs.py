"""Further outputs show the rows of the sink after every step, regardless of what the step does and where a run ends."""

import shutil

import pytest
from frame.installing import install
from frame.interrupting import killed_before
from local.local_pipeline import up
from local.local_run import START
from pydantic import ValidationError

from ebbtide.errors import ConfigError, TableMismatchError
from ebbtide.inspect import status
from ebbtide.model import Apply, Rewrite

COPY = {"copy": {"type": "documents"}}
LATER = START + 10 * 3_600_000
WITH_COLUMN = "id BIGINT NOT NULL, n INT, w STRING DEFAULT 'x'"


@pytest.fixture
def copied(make, tmp_path, shell):
    """A pipeline with a further output of the sample sink, which is installed."""
    install(tmp_path / "site", shell, "documents")

    def made(**fields):
        return make(**{"outputs": COPY, **fields})

    return made


def rows_of(pipeline, name="copy"):
    return {row["id"]: row["n"] for row in pipeline.plan.outputs[name].rows()}


def assert_shows_the_sink(pipeline, name="copy"):
    assert rows_of(pipeline, name) == pipeline.rows()
    assert pipeline.rows(), "both are empty"


def with_outputs(pipeline, **outputs):
    pipeline.fields["outputs"] = outputs
    pipeline.spec = pipeline.with_fields()


@pytest.mark.demand("sql-sinks")
def test_output_shows_the_rows_of_each_step(copied):
    pipeline = copied()
    pipeline.read(up(1, 1), up(2, 2), up(3, 3))
    pipeline.read(up(1, 4), up(2, 5, kind="-D"))
    assert rows_of(pipeline) == {1: 4, 3: 3}
    assert_shows_the_sink(pipeline)


def test_output_has_no_reserved_column(copied):
    pipeline = copied()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    pipeline.do("rewind")
    assert [list(row) for row in pipeline.plan.outputs["copy"].rows()] == [["id", "n"]]


@pytest.mark.parametrize("place", ["a sink of documents performs", "tables are folded", "the sink performs"])
def test_step_that_was_killed_is_finished_by_the_next_run(copied, place):
    pipeline = copied()
    pipeline.read(up(1, 1), up(2, 2))
    with killed_before(place):
        pipeline.read(up(1, 3), up(2, 4, kind="-D"))
    pipeline.run()
    assert rows_of(pipeline) == {1: 3}
    assert_shows_the_sink(pipeline)


def test_step_that_the_output_has_is_not_performed_again(copied):
    pipeline = copied()
    pipeline.read(up(1, 1))
    with killed_before("tables are folded"):
        pipeline.read(up(2, 2))
    assert rows_of(pipeline) == {1: 1, 2: 2}
    with killed_before("a sink of documents performs"):
        pipeline.read(up(3, 3))  # it is performed for this step alone
    assert rows_of(pipeline) == {1: 1, 2: 2}


@pytest.mark.parametrize("work", ["rewind", "refresh", "repair", "replay", "merge", "cleanup", "compaction"])
def test_work_that_changes_the_sink_changes_the_output(copied, work):
    pipeline = copied(ttl={"ttl": "1h"})
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(1, 3), "{", up(4, 4))
    if work == "repair":
        pipeline.do("spoil")
    mended = {"mended": [up(5, 5)]} if work == "replay" else {}
    pipeline.do(work, **mended)
    assert_shows_the_sink(pipeline)
    pipeline.read(up(9, 9))
    assert_shows_the_sink(pipeline)


def test_rewind_that_was_killed_is_finished_by_the_next_run(copied):
    pipeline = copied()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    with killed_before("a sink of documents performs"):
        pipeline.do("rewind")
    assert rows_of(pipeline) == {1: 1, 2: 2}
    pipeline.run()
    assert rows_of(pipeline) == {1: 1, 2: 2} == pipeline.rows()
    assert pipeline.last.step == 4


def test_backfill_reaches_it_with_the_swap_alone(copied):
    pipeline = copied()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    pipeline.act("backfill.start")
    documents = len(list((pipeline.home / "outputs" / "copy").iterdir()))
    assert documents == 3, "one a step, and the empty one before"
    pipeline.act("backfill.swap")
    assert_shows_the_sink(pipeline)
    assert pipeline.last.decision.tables["copy"] == Rewrite()


def test_migration_gives_it_the_new_columns(copied):
    pipeline = copied()
    pipeline.read(up(1, 1))
    before, pipeline.spec = pipeline.spec, pipeline.with_fields(schema=WITH_COLUMN)
    pipeline.do("migrate")
    assert pipeline.plan.outputs["copy"].rows() == [{"id": 1, "n": 1, "w": "x"}]
    pipeline.spec = before
    pipeline.act("migrate", "undo")
    assert pipeline.plan.outputs["copy"].rows() == [{"id": 1, "n": 1}]


def test_truncate_leaves_it_the_rows_above(copied):
    pipeline = copied(
        format={"type": "debezium"}, order={"sequence": ["_lsn"]}, schema="id BIGINT NOT NULL, n BIGINT", key=["id"]
    )
    source = '"source": {"lsn": %d, "table": "t", "ts_ms": 1}'
    pipeline.read('{"op": "c", "after": {"id": 1, "n": 1}, "before": null, %s}' % (source % 1))
    pipeline.read(
        '{"op": "t", "after": null, "before": null, %s}' % (source % 2),
        '{"op": "c", "after": {"id": 2, "n": 2}, "before": null, %s}' % (source % 3),
    )
    assert rows_of(pipeline) == {2: 2}
    assert_shows_the_sink(pipeline)


def test_erased_keys_are_in_none_of_its_documents(copied):
    pipeline = copied()
    pipeline.read(up(1, 11_000_011), up(2, 22))
    pipeline.read(up(1, 11_100_111), up(3, 33))
    pipeline.do("erase", keys=[1])
    assert rows_of(pipeline) == {2: 22, 3: 33} == pipeline.rows()
    stored = "".join(path.read_text() for path in (pipeline.home / "outputs" / "copy").iterdir())
    assert "11000011" not in stored
    assert "11100111" not in stored


def test_output_that_is_added_gets_all_rows_before_new_ones(copied):
    pipeline = copied(outputs={})
    pipeline.read(up(1, 1), up(2, 2))
    with_outputs(pipeline, **COPY)
    assert not pipeline.is_idle()
    pipeline.run()
    assert_shows_the_sink(pipeline)
    assert pipeline.last.cause.what == "outputs"
    assert pipeline.is_idle()
    pipeline.read(up(1, 3))
    assert_shows_the_sink(pipeline)


def test_output_that_is_added_while_an_operation_comes_first_gets_all_rows(copied):
    pipeline = copied(outputs={})
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(3, 3))
    with_outputs(pipeline, **COPY)
    pipeline.do("rewind")
    pipeline.run()
    assert_shows_the_sink(pipeline)


def test_filling_that_was_killed_is_finished_by_the_next_run(copied):
    pipeline = copied(outputs={})
    pipeline.read(up(1, 1), up(2, 2))
    with_outputs(pipeline, **COPY)
    with killed_before("a sink of documents performs"):
        pipeline.run()
    assert rows_of(pipeline) == {}
    pipeline.run()
    assert_shows_the_sink(pipeline)
    assert pipeline.last.step == 2


@pytest.mark.parametrize("comes_first", ["a run", "a replay"])
def test_output_that_was_left_out_for_a_while_lacks_nothing(copied, comes_first):
    pipeline = copied()
    pipeline.read(up(1, 1), "{")
    with_outputs(pipeline)
    pipeline.read(up(2, 2))
    assert rows_of_folder(pipeline) == 1
    with_outputs(pipeline, **COPY)
    if comes_first == "a replay":
        pipeline.do("replay", mended=[up(5, 5)])
    pipeline.read(up(3, 3))
    assert rows_of(pipeline)[2] == 2
    assert_shows_the_sink(pipeline)


def rows_of_folder(pipeline):
    """Return how many steps wrote the output: its documents without the empty one."""
    return len(list((pipeline.home / "outputs" / "copy").iterdir())) - 1


def test_two_outputs_are_filled_alike(copied):
    pipeline = copied(outputs={**COPY, "other": {"type": "documents", "indent": 2}})
    pipeline.read(up(1, 1))
    with killed_before("a sink of documents performs"):
        pipeline.read(up(2, 2))
    pipeline.run()
    for name in ("copy", "other"):
        assert_shows_the_sink(pipeline, name)


def test_output_that_is_gone_or_put_back_is_refused_and_repaired(copied):
    pipeline = copied()
    pipeline.read(up(1, 1))
    folder = pipeline.home / "outputs" / "copy"
    shutil.copytree(folder, pipeline.home / "older")
    pipeline.read(up(2, 2))
    pipeline.read(up(3, 3))
    shutil.rmtree(folder)
    with pytest.raises(TableMismatchError, match="outputs/copy' is gone"):
        pipeline.run()
    report = pipeline.act("repair", "plan")
    assert "copy: gone" in str(report.lines)
    pipeline.act("repair")
    assert_shows_the_sink(pipeline)
    shutil.rmtree(folder)
    shutil.move(pipeline.home / "older", folder)
    with pytest.raises(TableMismatchError, match="is another one than the pipeline's"):
        pipeline.run()
    pipeline.act("repair")
    pipeline.read(up(4, 4))
    assert_shows_the_sink(pipeline)


def test_status_names_it(copied):
    pipeline = copied()
    pipeline.read(up(1, 1))
    found = status(pipeline.spec, pipeline.root)
    assert found.as_dict()["outputs"] == {"copy": {"type": "documents", "step": 1}}
    assert "output copy of type documents, changed last by step 1" in found.text()
    assert found.misfit is None


@pytest.mark.parametrize("missing", [Apply, Rewrite])
def test_output_that_cannot_do_what_steps_ask_is_refused_before_the_first(copied, limited, missing):
    pipeline = copied()
    limited(pipeline.plan.outputs["copy"], *{Apply, Rewrite} - {missing})
    pipeline.put(up(1, 1))
    with pytest.raises(ConfigError, match="The output 'copy' of 't' cannot perform the action"):
        pipeline.run()
    assert pipeline.plan.state.last() is None


def test_output_that_cannot_erase_keeps_keys_from_being_erased(copied, limited):
    pipeline = copied()
    pipeline.read(up(1, 1))
    limited(pipeline.plan.outputs["copy"], Apply, Rewrite)
    before = pipeline.versions()
    with pytest.raises(ConfigError, match="cannot perform the action 'erase'"):
        pipeline.do("erase", keys=[1])
    assert pipeline.versions() == before


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"outputs": {"sink": {"type": "documents"}}}, "outputs: got sink; allowed: names other than"),
        ({"outputs": {"A b": {"type": "documents"}}}, "outputs: got A b; allowed: names of lower-case letters"),
        (
            {"outputs": {"copy": {"type": "nowhere"}}},
            "got nowhere; allowed: .*an entry point of the group 'ebbtide.sinks'",
        ),
        ({"outputs": {"copy": {"type": "documents", "indent": "x"}}}, "indent: Input should be a valid integer"),
        ({"sink": {"type": "documents"}}, "outputs: got copy; allowed: none, unless the sink is of type delta"),
    ],
)
def test_unusable_outputs_are_refused_by_what_is_wrong(copied, fields, why):
    pipeline = copied()
    with pytest.raises(ValidationError, match=why):
        pipeline.with_fields(**fields)
