"""The fields that all pipelines have: what a user writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from ebbtide.durations import NaturalDuration, PositiveDuration
from ebbtide.executors import EngineKind
from ebbtide.spec._extensions import (
    FORMATS,
    OTHER,
    SINKS,
    SOURCES,
    TOOL,
    OtherFormat,
    OtherOutput,
    OtherSink,
    OtherSource,
    kind_in,
)
from ebbtide.spec._kafka import KafkaSource
from ebbtide.spec._names import NAME
from ebbtide.spec._parts import (
    ChecksConfig,
    ColumnConfig,
    DebeziumFormat,
    DeltaSink,
    FileSource,
    MappedFormat,
    Name,
    PlainFormat,
    QuarantineConfig,
    SchemaEvolutionMode,
    ToolFormat,
)
from ebbtide.spec._positioned import SparkSource
from ebbtide.spec._scheduling import FreshnessConfig, SchedulesConfig
from ebbtide.spec._traits import Traits


class PipelineFields(Traits):
    """The fields of all pipelines: a source and its format, a key, a sink, and their maintenance."""

    name: str = Field(
        pattern=NAME, description="Name of the pipeline: lower-case letters, digits, underscores. Required."
    )

    description: str = Field(default="", description="What the sink holds, for people. Default: empty.")
    owners: list[str] = Field(default_factory=list, description="Email addresses or team:NAME. Default: none.")
    group: str = Field(default="default", pattern=NAME, description="Group of the assets. Default: default.")
    source: Annotated[
        Annotated[FileSource, Tag("files")]
        | Annotated[KafkaSource, Tag("kafka")]
        | Annotated[SparkSource, Tag("spark")]
        | Annotated[OtherSource, Tag(OTHER)],
        Discriminator(kind_in(SOURCES, default="files")),
    ] = Field(
        description="The source of the changelog. Another topic, table or kind of records under the same name is refused; a changed path is confirmed once by 'ebbtide run --accept-source-path'. Required."
    )
    format: Annotated[
        Annotated[DebeziumFormat, Tag("debezium")]
        | Annotated[PlainFormat, Tag("plain")]
        | Annotated[MappedFormat, Tag("mapped")]
        | Annotated[ToolFormat, Tag(TOOL)]
        | Annotated[OtherFormat, Tag(OTHER)],
        Discriminator(kind_in(FORMATS)),
    ] = Field(description="The format of its records. Another format under the same name is refused. Required.")
    schema_: str = Field(
        alias="schema",
        description="The sink's columns as Spark DDL. NOT NULL refuses nulls; DEFAULT literal is the value in records from before the column was added; a column without one must be in every record. Required.",
    )
    key: list[str] = Field(
        min_length=1, description="The sink's primary key: columns of the schema with an exact type. Required."
    )
    columns: dict[str, ColumnConfig] = Field(
        default_factory=dict,
        description="Per-column settings, by column name of the schema or sink: {email: {personal: true}}. Default: none.",
    )
    schema_evolution_mode: SchemaEvolutionMode = Field(
        default="ignore",
        description="Treatment of records with unknown columns. ignore: the columns are left out, and reported by the run's summary and the check 'schema_drift'; evolve: they are added to the schema, nullable, if their type is certain; quarantine: such records are bad (unknown_column); fail: the run is refused before the step commits, also for values that do not fit their type (wrong_type, missing_column). See [drift](drift.md). Default: ignore.",
    )
    ignored_columns: list[Name] = Field(
        default_factory=list,
        description="Columns of the source's records that are always left out, without reports. Default: none.",
    )
    event_time: str | None = Field(
        default=None,
        description="DATE or TIMESTAMP column with the event time. Default: Debezium's source.ts_ms; none for plain changelogs.",
    )
    allowed_delay: NaturalDuration = Field(
        default="0s",
        validate_default=True,
        description="How far the watermark stays behind the greatest event time. Default: 0s.",
    )
    max_clock_jump: PositiveDuration | None = Field(
        default=None,
        description="Largest clock advance per step. A larger jump is capped, reported, and caught up by at most one day per step. `ebbtide clock` sets the clock by hand. Default: half of the shortest ttl that processing time ends, from 2d to 366d.",
    )
    downtime_over: PositiveDuration | None = Field(
        default=None,
        description="A longer pause between the last step and the next run's first is downtime: processing time stands still and nothing ages (FLINK-9661). If set, each run ends with a step that stores the time. Default: none; all time counts.",
    )
    max_group_bytes: int = Field(
        default=64 * 2**20,
        gt=0,
        description="Approximate bytes of changes and stored entries, as Arrow columns, that a worker decides together: at least one whole key. A smaller value needs less memory. Default: 67108864.",
    )
    run: Literal["bounded", "continuous"] = Field(
        default="bounded",
        description="bounded: a run reads the available records and ends; continuous: it keeps reading until it is stopped. Default: bounded.",
    )
    engine: EngineKind = Field(
        default="auto",
        description="The engine of runs. local: in the run's process, without a JVM; spark: on Spark; auto: local, in steps of at most 64 MiB of files or 100,000 records, unless the pipeline needs Spark, a file is larger, or Spark has a cluster. Either one continues where the other stopped. Default: auto.",
    )
    trigger_interval: PositiveDuration = Field(
        default="1s",
        validate_default=True,
        description="Minimum time between steps of a continuous run. A longer time makes fewer, larger steps. Default: 1s.",
    )
    max_run_age: PositiveDuration | None = Field(
        default=None,
        description="Maximum age of a continuous run. A new run then replaces it after a step, with fresh memory, certificates and packages. In Dagster its assets are then materialized and checked. Below freshness.fail_window. Default: none; it runs until it is stopped.",
    )
    lease_ttl: PositiveDuration = Field(
        default="60s",
        validate_default=True,
        description="How long after its last heartbeat a run on another host still holds the lease. Default: 60s.",
    )
    quarantine: QuarantineConfig = Field(
        default_factory=QuarantineConfig, description="Limits for bad records. Default: those of QuarantineConfig."
    )
    sink: Annotated[
        Annotated[DeltaSink, Tag("delta")] | Annotated[OtherSink, Tag(OTHER)],
        Discriminator(kind_in(SINKS, default="delta")),
    ] = Field(default_factory=DeltaSink, description="The sink table. Default: Delta, no further properties.")
    outputs: dict[Name, OtherOutput] = Field(
        default_factory=dict,
        description="Further outputs, by name: {search: {type: documents}}. Each shows the rows of the sink, which is of type delta then. Default: none.",
    )
    checks: ChecksConfig = Field(
        default_factory=ChecksConfig, description="Limits of the checks. Default: those of ChecksConfig."
    )
    schedules: SchedulesConfig = Field(
        default_factory=SchedulesConfig, description="When Dagster starts the jobs. Default: those of SchedulesConfig."
    )
    freshness: FreshnessConfig = Field(
        default_factory=lambda: FreshnessConfig(fail_window=timedelta(days=1)),
        description="Maximum age of the sink. Default: fail_window 1d.",
    )
