"""What a changelog is made of."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ebbtide.operators._sequence.key_changes import may_be_unsent


@pytest.mark.parametrize(
    ("type_", "may"),
    [
        (pa.string(), True),
        (pa.binary(), True),
        (pa.list_(pa.int8()), True),
        (pa.int64(), False),
        (pa.decimal128(6, 2), False),
        (pa.struct([("a", pa.string())]), False),
    ],
    ids=str,
)
def test_values_of_the_types_that_are_stored_apart_may_be_unsent(type_, may):
    assert may_be_unsent(type_) is may
