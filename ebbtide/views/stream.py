"""The versions of a view's tables as a stream: one batch a run, up to the versions that were pinned when it began.

A Python data source for Spark, whose checkpoint so notes what each step was computed from before it is. Its offset is
`{"query": hash, "inputs": {name: {"id": .., "version": ..}}}`; the rows are read by the step itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from ebbtide.model.step import ViewPosition
from ebbtide.paths import read_bytes, write_bytes

Offset = dict[str, Any]


def write_position(location: str, position: ViewPosition) -> None:
    """Write where a run goes to, for the stream to take it from."""
    write_bytes(location, position.model_dump_json().encode())


def position_of(offset: Offset) -> ViewPosition:
    """Read an offset."""
    return ViewPosition.model_validate(offset)


class VersionsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the one batch; it lives in a process of its own, started by Spark.

    Args:
        location: Where `write_position` wrote.
    """

    def __init__(self, location: str) -> None:
        self.location = location

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before the first step."""
        return {"query": "", "inputs": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit nothing."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Leave the position as it is: it was written for this run."""

    def latestOffset(self, start: Offset, limit: ReadLimit = ReadAllAvailable()) -> Offset:  # noqa: N802, B008
        """Return the position that the run goes to."""
        raw = read_bytes(self.location)
        found: Offset = start if raw is None else json.loads(raw)
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Name nothing: the step reads the offset."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Read nothing."""
        yield from ()


class VersionsDataSource(DataSource):
    """`spark.readStream.format("ebbtide_versions")` with option position."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ebbtide_versions"

    def schema(self) -> str:
        """Return the columns: there are no rows."""
        return "input STRING"

    def streamReader(self, schema: Any) -> VersionsReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return VersionsReader(self.options["position"])
