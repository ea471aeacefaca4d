"""What the sink must do about rows that a transform selects, from what it shows and what fits now."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.lines import staged
from local.support import change, plain
from plans import operator_of

from ebbtide.columns import entry_table
from ebbtide.entries import Step
from ebbtide.operators import Selected, SequenceOperator

SOURCE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
SINK = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("n", pa.int32(), nullable=False)])
KEY = (("key", "id"),)
OPERATOR = SequenceOperator(SOURCE, ("id",), output=SINK, output_key=KEY)
RESULT = pa.struct([("fits", pa.bool_()), ("row", pa.struct([("key", pa.int64()), ("n", pa.int32())]))])
NOW = {"key": 1, "n": 2}
BEFORE = {"key": 1, "n": 1}
RESULTS = {
    "fits": {"fits": True, "row": NOW},
    "hidden": {"fits": False, "row": None},
    "fails": None,
    "null": {"fits": True, "row": {"key": 1, "n": None}},
}


def entry(change, was_shown):
    values = {
        "id": [1],
        "_change": [change],
        "_shown": [was_shown],
        "_out": pa.array([BEFORE if was_shown else None], OPERATOR.schema.field("_out").type),
    }
    return entry_table(OPERATOR.schema, values, 1)


EXPECTED = {
    ("fits", True): ("U", True, NOW),
    ("fits", False): ("I", True, NOW),
    ("fits", None): ("I", True, NOW),
    ("hidden", True): ("D", False, {"key": 1, "n": None}),
    ("hidden", False): (None, False, None),
    ("hidden", None): (None, False, None),
    ("fails", True): ("U", True, BEFORE),
    ("fails", False): (None, False, None),
    ("fails", None): (None, False, None),
}


@pytest.mark.parametrize("change", ["I", "U"])
@pytest.mark.parametrize(("now", "was_shown"), list(itertools.product(RESULTS, (True, False, None))))
def test_row_decided_enters_changes_leaves_or_stays_away(change, now, was_shown):
    entries = entry(change, was_shown)
    asked = Selected.asked_of(entries)
    selected = Selected.of(pa.chunked_array([[RESULTS[now]]], RESULT), SINK)
    written, counts = selected.into(entries, asked, KEY)
    [row] = written.to_pylist()
    expected = EXPECTED["fails" if now == "null" else now, was_shown]
    assert (row["_change"], row["_shown"], row["_out"]) == expected
    assert counts["transform_failed"] == (now in ("fails", "null"))
    assert counts["inserted"] + counts["updated"] + counts["deleted"] == (expected[0] is not None)


@pytest.mark.parametrize("was_shown", [True, False])
def test_deleted_row_is_not_evaluated_and_leaves_only_if_it_was_shown(was_shown):
    entries = entry("D", was_shown)
    asked = Selected.asked_of(entries)
    assert not asked.any()
    selected = Selected.of(pa.chunked_array([[]], pa.null()), SINK)
    [row] = selected.into(entries, asked, KEY)[0].to_pylist()
    assert row["_change"] == ("D" if was_shown else None)
    assert row["_shown"] is False
    assert row["_out"] == ({"key": 1, "n": None} if was_shown else None)


@pytest.mark.parametrize("was_shown", [True, False])
def test_entry_that_is_only_noted_hands_on_what_is_shown(was_shown):
    entries = entry(None, was_shown)
    asked = Selected.asked_of(entries)
    selected = Selected.of(pa.chunked_array([[]], pa.null()), SINK)
    [row] = selected.into(entries, asked, KEY)[0].to_pylist()
    assert (row["_change"], row["_shown"], row["_out"]) == (None, was_shown, BEFORE if was_shown else None)


def test_results_of_many_entries_meet_their_own():
    rows = [entry(change, was) for change in ("I", "D", None) for was in (True, False)] * 3
    entries = pa.concat_tables(rows)
    asked = Selected.asked_of(entries)
    numbers = np.flatnonzero(asked)
    results = [{"fits": True, "row": {"key": 1, "n": int(number)}} for number in numbers]
    selected = Selected.of(pa.chunked_array([results], RESULT), SINK)
    written = selected.into(entries, asked, KEY)[0].to_pylist()
    assert [written[number]["_out"]["n"] for number in numbers] == numbers.tolist()


def test_a_pipeline_without_a_transform_stores_what_it_did():
    assert {"_shown", "_out"}.isdisjoint(SequenceOperator(SOURCE, ("id",)).schema.names)


BY_SEQ = plain(
    "id BIGINT NOT NULL, v STRING, seq BIGINT",
    order={"sequence": ["seq"]},
    transform={
        "schema": "key BIGINT NOT NULL, n INT NOT NULL",
        "select": {"key": "id", "n": "CAST(v AS INT)"},
        "where": "v <> 'hidden'",
        "key": ["key"],
    },
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["+I", "+U", "-D"]), st.integers(1, 3), st.sampled_from(["1", "2", "hidden", "bad"])),
    max_size=14,
)


def result_of(row):
    """What Spark makes of a row of `BY_SEQ`."""
    if row["v"] == "hidden":
        return {"fits": False, "row": None}
    return None if row["v"] == "bad" else {"fits": True, "row": {"key": row["id"], "n": int(row["v"])}}


class Selecting:
    """The operator and the selection, step by step; the sink by what each step wants of it."""

    def __init__(self):
        self.operator = operator_of(BY_SEQ)
        self.decoding = BY_SEQ.decoding
        self.state = self.operator.schema.empty_table()
        self.sink = {}
        self.steps = 0

    def step(self, numbered):
        self.steps += 1
        lines = [change(kind, id=id_, v=v, seq=seq) for seq, (kind, id_, v) in numbered]
        changes = staged(self.decoding, lines, step=self.steps)
        entries = self.operator.apply(changes, self.state, Step(self.steps, 0)).entries
        asked = Selected.asked_of(entries)
        results = [result_of(row) for row in entries.filter(pa.array(asked)).to_pylist()]
        selected = Selected.of(pa.chunked_array([results], RESULT), BY_SEQ.sink_table.columns)
        written, _ = selected.into(entries, asked, self.operator.output_key)
        self.state = pa.concat_tables([self.state, written])
        for row in written.to_pylist():
            self._take(row["_change"], row["_out"])

    def _take(self, change, row):
        if change == "D":
            del self.sink[row["key"]]
        elif change is not None:
            assert (row["key"] in self.sink) == (change == "U")
            self.sink[row["key"]] = row["n"]

    def shown(self):
        """What the newest entries say that the sink shows."""
        newest = {row["id"]: row for row in self.state.to_pylist()}
        return {row["_out"]["key"]: row["_out"]["n"] for row in newest.values() if row["_shown"]}


@given(CHANGES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_sink_is_the_selection_of_the_rows_whatever_the_order_and_the_cuts(changes, random, size):
    numbered = list(enumerate(changes, 1))
    random.shuffle(numbered)
    selecting = Selecting()
    for at in range(0, len(numbered), size):
        selecting.step(numbered[at : at + size])
        assert selecting.shown() == selecting.sink
    truth = {}
    for kind, id_, v in changes:
        truth[id_] = None if kind == "-D" else v
    for id_, v in truth.items():
        if v in ("1", "2"):
            assert selecting.sink[id_] == int(v)
        elif v != "bad":  # what fails leaves what was shown
            assert id_ not in selecting.sink
    assert selecting.sink.keys() <= truth.keys()
