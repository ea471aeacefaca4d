"""The records that a source has at the moment: where to begin, which follow the last step, which are lost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ebbtide.amounts import amount
from ebbtide.errors import ConfigError, SourceLostError
from ebbtide.sources._span import Offsets, Span, described

Start = str | datetime | Offsets
"""The beginning of the first step: `earliest`, `latest`, a time or offsets."""
ACCEPT_LOSS = (
    "Run 'ebbtide refresh --accept-loss' to rebuild the sink from what the source has now, or 'ebbtide run --accept-loss' to continue with these: "
    "both record the loss, and the check 'source_loss' then fails."
)


@dataclass(frozen=True)
class Available:
    """The records that a source has, by their offsets.

    Args:
        name: Its name in messages: `topic 'orders'`.
        identity: See `Span`.
        earliest: Partition to the offset of its first record.
        latest: Partition to the offset after the last readable record.
    """

    name: str
    identity: Mapping[str, str]
    earliest: Offsets
    latest: Offsets

    def refuse_other(self, read: Span) -> None:
        """Refuse a span of another source.

        Raises:
            SourceLostError: the span is of another source.
        """
        if self.identity != read.identity:
            raise SourceLostError.of(
                f"The source is not the one that was read: {self.name}.",
                got=described(self.identity),
                allowed=described(read.identity),
                next_step=f"Correct the spec's source; or, if it has moved permanently: {ACCEPT_LOSS}",
            )

    def following(self, since: Span) -> Span:
        """Return the span that follows another one. A partition that the other one lacks was added since, and is read from offset 0.

        Raises:
            SourceLostError: records are missing, or it is another source.
        """
        self.refuse_other(since)
        self._refuse_fewer(since)
        from_first = dict.fromkeys(self.earliest, 0)
        start = from_first | dict(since.end)
        self._refuse_lost(start)
        return self._up_to_end(start)

    def left_of(self, since: Span) -> Span:
        """Return what is still there to read after a span, without an error for lost records; of another source, everything."""
        read_before: Offsets = {}
        if self.identity == since.identity:
            read_before = since.end
        start = {}
        for partition, earliest in self.earliest.items():
            place = read_before.get(partition, earliest)
            latest = self.latest[partition]
            start[partition] = min(max(place, earliest), latest)
        return self._up_to_end(start)

    def beginning(self, start: Start, at_time: Callable[[datetime], Offsets]) -> Span:
        """Return the span to read if nothing was read before.

        Args:
            start: Where to begin.
            at_time: Returns each partition's offset at a time.

        Raises:
            ConfigError: the offsets do not exist.
        """
        if start == "earliest":
            return self._up_to_end(self.earliest)
        if start == "latest":
            return self._up_to_end(self.latest)
        if isinstance(start, datetime):
            return self._up_to_end(at_time(start))
        offsets = {**self.earliest, **_mapping(start)}
        self._refuse_unfit_start(offsets)
        return self._up_to_end(offsets)

    @property
    def _name(self) -> str:
        first = self.name[:1].upper()
        return f"{first}{self.name[1:]}"

    def _up_to_end(self, start: Offsets) -> Span:
        return Span(self.identity, dict(start), dict(self.latest))

    def _refuse_fewer(self, since: Span) -> None:
        gone = sorted(since.end.keys() - self.latest.keys())
        if gone:
            needed = amount(len(since.end), "partition")
            raise SourceLostError.of(
                f"{self._name} has fewer partitions than were read.",
                got=f"without {_named(gone)}",
                allowed=f"{needed} or more",
                next_step=ACCEPT_LOSS,
            )

    def _refuse_lost(self, start: Offsets) -> None:
        below = []
        beyond = []
        for partition, offset in start.items():
            first = self.earliest[partition]
            last = self.latest[partition]
            place = f"partition {partition}: {offset} is next, it has"
            if offset < first:
                below.append(f"{place} only from {first}")
            if offset > last:
                beyond.append(f"{place} up to {last}")
        if below:
            raise SourceLostError.of(
                f"Records of {self.name} that are next to be read were deleted, perhaps by its retention.",
                got="; ".join(below),
                allowed="a source that keeps records until they are read",
                next_step=f"{ACCEPT_LOSS} Let the topic keep them longer (retention.ms, retention.bytes), or run more often.",
            )
        if beyond:
            raise SourceLostError.of(
                f"{self._name} ends before the records that were read: it has lost some, perhaps by an unclean leader election.",
                got="; ".join(beyond),
                allowed="a source that still has the records that were read",
                next_step=ACCEPT_LOSS,
            )

    def _refuse_unfit_start(self, offsets: Offsets) -> None:
        unknown = sorted(offsets.keys() - self.earliest.keys())
        if unknown:
            raise ConfigError.of(
                f"The start names partitions that {self.name} does not have.",
                got=_named(unknown),
                allowed=f"0 to {len(self.earliest) - 1}",
                next_step="Correct source.start in the spec, or --from of the command.",
            )
        unfit = []
        there = []
        for partition, offset in offsets.items():
            first = self.earliest[partition]
            last = self.latest[partition]
            if not first <= offset <= last:
                unfit.append(f"partition {partition}: {offset}")
                there.append(f"partition {partition}: {first} to {last}")
        if unfit:
            raise ConfigError.of(
                f"The start names offsets that {self.name} does not have.",
                got="; ".join(unfit),
                allowed="; ".join(there),
                next_step="Correct source.start in the spec, or --from of the command.",
            )


def _mapping(start: Any) -> Mapping[int, int]:
    return dict(start)


def _named(partitions: list[int]) -> str:
    names = ", ".join(map(str, partitions))
    return f"partition {names}" if len(partitions) == 1 else f"partitions {names}"
