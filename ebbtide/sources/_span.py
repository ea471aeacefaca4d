"""Ranges of the partitions of a source that is read by position, and the part that the next batch reads. Pure.

Stored in the facts of steps as `{"topic": ..., "from": {"0": 0}, "to": {"0": 120}}`: the source's identity as text, and each
partition's first offset and the one after its last. All partitions are named, even empty ones. Offsets need not be dense: a
range ends at an offset, not after a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ebbtide.model import StoredDocument

Offsets = Mapping[int, int]
"""Partition to an offset."""
FROM = "from"
TO = "to"


@dataclass(frozen=True)
class Span:
    """A range of each partition of a source.

    Args:
        identity: Name to value. Another source under the same address has another identity.
        start: The offsets of the first records.
        end: The offsets after the last ones.
    """

    identity: Mapping[str, str]
    start: Offsets
    end: Offsets

    @property
    def source_text(self) -> str:
        """The identity of the source, for people.

        Example:
            >>> Span({"topic": "orders", "topic_id": "x1"}, {}, {}).source_text
            "topic 'orders', topic_id 'x1'"
        """
        return described(self.identity)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], where: str | None = None) -> Self:
        """Read the stored form.

        Args:
            stored: The parsed stored form.
            where: Its location, for messages. Default: the source's.

        Raises:
            StoredFormatError: it has a field that this release does not know.
        """
        identity = {name: value for name, value in stored.items() if isinstance(value, str)}
        known = {*identity, FROM, TO}
        place = where or "/".join(identity.values())
        StoredDocument("The position of a source", place).refuse_unknown(stored, known)
        start = _offsets(stored[FROM])
        end = _offsets(stored[TO])
        return cls(identity, start, end)

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """Read a stored form that may be missing; see `from_json`."""
        return None if stored is None else cls.from_json(stored)

    @staticmethod
    def begun_at(start: Span | None, read: Span | None) -> Span | None:
        """Return where reading began, including a new batch, which may be the first one or the first of some partitions.

        Args:
            start: Where it began before the batch; None before the first one.
            read: The batch; None of a source with parts.

        Example:
            >>> Span.begun_at(Span({}, {0: 5}, {0: 5}), Span({}, {0: 9, 1: 2}, {0: 9, 1: 7}))
            Span(identity={}, start={0: 5, 1: 2}, end={0: 5, 1: 2})
        """
        if read is None:
            return start
        if start is None:
            return read.beginning
        # A partition that was read before keeps its beginning; a new one begins with this batch.
        beginnings = {**read.start, **start.start}
        whole = replace(start, start=beginnings)
        return whole.beginning

    @staticmethod
    def stored_form(span: Span | None) -> dict[str, Any] | None:
        """Return the stored form of a span that may be missing; see `to_json`."""
        return None if span is None else span.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            **self.identity,
            FROM: _texts(self.start),
            TO: _texts(self.end),
        }

    @property
    def beginning(self) -> Self:
        """Its start, as an empty span."""
        return replace(self, end=self.start)

    @property
    def sizes(self) -> dict[int, int]:
        """Partition to its number of offsets. There are fewer records if some were compacted or aborted."""
        sizes = {}
        for partition, start in self.start.items():
            sizes[partition] = self.end[partition] - start
        return sizes

    @property
    def size(self) -> int:
        """Offsets of all partitions."""
        return sum(self.sizes.values())

    @property
    def parts(self) -> Iterator[Self]:
        """The span of each partition that is not empty."""
        for partition, size in self.sizes.items():
            if size:
                start = self.start[partition]
                yield self.of(partition, start, start + size)

    def of(self, partition: int, start: int, end: int) -> Self:
        """Return a range of one partition of the source."""
        return replace(self, start={partition: start}, end={partition: end})

    def with_span(self, other: Self) -> Self:
        """Return the span with ranges of further partitions."""
        start = {**self.start, **other.start}
        end = {**self.end, **other.end}
        return replace(self, start=start, end=end)

    def after(self, offsets: Offsets) -> Self:
        """Return the rest after some offsets; all of a partition without one."""
        start = {}
        end = {}
        for partition, own in self.start.items():
            reached = offsets.get(partition, own)
            first = max(own, reached)
            start[partition] = first
            end[partition] = max(first, self.end[partition])
        return replace(self, start=start, end=end)

    def behind(self, last: Self) -> Self:
        """Return the rest after a batch; all of it if the batch was of another source, whose loss was accepted."""
        if self.identity != last.identity:
            return self
        return self.after(last.end)

    def lacks(self, read: Self) -> str | None:
        """Name records of another span that this one lacks; None if it has all.

        Args:
            read: The other span; this one has nothing of another source.

        Example:
            >>> Span({"topic": "t"}, {0: 4}, {0: 9}).lacks(Span({"topic": "t"}, {0: 2}, {0: 9}))
            'partition 0: 2 to 9 was read, 4 to 9 is there'
        """
        if self.identity != read.identity:
            return f"all that was read of {read.source_text}"
        lacking = []
        for partition, start in read.start.items():
            end = read.end[partition]
            own_start = self.start.get(partition, end)
            own_end = self.end.get(partition, start)
            has_all = own_start <= start and end <= own_end
            if has_all:
                continue
            is_there = "nothing"
            if partition in self.start:
                is_there = f"{own_start} to {own_end}"
            was_read = f"partition {partition}: {start} to {end} was read"
            lacking.append(f"{was_read}, {is_there} is there")
        return "; ".join(lacking) or None

    def first(self, most: int) -> Self:
        """Return a range of at most so many offsets, from each partition in proportion to its size.

        Args:
            most: Offsets over all partitions, above 0.

        Example:
            >>> Span({"topic": "t"}, {0: 0, 1: 5}, {0: 30, 1: 15}).first(8).end
            {0: 6, 1: 7}
        """
        sizes = self.sizes
        if sum(sizes.values()) <= most:
            return self
        shares = _shares(sizes, most)
        end = {}
        for partition, start in self.start.items():
            end[partition] = start + shares[partition]
        return replace(self, end=end)


def described(identity: Mapping[str, str]) -> str:
    """Write a source's identity for people.

    Example:
        >>> described({"topic": "orders", "topic_id": "x1"})
        "topic 'orders', topic_id 'x1'"
    """
    parts = [f"{name} '{value}'" for name, value in sorted(identity.items())]
    return ", ".join(parts)


def _shares(sizes: Mapping[int, int], most: int) -> dict[int, int]:
    """Divide some offsets among partitions, in proportion to their sizes.

    Args:
        sizes: Partition to its number of offsets.
        most: Offsets to divide, fewer than the total.
    """
    total = sum(sizes.values())
    # Rounded down, so that the shares never exceed `most`; remaining offsets go to the first partitions, one each.
    shares = {}
    for partition, size in sizes.items():
        shares[partition] = size * most // total
    left = most - sum(shares.values())
    for partition, size in sizes.items():
        if left and shares[partition] < size:
            shares[partition] += 1
            left -= 1
    return shares


def _offsets(stored: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in stored.items()}


def _texts(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
