"""Records that are given up, by hand or by the spec's limits: counted, and never more than was meant."""

import pytest
from crashes.disk import DiskPipeline
from local.quarantine_support import by_seq, commits, context_of, held, raws, root_of
from operating import act

from ebbtide import status
from ebbtide.operations import maintain

HOUR = 3_600_000
SELECTED = {"reasons": ["bad_json"], "steps": [1, 2]}


@pytest.fixture
def disk(tmp_path):
    pipeline = DiskPipeline(by_seq(), tmp_path)
    for number, text in enumerate(["{", "[[", "]]]"]):
        pipeline.step([text, '{"kind": "?"}'], now_ms=number * HOUR)
    return pipeline


def trimmed(disk, clock_ms=2 * HOUR, **limits):
    """Clean up under limits, by default at the time of the last step."""
    report = maintain(disk, by_seq(quarantine=limits), root_of(disk), "cleanup", clock=lambda: clock_ms)
    disk.reload()
    return report


def test_plan_of_a_drop_has_no_effects(disk):
    before = commits(disk)
    plan = act("quarantine.drop", "plan", context_of(disk))
    assert (plan["dropped"], plan["reasons"], plan.step) == (6, {"bad_json": 3, "unknown_kind": 3}, None)
    n_bytes = sum(map(len, raws(disk)))
    assert plan.text() == (
        "t: 6 records to drop (3 bad_json, 3 unknown_kind)."
        f"\n  quarantine: 6 rows, 3 files, {n_bytes} bytes: dropped; files that hold no other record are gone by the first"
        " 'ebbtide vacuum' after 7 days"
        "\n  To do it: the same with '--apply --note TEXT'."
    )
    assert commits(disk) == before
    [place] = plan["places"]
    assert (place["place"], place["rows"], place["files"], place["bytes"]) == ("quarantine", 6, 3, n_bytes)
    some = act("quarantine.drop", "plan", context_of(disk), **SELECTED)
    assert [(place["rows"], place["files"], place["bytes"]) for place in some["places"]] == [(2, 2, 3)]


def test_nothing_is_dropped_where_there_is_no_quarantine(tmp_path):
    pipeline = DiskPipeline(by_seq(), tmp_path)
    report = act("quarantine.drop", "apply", context_of(pipeline), note="why")
    assert report.as_dict() == {"pipeline": "t", "dropped": 0, "reasons": {}, "step": None}


def test_drop_takes_what_was_selected_and_keeps_the_note(disk):
    report = act("quarantine.drop", "apply", context_of(disk), **SELECTED, note="cut off by a full disk")
    disk.reload()
    assert (report["dropped"], report["reasons"], report.step) == (2, {"bad_json": 2}, 4)
    assert sorted(raws(disk)) == [b"]]]", *[b'{"kind": "?"}'] * 3]
    facts = disk.head.facts
    assert (facts.cause.what, facts.decision.removed, facts.cause.why) == (
        "quarantine_drop",
        {"dropped": 2},
        "cut off by a full disk",
    )
    assert facts.now_ms == 2 * HOUR, "the clock stands still"
    again = act("quarantine.drop", "apply", context_of(disk), **SELECTED, note="again")
    assert (again["dropped"], again.step) == (0, None)
    assert again.text() == "t: no quarantined record fits."
    disk.step(["{{"])
    assert len(raws(disk)) == 5, "steps go on"


def test_cleanup_without_limits_drops_nothing(disk):
    assert trimmed(disk).step is None
    assert len(raws(disk)) == 6


def test_cleanup_drops_what_is_older_than_max_age_by_the_present_clock(disk):
    assert trimmed(disk, max_age="3600001ms")["quarantine_max_age"] == 2, "the second step's are an hour old"
    report = trimmed(disk, max_age="1h")
    assert (report.step, report["quarantine_max_age"], report["quarantine_max_bytes"]) == (5, 2, 0)
    assert "2 quarantined records dropped by max_age" in report.text()
    assert {row["step"] for row in held(disk)} == {3}
    assert disk.head.facts.decision.removed == {"max_age": 2}
    assert trimmed(disk, max_age="1h").step is None
    assert trimmed(disk, 3 * HOUR, max_age="1h")["quarantine_max_age"] == 2
    assert disk.head.facts.now_ms == 3 * HOUR


def test_cleanup_drops_the_oldest_beyond_max_bytes(disk):
    report = trimmed(disk, max_bytes=13 + 3 + 13 + 1)
    assert (report["quarantine_max_age"], report["quarantine_max_bytes"]) == (0, 3)
    assert "3 quarantined records dropped by max_bytes" in report.text()
    assert [row["raw"] for row in held(disk)] == [b'{"kind": "?"}', b"]]]", b'{"kind": "?"}']


def test_record_that_breaks_both_limits_counts_once(disk):
    report = trimmed(disk, max_age="1h", max_bytes=13)
    assert (report["quarantine_max_age"], report["quarantine_max_bytes"]) == (4, 1)
    assert raws(disk) == [b'{"kind": "?"}']
    assert disk.head.facts.decision.removed == {"max_age": 4, "max_bytes": 1}


def test_status_says_how_many_records_there_are_now(disk):
    shown = status(disk.spec, root_of(disk))
    assert (shown.read.quarantined, shown.read.in_quarantine) == (6, 6)
    assert "in quarantine: 6" in shown.text()
    trimmed(disk, max_bytes=1)
    shown = status(disk.spec, root_of(disk))
    assert (shown.read.quarantined, shown.read.in_quarantine) == (6, 0)
    assert "in quarantine" not in shown.text()
