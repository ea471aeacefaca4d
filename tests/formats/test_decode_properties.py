"""No record stops a step: whatever stands in it, it is taken or set apart, and those beside it land."""

from __future__ import annotations

import json

import pytest
from frame.thinned import thinned
from hypothesis import example, given
from hypothesis import strategies as st
from oracles.any_records import JSON, MODES, TEXTS, VALUES, line_of, neighbour, paths, replaced, spec_of

from ebbtide.testing import MemoryPipeline


def lands_or_is_set_apart(form: str, mode: str, line: bytes) -> None:
    pipeline = MemoryPipeline(spec_of(form, mode))
    pipeline.step([neighbour(form, 1001), line, neighbour(form, 1002)], now_ms=10**12)
    assert {1001, 1002} <= {row["id"] for row in pipeline.rows()}
    assert [bad["_raw"] for bad in pipeline.quarantine] in ([], [line])
    for bad in pipeline.quarantine:
        assert bad["_reason"]
        assert "allowed: " in bad["_detail"]
    pipeline.step([], now_ms=10**12)


@pytest.mark.parametrize(("form", "mode"), thinned(MODES, 2))
@given(st.data())
def test_record_with_any_value_anywhere_stops_nothing(form, mode, data):
    value = VALUES[form]
    changed = replaced(value, data.draw(st.sampled_from(paths(value))), data.draw(JSON))
    lands_or_is_set_apart(form, mode, line_of(form, changed, data.draw(st.none() | TEXTS)))


@pytest.mark.parametrize(("form", "mode"), [("update", "log"), ("plain", "arrival")])
@given(st.data())
def test_record_with_damaged_bytes_stops_nothing(form, mode, data):
    line = line_of(form, VALUES[form])
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, len(line)))
    lands_or_is_set_apart(form, mode, line[:start] + data.draw(st.binary(max_size=4)).replace(b"\n", b"") + line[end:])


FIELDS = {"topic": "t", "partition": 0, "offset": 1, "key": None, "value": None}
ANY = st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2))


@example("topic", "\ud800")
@example("value", "\ud800")
@given(st.sampled_from(list(FIELDS)), ANY)
def test_kafka_record_of_any_fields_stops_nothing(name, value):
    lands_or_is_set_apart("update", "log", json.dumps(FIELDS | {name: value}).encode())
