"""What may be chosen of arrival mode: how histories are kept, and what of them the sink gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OnExpire(StrEnum):
    """What becomes of the sink's row that has expired."""

    KEEP = "keep"
    DELETE = "delete"


class Emission(StrEnum):
    """What a step emits: the net effect per key, or what each record would have emitted by itself as well."""

    NET = "net"
    EVERY = "every"


class Keep(StrEnum):
    """Which row of a key the sink shows: that of the last insertion, or of the first."""

    LAST = "last"
    FIRST = "first"


@dataclass(frozen=True)
class Materialization:
    """How histories are kept.

    Args:
        upsert_key: Columns by which, within a key, a row replaces another and a retraction finds its row. Empty: the whole row.
        on_expire: What becomes of the sink's row that has expired.
        retraction_grace_ms: How long a retraction waits for its row, ms; 0: it does not.
        max_history: Most rows of a key; the oldest are dropped at the end of a step. None: any number.
        emission: What a step emits.
        keep: Which row of a key the sink shows, its newest or its oldest.
    """

    upsert_key: tuple[str, ...] = ()
    on_expire: OnExpire = OnExpire.KEEP
    retraction_grace_ms: int = 0
    max_history: int | None = None
    emission: Emission = Emission.NET
    keep: Keep = Keep.LAST
