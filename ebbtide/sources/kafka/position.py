"""What a batch reads of a topic, and which part of what is there the next batch takes. Pure.

Stored, in Spark's checkpoint and in the facts of steps, as `{"cluster_id": ..., "topic": ..., "topic_id": ..., "from": {"0": 0}, "to":
{"0": 120}}`: of each partition the offset of the first record and the one after the last. All partitions are named, those without records
too. Offsets need not be dense: a range ends by its place, not by a count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ebbtide.errors import CheckpointMismatchError
from ebbtide.model import stored as stored_fields
from ebbtide.model.offsets import POSITION

Offsets = Mapping[int, int]
"""Partition to an offset."""


@dataclass(frozen=True)
class TopicRange:
    """A range of each partition of a topic.

    Args:
        cluster_id: The cluster's own id.
        topic: Its name.
        topic_id: Its id: another topic under its name has another one.
        start: The offsets of the first records.
        end: The offsets after the last ones.
    """

    cluster_id: str
    topic: str
    topic_id: str
    start: Offsets
    end: Offsets

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Read the stored form.

        Raises:
            StoredFormatError: it has a field that this release does not know.
        """
        stored_fields.refuse_unknown(stored, POSITION, what="The position of a topic", where=stored.get("topic", "?"))
        return cls(
            stored["cluster_id"],
            stored["topic"],
            stored["topic_id"],
            _offsets(stored["from"]),
            _offsets(stored["to"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            "cluster_id": self.cluster_id,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "from": _texts(self.start),
            "to": _texts(self.end),
        }

    @property
    def sizes(self) -> dict[int, int]:
        """Partition to its number of offsets: as many records or, where some were compacted or aborted, fewer."""
        return {partition: self.end[partition] - start for partition, start in self.start.items()}

    @property
    def size(self) -> int:
        """Offsets of all partitions."""
        return sum(self.sizes.values())

    def after(self, offsets: Offsets) -> Self:
        """Return what is left behind some offsets; of a partition that they lack, all of it."""
        start = {}
        end = {}
        for partition, own in self.start.items():
            first = max(own, offsets.get(partition, own))
            start[partition] = first
            end[partition] = max(first, self.end[partition])
        return replace(self, start=start, end=end)

    def behind(self, last: Self) -> Self:
        """Return what is left behind a batch; all of it if that was of another topic, whose loss was accepted."""
        is_same = (self.cluster_id, self.topic_id) == (last.cluster_id, last.topic_id)
        return self.after(last.end) if is_same else self

    def lacks(self, read: Self) -> str | None:
        """Name records of another range that this one has not; None if it has all.

        Args:
            read: The other one; of another topic nothing is here.

        Example:
            >>> TopicRange("c", "t", "i", {0: 4}, {0: 9}).lacks(TopicRange("c", "t", "i", {0: 2}, {0: 9}))
            'partition 0: 2 to 9 was read, 4 to 9 is there'
        """
        is_same = (self.cluster_id, self.topic_id) == (read.cluster_id, read.topic_id)
        if not is_same:
            return f"all that was read of topic '{read.topic}' with id {read.topic_id} in cluster {read.cluster_id}"
        lacking = []
        for partition, start in read.start.items():
            end = read.end[partition]
            own_start = self.start.get(partition, end)
            own_end = self.end.get(partition, start)
            has_all = own_start <= start and end <= own_end
            if not has_all:
                there = f"{own_start} to {own_end}" if partition in self.start else "nothing"
                lacking.append(f"partition {partition}: {start} to {end} was read, {there} is there")
        return "; ".join(lacking) or None

    def first(self, most: int) -> Self:
        """Return the range up to so many offsets, of each partition by its share.

        Args:
            most: Offsets over all partitions, above 0.

        Example:
            >>> TopicRange("c", "t", "i", {0: 0, 1: 5}, {0: 30, 1: 15}).first(8).end
            {0: 6, 1: 7}
        """
        total = self.size
        if total <= most:
            return self
        shares = {partition: size * most // total for partition, size in self.sizes.items()}
        left = most - sum(shares.values())
        for partition, size in self.sizes.items():
            if left and shares[partition] < size:
                shares[partition] += 1
                left -= 1
        end = {partition: start + shares[partition] for partition, start in self.start.items()}
        return replace(self, end=end)

    def refuse_gap(self, since: Self) -> None:
        """Refuse a batch that does not follow on the last one.

        Args:
            since: The last one.

        Raises:
            CheckpointMismatchError: records between them would be lost, or be read twice.
        """
        stands_at = {partition: self.start.get(partition) for partition in since.end}
        if (self.topic_id, stands_at) != (since.topic_id, dict(since.end)):
            raise CheckpointMismatchError.of(
                f"The checkpoint's next batch of topic '{self.topic}' does not begin where the last step ended.",
                got=f"topic id {self.topic_id}, offsets {stands_at}",
                allowed=f"topic id {since.topic_id}, offsets {dict(since.end)}",
                next_step="Restore the checkpoint, or run 'ebbtide refresh' to rebuild the sink from the topic.",
            )


def _offsets(stored: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in stored.items()}


def _texts(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
