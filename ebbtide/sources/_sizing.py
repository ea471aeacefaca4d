"""The size of the next batch, in offsets, where bytes are limited: noted by a step, also for the next run."""

from __future__ import annotations

from ebbtide.storage import Location

FIRST_OFFSETS = 10_000
"""Of a batch of which nothing is known: the first one, or one after a few records."""


def offsets_within(max_bytes: int, n_offsets: int, n_bytes: int) -> int:
    """Return how many offsets a batch may have, by the size of the records of the last one.

    It is at most twice as many as that had, or as many as a first batch, if that is more.

    Args:
        max_bytes: About how many bytes it may have.
        n_offsets: Of the last batch.
        n_bytes: Of the last batch's values.

    Example:
        >>> offsets_within(1_000, 10, 5_000), offsets_within(1_000, 10, 200), offsets_within(10**9, 8_000, 0)
        (2, 50, 16000)
    """
    # Records of the next batch are taken to be as large as those of the last one. That is wrong after small ones, so that a batch
    # grows twofold at most: a topic whose records become large overshoots by one batch.
    at_same_size = max_bytes * n_offsets // max(n_bytes, 1)
    grown = max(2 * n_offsets, FIRST_OFFSETS)
    most = min(at_same_size, grown)
    return max(1, most)


def note_most(location: str, most: int) -> None:
    """Note how many offsets the next batch may have.

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
