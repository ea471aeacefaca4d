"""The functions that come with Ebbtide, beside what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import operator_of
from servers.store_support import line, stateful

from ebbtide.testing import MemoryPipeline

CHANGES = st.lists(
    st.tuples(st.sampled_from(["+I", "+U", "-U", "-D"]), st.integers(0, 1), st.integers(0, 4), st.sampled_from("ab")),
    max_size=12,
)


@given(st.lists(CHANGES, max_size=5), st.integers(0, 2), st.integers(0, 2), st.booleans())
@pytest.mark.demand("sum-lag")
def test_lag_and_lead_are_those_of_the_live_rows(steps, lag, lead, ordered):
    """An update is a retraction of the row that is there and an addition; other retractions find nothing."""
    options = {"lag": lag, "lead": lead, "order_by": ["v"] if ordered else []}
    pipeline = MemoryPipeline(stateful("ebbtide.functions:LagLead", output_key=["id", "seq"], options=options))
    live, unmatched = {0: [], 1: []}, 0
    for step in steps:
        lines = []
        for kind, key, number, v in step:
            old = next((row for row in live[key] if row["seq"] == number), None)
            row = {"v": v, "seq": number}
            if kind in ("+I", "+U"):
                if old is not None:
                    live[key].remove(old)
                    lines.append(line(key, "-U", **old))
                live[key].append(row)
                lines.append(line(key, kind, **row))
            elif row in live[key]:
                live[key].remove(row)
                lines.append(line(key, kind, **row))
            else:
                unmatched += 1
                lines.append(line(key, kind, **row))
        pipeline.step(lines)
        want = []
        for key, rows in live.items():
            placed = sorted(rows, key=lambda row: row["v"]) if ordered else rows
            for i, row in enumerate(placed):
                before = placed[i - lag] if i >= lag else None
                after = placed[i + lead] if i + lead < len(placed) else None
                want.append((key, row["seq"], row["v"], before and before["seq"], after and after["seq"]))
        assert [
            (row["id"], row["seq"], row["v"], row["lag"] and row["lag"]["seq"], row["lead"] and row["lead"]["seq"])
            for row in pipeline.rows()
        ] == sorted(want)
    assert pipeline.metrics["unmatched"] == unmatched


def test_row_whose_old_version_goes_later_keeps_its_place_in_the_sink():
    """The addition of an update before its retraction."""
    spec = stateful("ebbtide.functions:LagLead", output_key=["id", "v"], options={"order_by": ["seq"]})
    pipeline = MemoryPipeline(spec)
    pipeline.step([line(1, v=v, seq=n) for n, v in enumerate("abc")])
    pipeline.step([line(1, "+U", v="a", seq=9)])
    pipeline.step([line(1, "-U", v="a", seq=0)])
    assert [(row["v"], row["seq"]) for row in pipeline.rows()] == [("a", 9), ("b", 1), ("c", 2)]


def test_negative_places_are_refused():
    with pytest.raises(ValueError, match="lag and lead count places; got -1, 1; allowed: 0 and more"):
        operator_of(stateful("ebbtide.functions:LagLead", options={"lag": -1})).function()


@given(st.lists(CHANGES, max_size=5))
@pytest.mark.demand("sum-dedup")
def test_first_row_is_that_of_the_rows_that_are_not_retracted(steps):
    pipeline = MemoryPipeline(stateful("ebbtide.functions:DeduplicateChangelog"))
    live, unmatched = {0: [], 1: []}, 0
    for step in steps:
        for kind, key, number, v in step:
            row = {"v": v, "seq": number}
            if kind in ("+I", "+U"):
                live[key].append(row)
            elif row in live[key]:
                live[key].remove(row)
            else:
                unmatched += 1
        pipeline.step([line(key, kind, v=v, seq=number) for kind, key, number, v in step])
        shown = [{"id": row["id"], "v": row["v"], "seq": row["seq"]} for row in pipeline.rows()]
        assert shown == [{"id": key, **rows[0]} for key, rows in live.items() if rows]
    assert pipeline.metrics["unmatched"] == unmatched


def test_rows_of_a_changelog_are_first_again_once_the_first_has_expired():
    week = 7 * 86_400_000
    pipeline = MemoryPipeline(stateful("ebbtide.functions:DeduplicateChangelog", max_clock_jump="7d"))
    pipeline.step([line(1, v="a"), line(1, v="b")], now_ms=0)
    pipeline.step([line(1, v="c")], now_ms=week - 1)
    assert [row["v"] for row in pipeline.rows()] == ["a"]
    pipeline.step([line(1, "-D", v="a")], now_ms=week)
    assert [row["v"] for row in pipeline.rows()] == ["a"], "what has expired is not known any more"
    pipeline.step([line(1, v="d"), line(1, v="e")], now_ms=week)
    assert [row["v"] for row in pipeline.rows()] == ["d"]
    pipeline.step([line(1, "-D", v="d")], now_ms=week + 1)
    assert [row["v"] for row in pipeline.rows()] == ["e"]
    assert pipeline.metrics["unmatched"] == 1


def test_retractions_that_a_function_of_inserts_gets_are_counted():
    pipeline = MemoryPipeline(stateful("ebbtide.functions:Deduplicate"))
    pipeline.step([line(1, v="a"), line(1, "-D", v="a"), line(1, v="b")])
    assert [row["v"] for row in pipeline.rows()] == ["a"]
    assert pipeline.metrics["retractions"] == 1
