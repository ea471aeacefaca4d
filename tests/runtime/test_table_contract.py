"""Tables keep one contract: state, sink, changelog, quarantine and a sink of another package."""

import pytest
from frame.installing import install
from local.local_pipeline import up
from local.local_run import SPARK

from ebbtide.errors import ConfigError
from ebbtide.ledger import Head
from ebbtide.model import Alter, Append, Apply, Clear, Replace, Restore, RestoreAndApply, Rewrite, SchemaChange
from ebbtide.runtime._publish import PlannedWork

EVERY = {"order": "arrival", "materializer": {"emission": "every"}}
ACTIONS = {
    "apply": Apply(),
    "append": Append(),
    "restore": Restore(0, changes_rows=True),
    "restore_and_apply": RestoreAndApply(0, 1, 1),
    "replace": Replace("i", 0),
    "alter": Alter(SchemaChange(), "id BIGINT"),
    "clear": Clear(),
    "rewrite": Rewrite(),
}
CAN = {
    "sink": ACTIONS.keys(),
    "changelog": {"append", "restore", "clear", "replace", "rewrite", "alter"},
    "quarantine": {"append", "restore", "clear", "replace", "rewrite"},
    "documents": {"apply", "clear", "restore", "rewrite"},
}


@pytest.fixture(params=["state", *CAN])
def kept(request, make, tmp_path, shell):
    """Return the name of a table, its pipeline, and the table itself."""
    name = request.param
    if name == "documents":
        install(tmp_path / "site", shell, "documents")
        pipeline = make(sink={"type": "documents"})
        return name, pipeline, pipeline.plan.sink
    pipeline = make(**EVERY)
    return name, pipeline, pipeline.plan.state if name == "state" else pipeline.plan.beside(name)


def test_table_knows_its_id_and_the_last_step_that_wrote_it(kept):
    name, pipeline, table = kept
    assert table.facts() is None
    pipeline.read(up(1, 1, "+I"), "{")
    first = table.facts()
    pipeline.read(up(2, 2, "+I"), "[")
    assert (first.step, table.facts().step) == (1, 2)
    assert first.id == table.facts().id
    if name != "state":
        of_other = "sink" if name == "documents" else name
        assert pipeline.last.state.tables.get(of_other, first).id == first.id


@pytest.mark.parametrize("kept", CAN, indirect=True)  # the state performs the step's decision alone, and is not asked
def test_table_says_what_it_performs(kept):
    name, pipeline, table = kept
    pipeline.read(up(1, 1, "+I"), "{")
    assert {do for do, action in ACTIONS.items() if table.can(action)} == set(CAN[name])


@pytest.mark.parametrize("name", ["changelog", "quarantine"])
def test_what_a_table_cannot_is_refused_by_name(make, name):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"), "{")
    version, facts = pipeline.plan.state.last()
    head = Head(version, facts)
    work = PlannedWork(SPARK, pipeline.plan, name, head.version, facts)
    with pytest.raises(ConfigError, match="the action 'apply'"):
        pipeline.plan.beside(name).perform(Apply(), work)


@pytest.mark.parametrize("name", ["sink", "changelog", "quarantine"])
def test_action_is_performed_once(make, name):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"), "{")
    version, facts = pipeline.plan.state.last()
    before = pipeline.versions()
    work = PlannedWork(SPARK, pipeline.plan, name, version, facts)
    pipeline.plan.beside(name).perform(facts.decision.tables[name], work)
    assert pipeline.versions() == before
