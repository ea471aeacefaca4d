"""The order that `ebbtide new` proposes, and how it judges its own sample."""

import json
import random

import pytest
from click.testing import CliRunner
from local.support import change, envelope

from ebbtide import UpsertPipeline
from ebbtide.cli import main


@pytest.fixture
def project(tmp_path, shell):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "in").mkdir()
    shell.cd(tmp_path)
    return tmp_path


def proposed(project, lines, *options, key="id"):
    """Return the order that is proposed, the rows that the sample becomes, the exit code, and what is said."""
    (project / "in/1.jsonl").write_text("".join(f"{line}\n" for line in lines))
    result = CliRunner().invoke(main, ["new", "t", "--path", "in", "--key", key, *options, "--json"])
    report = json.loads(result.stdout)
    written = (project / "tests/pipelines/t/rows.jsonl").read_text().splitlines()
    spec = UpsertPipeline.load("pipelines/defs/t")
    return spec.order, [json.loads(row) for row in written], result.exit_code, report


def log_of_upserts(seed):
    """Return a log of inserts, updates and deletes by key, and the rows that it leaves."""
    chance = random.Random(seed)
    rows, log = {}, []
    for number in range(150):
        known = sorted(rows)
        if not known or chance.random() < 0.4:
            rows[number] = {"id": number, "n": number}
            log.append(change("+I", **rows[number]))
        elif chance.random() < 0.5:
            id_ = chance.choice(known)
            rows[id_] = {"id": id_, "n": -number}
            log.append(change("+U", **rows[id_]))
        else:
            id_ = chance.choice(known)
            stale = chance.choice([{}, {"n": None}, rows[id_]])
            del rows[id_]
            log.append(change("-D", **{"id": id_, **stale}))
    return log, [rows[id_] for id_ in sorted(rows)]


@pytest.mark.parametrize("seed", range(4))
def test_log_of_upserts_becomes_the_rows_that_it_leaves(project, seed):
    log, rows = log_of_upserts(seed)

    order, made, code, report = proposed(project, log)

    assert (order, code) == ("upsert", 0), report
    assert made == rows


def test_events_of_an_unknown_log_are_upserts(project):
    events = [
        envelope("c", None, after={"id": 1, "n": 1}),
        envelope("u", None, after={"id": 1, "n": 2}),
        envelope("c", None, after={"id": 2, "n": 1}),
        envelope("d", None, before={"id": 2, "n": None}),
    ]
    for event in events:
        del event["source"]["lsn"]

    order, made, code, _ = proposed(project, map(json.dumps, events))

    assert (order, made, code) == ("upsert", [{"id": 1, "n": 2}], 0)


def test_log_with_retractions_applies_by_arrival_and_names_the_fields_of_its_places(project):
    rows = [{"kind": "+I", "n": 1}, {"kind": "-U", "n": 1}, {"kind": "+U", "n": 2}]
    lines = [
        json.dumps({"subtask": 0, "seq": at, "kind": row["kind"], "row": {"id": 1, "n": row["n"]}})
        for at, row in enumerate(rows)
    ]

    order, made, code, report = proposed(project, lines)

    assert (order, made, code) == ("arrival", [{"id": 1, "n": 2}], 0)
    [redelivered] = [note for note in report["notes"] if "delivered again" in note]
    assert "format: {position: [subtask, seq]}" in redelivered
    assert "materializer: {upsert_key: [COLUMNS]}" in redelivered


def test_retraction_that_finds_no_row_fails_the_proposal(project):
    lines = [change("+I", id=1, n=1), change("-U", id=1, n=9), change("+U", id=1, n=2)]

    _, _, code, report = proposed(project, lines)

    assert code == 1
    assert "find no row with their content: 1." in report["faults"][0]


def test_addition_to_a_key_that_has_a_row_fails_the_proposal(project):
    lines = [change("+I", id=1, n=1), change("-U", id=1, n=1), change("+U", id=1, n=2), change("+U", id=1, n=3)]

    _, _, code, report = proposed(project, lines)

    assert code == 1
    [fault] = report["faults"]
    assert "without a retraction (-U) of that one: 1." in fault


def test_key_that_does_not_distinguish_the_rows_fails_the_proposal(project):
    lines = [change("+I", id=number, kind_of="order") for number in range(9)]

    _, made, code, report = proposed(project, lines, key="kind_of")

    assert (len(made), code) == (1, 1)
    assert "replace another row with the same kind_of: 8 of 9." in report["faults"][0]


def test_sequence_that_ties_fails_the_proposal(project):
    lines = [change("+I", id=1, n=1, at=5), change("+U", id=1, n=2, at=5)]

    _, _, code, report = proposed(project, lines, "--sequence", "at")

    assert code == 1
    assert "tie with another change of their key" in report["faults"][0]


@pytest.mark.parametrize("first", ["+I", "+U"])
def test_row_that_is_written_twice_is_no_fault(project, first):
    lines = [change(first, id=1, n=1), change("+I", id=1, n=1)]

    assert proposed(project, lines)[1:3] == ([{"id": 1, "n": 1}], 0)
