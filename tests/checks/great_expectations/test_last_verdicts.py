"""The verdicts that are stored for the status and its metrics."""

import json

from local.local_pipeline import up
from local.metrics_support import command

from ebbtide.ledger import LastVerdict


def test_command_check_stores_its_verdicts_without_values_of_rows(make, tmp_path):
    pipeline = make(checks={"max_quarantine_rate": 0.5})
    pipeline.read("bad-secret", "worse", up(1, 1))
    judged = command(pipeline, tmp_path, "check", "--only", "quarantine_rate", "--only", "source_loss")
    assert judged.exit_code == 1, judged.output
    stored = LastVerdict.of_checks(pipeline.plan.root)
    assert {each.check: each.outcome for each in stored} == {"quarantine_rate": "failed", "source_loss": "passed"}
    text = (pipeline.home / "checks" / "quarantine_rate.json").read_text()
    assert json.loads(text).keys() == {"ebbtide", "check", "outcome", "broken", "at_ms"}
    printed = json.loads(command(pipeline, tmp_path, "status", "--json").stdout)
    assert [(each["check"], each["outcome"]) for each in printed["checks"]] == [
        ("quarantine_rate", "failed"),
        ("source_loss", "passed"),
    ]


def test_verdict_of_a_check_that_the_spec_no_longer_has_is_forgotten(make, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1))
    red = LastVerdict(check="state_size", outcome="failed", broken=1, at_ms=1)
    red.note(pipeline.plan.root, ["state_size"])
    command(pipeline, tmp_path, "check", "--only", "source_loss")
    assert [each.check for each in LastVerdict.of_checks(pipeline.plan.root)] == ["source_loss"]


def test_check_of_a_user_who_may_not_write_is_judged_and_warned_of(make, tmp_path, caplog, monkeypatch):
    pipeline = make()
    pipeline.read(up(1, 1))

    def refuse(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr("ebbtide.storage.Location.replace_bytes", refuse)
    judged = command(pipeline, tmp_path, "check", "--only", "source_loss")
    assert (judged.exit_code, judged.stdout) == (0, "t: source_loss passed\n")
    assert "The verdict of 'source_loss' on 't' was not stored: read-only" in caplog.messages
