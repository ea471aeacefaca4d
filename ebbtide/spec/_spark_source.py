"""The source of a pipeline whose rows come from a query of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from ebbtide import sources
from ebbtide.spec._positioned import PositionedPart

if TYPE_CHECKING:
    from ebbtide.sources import HandedRows, PositionedSource, SourceSettings


class SparkSource(PositionedPart):
    """Rows that a query of Spark hands over: `ebbtide.spark.into` and `ebbtide.spark.upsert`. Each row is a record, as JSON, of the spec's format."""

    type: Literal["spark"] = Field(description="'spark'.")
    # The query decides where rows begin, and how many a micro-batch has.
    start: ClassVar[Literal["earliest"]] = "earliest"  # type: ignore[misc]
    max_records_per_step: ClassVar[int] = 1  # type: ignore[misc]
    max_bytes_per_step: ClassVar[None] = None  # type: ignore[misc]
    max_records_per_second: ClassVar[None] = None  # type: ignore[misc]
    _rows: HandedRows | None = PrivateAttr(default=None)

    @property
    def topic(self) -> None:
        """None: records are not selected by topic."""
        return None

    def handed(self, rows: HandedRows) -> Self:
        """Return the source with the rows of a micro-batch."""
        copy = self.model_copy()
        copy._rows = rows  # noqa: SLF001 - of this class
        return copy

    def with_settings(self, settings: SourceSettings) -> PositionedSource:
        """See `PositionedPart.with_settings`."""
        return sources.HandedRows.source(self._rows, settings)
