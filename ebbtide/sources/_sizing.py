"""The size of the next batch in offsets if bytes are limited. A step stores it, also for the next run."""

from __future__ import annotations

from ebbtide.storage import Location

FIRST_OFFSETS = 10_000
"""Offsets of a batch without a known record size: the first one, or one after a few records."""


def offsets_within(max_bytes: int, n_offsets: int, n_bytes: int) -> int:
    """Return how many offsets a batch may have, estimated from the last batch's record size.

    At most twice as many as the last batch had, but at least as many as a first batch.

    Args:
        max_bytes: Approximate maximum bytes of the batch.
        n_offsets: Offsets of the last batch.
        n_bytes: Bytes of the last batch's values.

    Example:
        >>> offsets_within(1_000, 10, 5_000), offsets_within(1_000, 10, 200), offsets_within(10**9, 8_000, 0)
        (2, 50, 16000)
    """
    # The next batch's records are assumed to be as large as the last one's. This fails after small records, so a batch at most
    # doubles: if a topic's records become large, one batch overshoots.
    at_same_size = max_bytes * n_offsets // max(n_bytes, 1)
    grown = max(2 * n_offsets, FIRST_OFFSETS)
    most = min(at_same_size, grown)
    return max(1, most)


def note_most(location: str, most: int) -> None:
    """Store how many offsets the next batch may have.

    Args:
        location: See `noted_most`.
        most: Offsets, above 0.
    """
    Location(location).replace_bytes(str(most).encode())


def noted_most(location: str) -> int:
    """Return how many offsets the next batch may have; see `note_most`."""
    raw = Location(location).read_bytes()
    if raw is None or not raw.isdigit():
        return FIRST_OFFSETS
    return int(raw)
