"""How many offsets the next batch may have where bytes are limited: noted beside the plan by the driver, read by the stream."""

from __future__ import annotations

from ebbtide.paths import read_bytes, replace_bytes

FIRST_OFFSETS = 10_000
"""Of a first batch, before any record was seen."""


def note_most(plan: str, most: int) -> None:
    """Note how many offsets the next batch may have.

    Args:
        plan: Location of the plan.
        most: Offsets, above 0.
    """
    replace_bytes(_beside(plan), str(most).encode())


def noted_most(plan: str) -> int:
    """Return how many offsets the next batch may have; see `note_most`."""
    raw = read_bytes(_beside(plan))
    return FIRST_OFFSETS if raw is None or not raw.isdigit() else int(raw)


def _beside(plan: str) -> str:
    return f"{plan}.offsets"
