"""Plans the batches of a run over a source that is read by position."""

from __future__ import annotations

from typing import Any

from ebbtide.sources._sizing import noted_most
from ebbtide.sources._source import Discovery
from ebbtide.sources._span import Span


class SpanPlanner:
    """Divides a span into batches.

    Args:
        found: The span to read.
        max_records: Offsets of one batch.
        sizes: File with the number of offsets that a batch's bytes allow; None if bytes are not limited.
    """

    def __init__(self, found: Discovery, max_records: int, sizes: str | None = None) -> None:
        self.max_records = max_records
        self.sizes = sizes
        self.note(found)

    def note(self, found: Discovery) -> None:
        """See `BatchPlanner`."""
        self._span = found.span or Span({}, {}, {})

    def after(self, last: dict[str, Any] | None) -> dict[str, Any]:
        """See `BatchPlanner`. The first batch of a source without records is empty, and begins where records will."""
        left = self._span
        if last:
            read = Span.from_json(last)
            left = left.behind(read)
        most = self.max_records
        if self.sizes is not None:
            most = min(most, noted_most(self.sizes))
        batch = left.first(most)
        if last and not batch.size:
            return last
        return batch.to_json()
