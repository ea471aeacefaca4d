"""What the reconcilers share: the clock of a step."""

from __future__ import annotations

import pytest

from ebbtide.model.entries import Step
from ebbtide.model.ttl import StateTtlConfig


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, 7),
        ({"time_characteristic": "EVENT_TIME"}, 3),
        ({"time_characteristic": "EVENT_TIME", "expiry_clock": "PROCESSING_TIME"}, 7),
    ],
)
def test_entries_age_by_the_clock_that_their_ttl_names(fields, want):
    assert Step(1, now_ms=7, watermark_ms=3).clock_ms(StateTtlConfig(ttl="1d", **fields)) == want


def test_nothing_expires_by_event_time_before_the_first_event():
    assert Step(1, now_ms=7).clock_ms(StateTtlConfig(ttl="1d", time_characteristic="EVENT_TIME")) == -(2**63)
