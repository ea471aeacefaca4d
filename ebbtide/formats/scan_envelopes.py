"""Kafka records in envelopes, scanned: their values, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats.scan import Mask, Rows, Scanner, marked
from ebbtide.formats.scan_loops import ESCAPED, NULL, TEXT
from ebbtide.model.changelog import ORIGIN

_SCANNER = Scanner(dict.fromkeys(("topic", "partition", "offset", "value")), exact=())


@dataclass(frozen=True)
class KafkaEnvelopes:
    """The envelopes of a batch.

    Args:
        is_taken: (n,) the record is an envelope with a value, and its place is possible in Kafka.
        is_other: (n,) the record is an envelope of a topic that is not asked for.
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
            records: The records; they may be anything.
            wanted: The topic that is asked for; None: any.
        """
        scanned = _SCANNER.scan(records)
        topic, partition, offset, value = (scanned.cells[name,] for name in ("topic", "partition", "offset", "value"))
        topics = scanned.texts(topic)
        partitions = scanned.integers(partition)
        offsets = scanned.integers(offset)
        is_partition = pc.equal(pc.shift_right(partitions, 31), 0)  # from 0 to 2^31 - 1
        is_place = pc.and_(is_partition, pc.greater_equal(offsets, 0))
        has_topic = scanned.is_taken & topic.has(TEXT, ESCAPED)
        is_other = has_topic & ~marked(pc.equal(topics, wanted)) if wanted else np.zeros(len(records), bool)
        is_taken = has_topic & ~is_other & value.has(TEXT, ESCAPED) & marked(is_place)
        values = scanned.texts(value.filled(~is_taken, NULL)).cast(pa.binary())
        return cls(is_taken, is_other, values, topics, partitions, offsets)

    def origins(self, rows: Rows) -> pa.StructArray:
        """Return `_origin` of some records, given their indices."""
        indices = pa.array(rows)
        columns = [column.take(indices) for column in (self.topics, self.partitions, self.offsets)]
        return pa.StructArray.from_arrays(columns, fields=list(ORIGIN))
