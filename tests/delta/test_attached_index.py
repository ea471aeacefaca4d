"""An attached index is read as it was written, and is as small as its file's order allows."""

import numpy as np
import pyarrow as pa
import pytest

from ebbtide.delta._attached_index import attachment, identity_of, index_in

HASHES = np.arange(100, dtype=np.uint64) * 2**56
IDENTITY = identity_of(pa.schema([("key", pa.string())]), ["key"], None)


def test_note_of_an_index_names_its_format_its_keys_and_its_rows():
    columns = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.string())])
    assert identity_of(columns, ["a", "b"], ("c", "row")) == {
        "key_index": 1,
        "key": {"a": "int64", "b": "string"},
        "where": ["c", "row"],
    }


@pytest.mark.parametrize(("positions", "n_bytes"), [(np.arange(100), 800), (np.arange(100)[::-1], 1200)])
def test_positions_are_attached_unless_the_file_is_in_the_order_of_hashes(positions, n_bytes):
    note, content = attachment(IDENTITY, HASHES, positions)
    assert len(content) == n_bytes
    found_hashes, found_positions = index_in(note, content, IDENTITY)
    assert found_hashes.tolist() == HASHES.tolist()
    assert found_positions.tolist() == positions.tolist()
