"""Scans Kafka records in envelopes: their values and their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORIGIN
from ebbtide.columns import Mask
from ebbtide.formats._places import naming_other_keys
from ebbtide.formats._scan import Rows, Scanner, marked
from ebbtide.formats._scan_loops import ABSENT, ANY, ESCAPED, LIST, NULL, TEXT

_FIELDS = {**dict.fromkeys(("topic", "partition", "offset", "value")), "headers": ANY}
_SCANNER = Scanner(_FIELDS, exact=())


@dataclass(frozen=True)
class KafkaEnvelopes:
    """The envelopes of a batch.

    Args:
        is_taken: (n,) the record is an envelope with a value and a valid place in Kafka, and no header names another key of its row.
        is_other: (n,) the record is an envelope of another topic.
        values: (n,) their values.
        topics: (n,) their topics.
        partitions: (n,) their partitions.
        offsets: (n,) their offsets.
    """

    is_taken: Mask
    is_other: Mask
    values: pa.BinaryArray
    topics: pa.StringArray
    partitions: pa.Int64Array
    offsets: pa.Int64Array

    @classmethod
    def scan(cls, records: pa.BinaryArray, wanted: str | None) -> Self:
        """Scan records.

        Args:
            records: The records, with any content.
            wanted: The requested topic; None: any.
        """
        scanned = _SCANNER.scan(records)
        topic = scanned.cells["topic",]
        value = scanned.cells["value",]
        topics = scanned.texts(topic)
        partitions = scanned.integers(scanned.cells["partition",])
        offsets = scanned.integers(scanned.cells["offset",])
        has_topic = scanned.is_taken & topic.has(TEXT, ESCAPED)
        is_other = np.zeros(len(records), bool)
        if wanted:
            is_wanted = pc.equal(topics, wanted)
            is_other = has_topic & ~marked(is_wanted)
        high_bits = pc.shift_right(partitions, 31)
        is_partition = pc.equal(high_bits, 0)  # from 0 to 2^31 - 1
        is_offset = pc.greater_equal(offsets, 0)
        is_taken = has_topic & ~is_other
        is_taken &= value.has(TEXT, ESCAPED)
        is_taken &= marked(is_partition)
        is_taken &= marked(is_offset)
        headers = scanned.cells["headers",]
        written = scanned.written(headers.filled(~headers.has(LIST), NULL))
        is_taken &= headers.has(ABSENT, NULL, LIST) & ~naming_other_keys(written)
        # Only requested records: the rest need not be scanned.
        asked = value.filled(~is_taken, NULL)
        values = scanned.texts(asked)
        return cls(
            is_taken,
            is_other,
            values.cast(pa.binary()),
            topics,
            partitions,
            offsets,
        )

    def origins(self, rows: Rows) -> pa.StructArray:
        """Return `_origin` of some records, given their indices."""
        indices = pa.array(rows)
        return pa.StructArray.from_arrays(
            [
                self.topics.take(indices),
                self.partitions.take(indices),
                self.offsets.take(indices),
            ],
            fields=list(ORIGIN),
        )
