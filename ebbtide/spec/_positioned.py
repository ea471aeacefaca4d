"""Fields of any source that is read by position, by offsets of partitions; and the source whose rows a query of Spark hands over."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from ebbtide import sources
from ebbtide.spec._parts import Name, SpecPart, refuse
from ebbtide.spec._row_functions import UserFunction

if TYPE_CHECKING:
    from ebbtide.sources import MicroBatches, PositionedSource, SourceSettings

STEP_S = 10
"""Maximum seconds' worth of records in a step at a limited rate."""


class SourceStart(SpecPart):
    """The position at which the first step begins to read; exactly one of the two fields."""

    timestamp: datetime | None = Field(
        default=None,
        description="At the first record with this time or a later one; without a zone it is UTC. Default: none.",
    )
    offsets: dict[int, int] | None = Field(
        default=None,
        description="Partition to the offset of its first record; a missing one begins at its earliest. Default: none.",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [name for name in ("timestamp", "offsets") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "neither"
            refuse("start", [got], "timestamp or offsets")
        return self

    @field_validator("timestamp")
    @classmethod
    def _has_zone(cls, value: datetime | None) -> datetime | None:
        is_local = value is not None and value.tzinfo is None
        return value.replace(tzinfo=UTC) if value is not None and is_local else value

    @field_validator("offsets")
    @classmethod
    def _are_natural(cls, value: dict[int, int] | None) -> dict[int, int] | None:
        negative = [
            f"{partition}: {offset}" for partition, offset in (value or {}).items() if min(partition, offset) < 0
        ]
        refuse("start.offsets", negative, "partitions and offsets from 0")
        return value


class PositionedPart(SpecPart):
    """A source that is read by position."""

    by_position: ClassVar[bool] = True
    listed_as: ClassVar[str] = ""
    """Field of `UpsertPipelines` with a pattern of such sources; empty if there is none."""
    path: ClassVar[None] = None
    """None: a source that is read by position names its place in its fields."""

    type: str = Field(description="Which source.")
    table: Name | None = Field(
        default=None,
        description="Take only Debezium events of this source table, 'orders' or 'public.orders'. Default: all.",
    )
    start: Literal["earliest", "latest"] | SourceStart = Field(
        default="earliest",
        description="Where the first step begins: earliest, latest, {timestamp: 2026-01-31T00:00:00Z} or {offsets: {0: 12, 1: 0}}, see [SourceStart](#sourcestart). Later steps continue where the last one ended. Default: earliest.",
    )
    max_records_per_step: int = Field(
        default=500_000,
        gt=0,
        description="Offsets per step, over all partitions, above 0. More offsets make fewer, longer steps. Default: 500000.",
    )
    max_bytes_per_step: int | None = Field(
        default=None,
        gt=0,
        description="Approximate bytes of values per step, over all partitions, above 0. The number of offsets is estimated from the last step's record size; it at most doubles per step (minimum 10000); see [decision 0022](decisions/0022-bytes-of-a-topic-s-step.md). Default: no limit.",
    )
    max_records_per_second: int | None = Field(
        default=None,
        gt=0,
        description="Maximum records per second that a run reads on average, above 0. Steps become smaller and are delayed. For a backfill next to other runs, or to protect a source. Default: no limit.",
    )

    def opened(self, pipeline: str, *, in_order: bool, has_positions: bool = True) -> PositionedSource:
        """Return the source of a pipeline's records; see `SourcePart.opened`."""
        start = self.start
        settings = sources.SourceSettings(
            pipeline,
            start if isinstance(start, str) else start.timestamp or start.offsets or {},
            in_order,
            self.records_per_step,
            self.max_bytes_per_step,
        )
        return self.with_settings(settings)

    @abstractmethod
    def with_settings(self, settings: SourceSettings) -> PositionedSource:
        """Return the source with the settings of a pipeline."""

    @property
    def place(self) -> str:
        """Name of this source among those that a pattern lists."""
        return self.type

    @property
    def server(self) -> str:
        """The first bootstrap server, HOST:PORT; empty if there is none."""
        return ""

    @property
    def address(self) -> Hashable:
        """The address where sources are listed."""
        return self.type

    @property
    def records_per_step(self) -> int:
        """Offsets per step; at a limited rate at most some seconds' worth."""
        if self.max_records_per_second is None:
            return self.max_records_per_step
        return min(self.max_records_per_step, self.max_records_per_second * STEP_S)

    @property
    def records(self) -> Literal["kafka"]:
        """The form in which the quarantine keeps a record: a line with its source's name, partition, offset, key and value."""
        return "kafka"

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that select the records; address and start are compared separately."""
        return {"type": self.type, "table": self.table}


class SparkSource(PositionedPart):
    """Rows of a stream of Spark, each a record, as JSON, of the spec's format: a function's, or those that a program hands over by `ebbtide.spark`."""

    type: Literal["spark"] = Field(description="'spark'.")
    function: str | None = Field(
        default=None,
        pattern=UserFunction.TARGET,
        description="'module:name' of a function that takes Spark's session and returns a streaming DataFrame. A run starts its query, with a checkpoint in the pipeline's folder. Default: none; a program hands rows over, see [streams of Spark](../how-to/spark-streams.md).",
    )
    # The query decides where rows begin, and how many a micro-batch has.
    start: ClassVar[Literal["earliest"]] = "earliest"  # type: ignore[misc]
    max_records_per_step: ClassVar[int] = 1  # type: ignore[misc]
    max_bytes_per_step: ClassVar[None] = None  # type: ignore[misc]
    max_records_per_second: ClassVar[None] = None  # type: ignore[misc]
    _batches: MicroBatches | None = PrivateAttr(default=None)

    @property
    def topic(self) -> None:
        """None: records are not selected by topic."""
        return None

    @property
    def is_handed(self) -> bool:
        """Return whether it has its micro-batches."""
        return self._batches is not None

    def handed(self, batches: MicroBatches) -> Self:
        """Return the source with its micro-batches."""
        copy = self.model_copy()
        copy._batches = batches  # noqa: SLF001 - of this class
        return copy

    def with_settings(self, settings: SourceSettings) -> PositionedSource:
        """See `PositionedPart.with_settings`."""
        return sources.MicroBatches.source(self._batches, settings, begins_query=self.function is not None)
