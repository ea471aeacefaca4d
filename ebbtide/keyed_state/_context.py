"""The current key and the clocks of an operator, shared by all its states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from ebbtide.columns import Long


@dataclass(slots=True)
class StateContext:
    """The current key and the clocks. States follow the clocks exactly, even backwards.

    Args:
        key: The current key.
        now_ms: Processing time, epoch ms.
        watermark_ms: Epoch ms; the least long before the first event.
        event_ms: Event time of the record being processed, epoch ms; None if it has none.
        output_key: Columns of the sink's key; empty without a sink.
        counts: Counts of entries: `late` (already expired, so not stored), `expired` (removed).
    """

    key: Hashable = None
    now_ms: int = 0
    watermark_ms: int = Long.MIN
    event_ms: int | None = None
    output_key: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
