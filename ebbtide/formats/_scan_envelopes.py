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
from ebbtide.formats._scan import Rows, Scanned, Scanner, marked
from ebbtide.formats._scan_loops import ABSENT, ANY, ESCAPED, LIST, NULL, TEXT

_FIELDS = {**dict.fromkeys(("topic", "partition", "offset", "key", "value")), "headers": ANY}
_SCANNER = Scanner(_FIELDS, exact=())


@dataclass(frozen=True)
class KafkaEnvelopes:
    """The envelopes of a batch.

    Args:
        scanned: The records.
        has_topic: (n,) the record is an envelope with a topic.
        is_placed: (n,) the record is an envelope with a valid place in Kafka.
        topics: (n,) their topics.
        partitions: (n,) their partitions.
        offsets: (n,) their offsets.
    """

    scanned: Scanned
    has_topic: Mask
    is_placed: Mask
    topics: pa.StringArray
    partitions: pa.Int64Array
    offsets: pa.Int64Array

    @classmethod
    def scan(cls, records: pa.BinaryArray) -> Self:
        """Scan records with any content, in UTF-8."""
        scanned = _SCANNER.scan(records)
        topic = scanned.cells["topic",]
        partitions = scanned.integers(scanned.cells["partition",])
        offsets = scanned.integers(scanned.cells["offset",])
        has_topic = scanned.is_taken & topic.has(TEXT, ESCAPED)
        high_bits = pc.shift_right(partitions, 31)
        is_partition = pc.equal(high_bits, 0)  # from 0 to 2^31 - 1
        is_offset = pc.greater_equal(offsets, 0)
        is_placed = has_topic & marked(is_partition) & marked(is_offset)
        return cls(scanned, has_topic, is_placed, scanned.texts(topic), partitions, offsets)

    @property
    def has_value(self) -> Mask:
        """(n,) the record has a text as its value."""
        return self.is_placed & self.scanned.cells["value",].has(TEXT, ESCAPED)

    @property
    def is_tombstone(self) -> Mask:
        """(n,) the record has null as its value."""
        return self.is_placed & self.scanned.cells["value",].has(NULL)

    @property
    def names_other_key(self) -> Mask:
        """(n,) a header may name another key of the record's row."""
        headers = self.scanned.cells["headers",]
        is_list = headers.has(LIST)
        written = self.scanned.written(headers.filled(~is_list, NULL))
        return ~headers.has(ABSENT, NULL, LIST) | naming_other_keys(written)

    def is_other(self, wanted: str | None) -> Mask:
        """Mark the records of other topics.

        Args:
            wanted: The requested topic; None: any.
        """
        if not wanted:
            return np.zeros(len(self.has_topic), bool)
        is_wanted = pc.equal(self.topics, wanted)
        return self.has_topic & ~marked(is_wanted)

    def texts(self, name: str, is_asked: Mask) -> pa.BinaryArray:
        """Return a field of some records, null for the rest: they need not be copied.

        Args:
            name: `key` or `value`; null where it is not a text.
            is_asked: (n,) the records.
        """
        cells = self.scanned.cells[name,]
        is_text = is_asked & cells.has(TEXT, ESCAPED)
        return self.scanned.texts(cells.filled(~is_text, NULL)).cast(pa.binary())

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
