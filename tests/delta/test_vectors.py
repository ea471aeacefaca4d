"""Deletion vectors, small and large, whole and torn."""

import struct

import numpy as np
import pytest
from frame.limits import set_limits
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ebbtide.delta import _vectors as vectors
from ebbtide.delta import positions_in
from ebbtide.errors import DeltaLogError

LARGE = BitMap64(range(0, 200_000, 3))


@given(st.binary(max_size=64).map(lambda data: data[: len(data) // 4 * 4]))
def test_z85_gives_bytes_back(data):
    assert vectors.from_z85(vectors.to_z85(data)) == data


@given(st.lists(st.sets(st.integers(0, 2**40), min_size=1, max_size=300), min_size=1, max_size=4))
def test_vectors_of_any_size_are_read_back(tmp_path_factory, sets):
    table = str(tmp_path_factory.mktemp("table"))
    descriptors = vectors.write(table, [BitMap64(rows) for rows in sets])
    assert [set(vectors.read(table, each)) for each in descriptors] == sets
    assert [each["cardinality"] for each in descriptors] == [len(rows) for rows in sets]


def test_vectors_of_a_commit_share_a_file(tmp_path):
    descriptors = vectors.write(str(tmp_path), [LARGE, BitMap64([1])])
    [file] = tmp_path.iterdir()
    assert file.name.startswith("deletion_vector_")
    assert [each["offset"] for each in descriptors] == [1, 1 + descriptors[0]["sizeInBytes"] + 8]
    assert file.read_bytes()[:1] == b"\x01"


def test_no_vectors_make_no_file(tmp_path):
    assert vectors.write(str(tmp_path), []) == []
    assert list(tmp_path.iterdir()) == []


def test_vector_in_the_log_is_read(tmp_path):
    data = vectors.encode(BitMap64([1, 7]))
    text = vectors.to_z85(data + bytes(-len(data) % 4))
    inline = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": 2}
    assert set(vectors.read(str(tmp_path), inline)) == {1, 7}


def test_ids_tell_vectors_of_one_file_apart(tmp_path):
    descriptors = vectors.write(str(tmp_path), [LARGE, LARGE | BitMap64([1]), BitMap64([1])])
    assert len({vectors.unique_id(each) for each in [*descriptors, None]}) == 4


@pytest.mark.parametrize("at", [1, 5, -1])
def test_torn_vector_is_refused(tmp_path, at):
    [descriptor] = vectors.write(str(tmp_path), [LARGE])
    [file] = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(DeltaLogError, match="is torn"):
        vectors.read(str(tmp_path), descriptor)


def test_vector_that_ends_early_or_is_gone_is_refused(tmp_path):
    [descriptor] = vectors.write(str(tmp_path), [LARGE])
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DeltaLogError, match="does not exist"):
        vectors.read(str(tmp_path), descriptor)
    file.unlink()
    with pytest.raises(DeltaLogError, match="does not exist"):
        vectors.read(str(tmp_path), descriptor)


def test_another_format_is_refused():
    with pytest.raises(DeltaLogError, match="cannot be read"):
        vectors.decode(struct.pack("<i", 7) + vectors.encode(BitMap64([1, 2]))[4:], "here")
    with pytest.raises(DeltaLogError, match="cannot be read"):
        vectors.decode(vectors.encode(BitMap64([1, 2]))[:-3], "here")


@pytest.mark.parametrize("rows", [[7], [1, 7], [1, 70_000], list(range(0, 99, 2))])
def test_inline_vector_is_read_without_its_padding(tmp_path, rows):
    data = vectors.encode(BitMap64(rows))
    padded = data + b"\xff" * (-len(data) % 4)
    inline = {"storageType": "i", "pathOrInlineDv": vectors.to_z85(padded), "sizeInBytes": len(data)}
    assert set(vectors.read(str(tmp_path), inline)) == set(rows)


@pytest.mark.parametrize("kind", ["in a folder", "by its whole path"])
def test_vector_of_another_writer_is_found_where_it_is(tmp_path, kind):
    descriptors = vectors.write(str(tmp_path), [LARGE, BitMap64([1, 2])])
    [file] = tmp_path.iterdir()
    folder = tmp_path / "ab"
    folder.mkdir()
    file = file.rename(folder / file.name)
    for descriptor, rows in zip(descriptors, [LARGE, BitMap64([1, 2])], strict=True):
        moved = {**descriptor, "pathOrInlineDv": f"ab{descriptor['pathOrInlineDv']}"}
        if kind == "by its whole path":
            moved = {**descriptor, "storageType": "p", "pathOrInlineDv": str(file)}
        assert vectors.read(str(tmp_path), moved) == rows


@pytest.mark.parametrize("few", [0, 1_000])
def test_rows_that_count_are_the_same_however_many_are_asked_for(tmp_path, few):
    set_limits(few_rows=few)
    [vector] = vectors.write(str(tmp_path), [BitMap64([1, 3, 2**40])])
    positions = np.array([0, 1, 2, 3, 4, 2**40])
    assert vectors.counts(str(tmp_path), vector, positions).tolist() == [True, False, True, False, True, False]
    none = np.array([], np.int64)
    assert vectors.counts(str(tmp_path), vector, none).tolist() == []
    assert positions_in(BitMap64()).tolist() == []
