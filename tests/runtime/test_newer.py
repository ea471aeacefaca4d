"""A document that a newer release has stored, or a damaged one, is refused by name by each command, and nothing is written; without Spark."""

import json
from functools import partial
from pathlib import Path

import pytest
from frame.exit_codes import REFUSED
from frame.stored_names import ASKED, CHECKSUM
from frame.thinned import thinned
from local.local_pipeline import LATER, up

from ebbtide.cli.errors import exit_code
from ebbtide.delta import Log
from ebbtide.errors import DamagedFileError, StoredFormatError
from ebbtide.inspect import Lag, status
from ebbtide.model import StoredDocument
from ebbtide.sources import Span

EVERY = {"order": "arrival", "materializer": {"emission": "every"}}
NEXT = "A newer Ebbtide wrote it: use that release or newer. Nothing was changed."
NEWER = {
    "format": (
        lambda facts: {**facts, StoredDocument.FORMAT_KEY: StoredDocument.FORMAT + 1},
        f"Got: format {StoredDocument.FORMAT + 1}.",
    ),
    "field": (lambda facts: {**facts, "of_tomorrow": 1}, "Got: field 'of_tomorrow'."),
}
NEWER_FACTS = NEWER | {
    "action": (
        lambda facts: {**facts, "decision": {"tables": {"sink": {"do": "merge"}}}},
        "Got: decision.tables.sink.do 'merge'.",
    ),
    "field within": (
        lambda facts: {**facts, "state": {**facts["state"], "tables": {"sink": {"id": "a", "step": 1, "size": 3}}}},
        "Got: field 'state.tables.sink.size'.",
    ),
    "field of an action": (
        lambda facts: {**facts, "decision": {"tables": {"sink": {"do": "apply", "later": 1}}}},
        "Got: field 'decision.tables.sink.apply.later'.",
    ),
}
DAMAGED = {
    "no field": lambda facts: {name: value for name, value in facts.items() if name != "incarnation"},
    "another type": lambda facts: {**facts, "epoch": "many"},
    "no format": lambda facts: {**facts, StoredDocument.FORMAT_KEY: "two"},
}
COMMANDS = {
    "run": lambda pipeline: pipeline.run(),
    "run without Spark": lambda pipeline: pipeline.is_idle(),
    "refresh": lambda pipeline: pipeline.do("refresh"),
    "rewind": lambda pipeline: pipeline.do("rewind"),
    "cleanup": lambda pipeline: pipeline.do("cleanup"),
    "migrate": lambda pipeline: pipeline.do("migrate"),
    "repair": lambda pipeline: pipeline.act("repair", "plan"),
    "backfill": lambda pipeline: pipeline.do("backfill"),
    "lag": lambda pipeline: Lag.of(pipeline.spec, pipeline.root, LATER),
    "status": lambda pipeline: status(pipeline.spec, pipeline.root).refuse_unread(),
    "pause": lambda pipeline: pipeline.act("pause", clock_ms=LATER, reason="why"),
}
OF_ALL_TABLES = set(COMMANDS) - {"pause", "status", "backfill"}
"""What looks at the tables beside the state."""
OF_LEDGER = set(COMMANDS) - {"backfill"}
"""What looks at the ledger: a backfill has one of its own, until it is swapped in."""


@pytest.fixture
def pipeline(make):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"), "{")
    return pipeline


def edit_facts(table, change):
    """Change what the newest commit with facts says, as another release writes it."""
    version, facts = next(Log(table).own_commits())
    location = Path(Log(table).commit_file(version))
    actions = Log(table).commit(version)
    info = actions.info()
    info["userMetadata"] = json.dumps(change(facts))
    del info[CHECKSUM]
    location.write_text("".join(json.dumps(action) + "\n" for action in actions))


def edit_kept_facts(table, change):
    """The same of what the properties of the state keep, where the log's own facts were cleaned up."""
    for version in Log(table).versions():
        actions = Log(table).commit(version)
        info = actions.info()
        info.pop("userMetadata", None)
        info.pop(CHECKSUM, None)
        for action in actions:
            domain = action.get("domainMetadata")
            if domain:
                domain["configuration"] = json.dumps(change(json.loads(domain["configuration"])))
        Path(Log(table).commit_file(version)).write_text("".join(json.dumps(action) + "\n" for action in actions))


def edit_file(location, change):
    location.write_text(json.dumps(change(json.loads(location.read_text()))))


def content(pipeline):
    """All files of a pipeline but those of the ledger, with their bytes."""
    notes = {"ledger", "runs"}  # who came, and that it was refused
    files = (file for file in pipeline.home.rglob("*") if file.is_file() and notes.isdisjoint(file.parts))
    return {file: file.read_bytes() for file in files}


def refuse_all(pipeline, commands, error, said):
    """Each command is refused, says so, and changes nothing."""
    before = content(pipeline)
    for name in commands:
        with pytest.raises(error) as raised:
            COMMANDS[name](pipeline)
        assert said in str(raised.value), name
        assert exit_code(raised.value) == REFUSED
        assert content(pipeline) == before, name


def refuse_newer(pipeline, commands, said):
    refuse_all(pipeline, commands, StoredFormatError, said)
    with pytest.raises(StoredFormatError) as raised:
        COMMANDS["run"](pipeline)
    assert str(raised.value).endswith(NEXT)
    assert pipeline.root in str(raised.value)


@pytest.mark.parametrize(("change", "said"), NEWER_FACTS.values(), ids=NEWER_FACTS)
def test_step_of_a_newer_release_is_refused(pipeline, change, said):
    edit_facts(pipeline.plan.at("state"), change)
    refuse_newer(pipeline, COMMANDS, said)


BESIDE = [(table, *newer) for table in ("sink", "changelog", "quarantine") for newer in NEWER_FACTS.values()]


# Its twin for each change is the test above.
@pytest.mark.parametrize(("table", "change", "said"), thinned(BESIDE, 4))
def test_commit_of_a_newer_release_to_a_table_beside_the_state_is_refused(pipeline, table, change, said):
    edit_facts(pipeline.plan.at(table), change)
    refuse_newer(pipeline, OF_ALL_TABLES, said)


@pytest.mark.parametrize(("change", "said"), NEWER.values(), ids=NEWER)
def test_turn_of_a_newer_release_is_refused(pipeline, change, said):
    edit_facts(pipeline.plan.at("ledger"), change)
    turns = Log(pipeline.plan.at("ledger")).versions()
    refuse_newer(pipeline, OF_LEDGER, said)
    assert Log(pipeline.plan.at("ledger")).versions() == turns


def test_pause_of_a_newer_release_is_refused(pipeline):
    pipeline.act("pause", clock_ms=LATER, reason="why")
    ledger = pipeline.plan.at("ledger")
    edit_facts(ledger, lambda turn: {**turn, "paused": {**turn["paused"], "until_ms": LATER}})
    refuse_newer(pipeline, OF_LEDGER, "Got: field 'paused.until_ms'.")


def test_newest_step_of_a_newer_release_is_refused_where_only_the_properties_have_it(pipeline):
    state = pipeline.plan.at("state")
    edit_kept_facts(state, lambda kept: kept)
    assert pipeline.plan.state.last() is not None
    edit_kept_facts(state, lambda kept: {**kept, "facts": {**kept["facts"], "of_tomorrow": 1}})
    refuse_newer(pipeline, COMMANDS, "Got: field 'of_tomorrow'.")
    edit_kept_facts(state, lambda kept: {**kept, "of_tomorrow": 1})
    refuse_newer(pipeline, COMMANDS, "Got: field 'of_tomorrow'.")


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize(("table", "commands"), [("state", COMMANDS), ("ledger", OF_LEDGER)])
def test_damaged_facts_are_refused(pipeline, table, commands, change):
    edit_facts(pipeline.plan.at(table), change)
    refuse_all(pipeline, commands, DamagedFileError, "is damaged")


def test_backfill_of_a_newer_release_is_refused(pipeline):
    pipeline.do("backfill")
    asked = Path(pipeline.plan.backfills, ASKED)
    before = asked.read_text()
    commands = (partial(pipeline.do, "swap"), lambda: pipeline.act("backfill.status", "plan", LATER))
    changes = [(change, StoredFormatError, said) for change, said in NEWER.values()]
    changes.append((lambda _: {}, DamagedFileError, "is damaged"))
    changes.append((lambda _: [], DamagedFileError, "list, not an object"))
    for change, error, said in changes:
        asked.write_text(before)
        edit_file(asked, change)
        for command in commands:
            with pytest.raises(error) as raised:
                command()
            assert said in str(raised.value)


@pytest.mark.parametrize(("change", "said"), NEWER.values(), ids=NEWER)
@pytest.mark.parametrize(
    ("document", "read"),
    [
        ({"cluster_id": "c", "topic": "t", "topic_id": "i", "from": {"0": 1}, "to": {"0": 2}}, Span.from_json),
    ],
)
def test_offset_of_a_newer_release_is_refused(document, read, change, said):
    read(document)
    with pytest.raises(StoredFormatError) as raised:
        read(change(document))
    assert said in str(raised.value)
