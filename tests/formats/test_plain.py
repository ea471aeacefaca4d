import pytest

from ebbtide.changelog import RowKind
from ebbtide.formats import BadRecordError, PlainDecoder

ROW = {"id": 1, "n": None}


@pytest.mark.parametrize("kind", list(RowKind))
def test_row_of_each_kind_is_one_change(kind):
    [only] = PlainDecoder().changes({"kind": kind, "row": ROW, "more": 1}, None)
    assert (only.kind, only.row, only.op) == (kind, ROW, kind)
    assert (only.position, only.event_ms, only.origin_offset) == ((), None, None)


def test_columns_beside_the_kind_are_the_row():
    [only] = PlainDecoder("op", None, ("seq",)).changes({"op": "+I", "seq": 4, **ROW}, None)
    assert (only.row, only.origin_offset) == (ROW, (0, 4))


@pytest.mark.parametrize("seq", [0, 7, 2**63 - 1])
@pytest.mark.parametrize(("position", "part"), [((), None), (("seq",), 0), (("part", "seq"), 3)])
def test_position_of_a_record_is_its_place(position, part, seq):
    value = {"kind": "-D", "row": ROW, "part": 3, "seq": seq}
    place = (part, seq) if position else None
    assert PlainDecoder(position=position).changes(value, None)[0].origin_offset == place


@pytest.mark.parametrize("got", [-1, 2**63, "7", 7.0, True, None])
def test_position_that_is_no_integer_from_0_is_bad(got):
    with pytest.raises(BadRecordError) as caught:
        PlainDecoder(position=("seq",)).changes({"kind": "+I", "row": ROW, "seq": got}, None)
    assert str(caught.value) == f"bad_position: seq: got {got!r}; allowed: an integer from 0"


@pytest.mark.parametrize(("row", "got"), [(None, "None"), ([1], "[1]"), ("x" * 500, "x" * 80)])
def test_row_that_is_no_object_is_bad_and_told_shortly(row, got):
    with pytest.raises(BadRecordError, match="not_a_row") as caught:
        PlainDecoder().changes({"kind": "+I", "row": row}, None)
    assert caught.value.detail == f"row: got '{got}'; allowed: an object"


@pytest.mark.parametrize("bad", [{"kind": "T", "row": ROW}, {"kind": "+I", "row": [1]}])
def test_bad_record_keeps_its_place(bad):
    with pytest.raises(BadRecordError) as caught:
        PlainDecoder(position=("part", "seq")).changes(bad | {"part": 3, "seq": 7}, None)
    assert caught.value.origin_offset == (3, 7)
