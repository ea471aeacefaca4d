"""A folder of files as a source. Listing it takes no Spark; `ebbtide.sources.files` streams it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebbtide.sources import listing
from ebbtide.sources.source import Discovery, Part, Records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FileSource:
    """A folder of JSON-lines files; each is read once, in the order of their names.

    Args:
        path: The folder.
        patterns: Files to read; see `ebbtide.sources.listing.matches`.
        in_order: Refuse a new file below one that was read from its own folder (arrival mode).
        min_age_ms: Least time since a file was written.
        max_files_per_step: Files read in one step.
    """

    path: str
    patterns: tuple[str, ...]
    in_order: bool
    min_age_ms: int
    max_files_per_step: int

    def refuse_absent(self) -> None:
        """See `Source`."""
        listing.refuse_absent(self.path)

    def discover(self, read: Mapping[str, int | None], now_ms: int) -> Discovery:
        """See `Source` and `ebbtide.sources.listing.discover`."""
        return listing.discover(
            self.path,
            self.patterns,
            read,
            in_order=self.in_order,
            min_age_ms=self.min_age_ms,
            now_ms=now_ms,
        )

    def stream(self, spark: SparkSession, found: Discovery, location: str) -> DataFrame:
        """See `Source`."""
        from ebbtide.sources.files import FileDataSource, write_plan

        spark.dataSource.register(FileDataSource)
        write_plan(location, found.parts)
        options: dict[str, str | int] = {
            "plan": location,
            "maxFiles": self.max_files_per_step,
            "tasks": spark.sparkContext.defaultParallelism,
        }
        stream = spark.readStream.format(FileDataSource.name())
        return stream.options(**options).load()

    def reader(self, max_record_bytes: int) -> Records:
        """See `Source`."""
        from ebbtide.sources.files import read_files

        return read_files(self.path, max_record_bytes)

    def parts_of(self, offset: Any) -> Sequence[Part]:
        """See `Source`."""
        from ebbtide.sources.files import files_of

        return files_of(offset)
