"""A source that is read by position as Spark's stream: it plans batches from what the driver has noted, and asks the source nothing itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ebbtide.errors import SourceReadError
from ebbtide.sources.sizing import noted_most
from ebbtide.sources.span import Span
from ebbtide.storage.paths import read_bytes


class SpanStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans steps; it lives in a process of its own, started by Spark, and holds no credentials.

    Args:
        plan: Location of the range that there is to read, which may grow while the stream runs.
        max_records: Offsets of one step.
        limits_bytes: A step has no more of them than is noted beside the plan either.
    """

    def __init__(self, plan: str, max_records: int, *, limits_bytes: bool = False) -> None:
        self.plan = plan
        self.max_records = max_records
        self.limits_bytes = limits_bytes

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before the first batch; the plan has where that begins."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit a step to `max_records`."""
        return ReadMaxRows(self.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Leave the plan as it is: it was made for this run."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit = ReadAllAvailable()) -> dict[str, Any]:  # noqa: N802, B008
        """Return the range of the next batch; `start`, that of the last one, if there is no more.

        Spark makes a first batch in any case: of a source without records it has none, and begins where they will.
        """
        left = self._planned()
        if start:
            last = Span.from_json(start)
            left = left.behind(last)
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
            if self.limits_bytes:
                most = min(most, noted_most(self.plan))
            left = left.first(most)
        is_nothing_new = bool(start) and not left.size
        return start if is_nothing_new else left.to_json()

    def _planned(self) -> Span:
        raw = read_bytes(self.plan)
        if raw is None:
            raise SourceReadError.of(f"The plan of the run is gone: '{self.plan}'.", next_step="Run again.")
        return Span.from_json(json.loads(raw))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Name no partitions: steps read the offset."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Give no rows."""
        return iter(())


class SpanDataSource(DataSource):
    """`spark.readStream.format("ebbtide_spans")` with options plan, maxRecords, limitsBytes."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ebbtide_spans"

    def schema(self) -> str:
        """Return the columns; no row is ever given."""
        return "part STRING"

    def streamReader(self, schema: Any) -> SpanStreamReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return SpanStreamReader(
            self.options["plan"],
            int(self.options["maxRecords"]),
            limits_bytes=self.options["limitsBytes"] == "True",
        )
