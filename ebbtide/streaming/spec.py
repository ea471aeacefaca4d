"""The pipeline spec: one schema for YAML, the command line and Python.

In YAML a spec is the `attributes` of a `defs.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ebbtide.errors import ConfigError
from ebbtide.model.changelog import CHANGELOG_COLUMNS
from ebbtide.model.entries import ENTRY_COLUMNS
from ebbtide.model.operators.arrival import ARRIVAL_COLUMNS, ArrivalOperator
from ebbtide.model.operators.sequence import SEQUENCE_COLUMNS, SequenceOperator
from ebbtide.model.ttl import (
    NaturalDuration,
    PositiveDuration,
    StateTtlConfig,
    TimeCharacteristic,
    parse_duration,
    to_ms,
)
from ebbtide.paths import resolve
from ebbtide.sources.change import Decoder
from ebbtide.sources.columns import TimeUnit, convert
from ebbtide.sources.debezium import DebeziumDecoder
from ebbtide.sources.decode import STAGED_COLUMNS, Decoding
from ebbtide.sources.plain import PlainDecoder
from ebbtide.streaming.ddl import TableSchema, parse_ddl

RESERVED_COLUMNS = frozenset(
    CHANGELOG_COLUMNS | ENTRY_COLUMNS | SEQUENCE_COLUMNS | ARRIVAL_COLUMNS | STAGED_COLUMNS
) | {
    "_entry",
    "_note",
    "_commit_version",
    "_commit_timestamp",
    "_change_type",
}
NAME = r"^[a-z][a-z0-9_]{0,62}$"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class FileSource(_Model):
    """A folder of JSON-lines files, plain or gzip, read once each in the order of their names."""

    type: Literal["files"] = Field(default="files", description="'files'. Default and only source.")
    path: str = Field(
        description="Folder of the files; relative to the project (the nearest folder above the spec with a pyproject.toml). Required."
    )
    records: Literal["kafka", "value"] = Field(
        default="kafka",
        description="A line holds 'kafka': a Kafka record (topic, partition, offset, key, value as text), or 'value': the bare value. Default: kafka.",
    )
    topic: str | None = Field(default=None, description="Take only records of this topic. Default: all.")
    table: str | None = Field(
        default=None,
        description="Take only Debezium events of this source table, 'orders' or 'public.orders'. Default: all.",
    )
    max_files_per_step: int = Field(
        default=100, gt=0, description="Files read in one step, above 0; more make fewer, longer steps. Default: 100."
    )


class DebeziumFormat(_Model):
    """Debezium change events: envelope, with schema, or flattened; told apart record by record."""

    type: Literal["debezium"] = Field(description="'debezium'.")
    time_units: dict[str, TimeUnit] = Field(
        default_factory=dict,
        description="Column to what its integers mean: ms, us, ns. A record's own schema goes first. Default: us for every TIMESTAMP.",
    )


class PlainFormat(_Model):
    """Changelog rows: a kind (+I -U +U -D), a row, and optionally its place in the source."""

    type: Literal["plain"] = Field(description="'plain'.")
    kind: str = Field(default="kind", description="Field with the row kind. Default: kind.")
    row: str | None = Field(
        default="row", description="Field with the row; null if the columns stand beside the kind. Default: row."
    )
    position: list[str] = Field(
        default_factory=list,
        max_length=2,
        description="Fields with the record's partition and position, by which a redelivery is known. Default: none; file and line count.",
    )
    time_units: dict[str, TimeUnit] = Field(
        default_factory=dict, description="Column to what its integers mean: ms, us, ns. Default: us."
    )


class SequenceOrder(_Model):
    """The greatest sequence per key wins, whatever the arrival."""

    sequence: list[str] = Field(
        min_length=1,
        max_length=1,
        description="The one column that orders a key's changes: [_lsn] (Debezium's source.lsn), or an integer, date or timestamp column. Required.",
    )


class QuarantineConfig(_Model):
    """What makes a record bad beyond its form, and how many bad ones a step may have."""

    max_rows_per_step: int = Field(
        default=1000,
        ge=0,
        description="Bad records in one step above which the run fails before it commits anything. Default: 1000.",
    )
    max_record_bytes: int = Field(
        default=16 * 2**20, gt=0, description="Bytes above which a record is bad. Default: 16 MiB."
    )
    max_ahead: NaturalDuration | None = Field(
        default=None,
        description="A record is bad if its event time is further ahead of now. Default: none is.",
    )


class DeltaSink(_Model):
    """The Delta table that the pipeline keeps right, at ROOT/NAME/sink."""

    type: Literal["delta"] = Field(default="delta", description="'delta'. Default and only sink.")
    table_properties: dict[str, str] = Field(
        default_factory=dict,
        description="Delta table properties, set when the sink is created. Default: none; the change feed is always on.",
    )


class ChecksConfig(_Model):
    """What the checks allow."""

    expiry_grace: NaturalDuration = Field(
        default="1h",
        validate_default=True,
        description="How late an entry may expire before the check 'expiry' is an error; before that it warns. Default: 1h.",
    )
    cleanup_within: NaturalDuration = Field(
        default="7d",
        validate_default=True,
        description="How long an expired entry may stay stored before 'expiry' warns that no cleanup ran. Default: 7d.",
    )
    max_quarantine_rate: float = Field(
        default=0.01, ge=0, le=1, description="Greatest share of bad records, 0 to 1. Default: 0.01."
    )


class SchedulesConfig(_Model):
    """When Dagster starts the jobs, as cron expressions in UTC; each schedule is off until switched on."""

    stream: str | None = Field(
        default="*/15 * * * *", description="The job NAME_stream; null: no schedule. Default: '*/15 * * * *'."
    )
    cleanup: str | None = Field(
        default="0 3 * * *", description="The job NAME_cleanup; null: no schedule. Default: '0 3 * * *'."
    )
    compaction: str | None = Field(
        default="30 3 * * *", description="The job NAME_compaction; null: no schedule. Default: '30 3 * * *'."
    )


class FreshnessConfig(_Model):
    """How old the sink's last materialization may be."""

    fail_window: PositiveDuration = Field(description="Age at which the sink is stale. Required.")
    warn_window: PositiveDuration | None = Field(
        default=None, description="Age at which it is about to be; below fail_window. Default: none."
    )


class UpsertPipeline(_Model):
    """A changelog source, how its rows are reconciled, and the table that is kept right.

    Example:
        >>> spec = UpsertPipeline(
        ...     name="orders", source={"path": "in"}, format={"type": "debezium"},
        ...     schema="id BIGINT NOT NULL, total DECIMAL(12,2)", key=["id"], order={"sequence": ["_lsn"]}, ttl="30d",
        ... )
        >>> spec.ttl.ttl.days, spec.order.sequence
        (30, ['_lsn'])
    """

    name: str = Field(
        pattern=NAME, description="Name of the pipeline: lower-case letters, digits, underscores. Required."
    )
    description: str = Field(default="", description="What the sink holds, for people. Default: empty.")
    owners: list[str] = Field(default_factory=list, description="Email addresses or team:NAME. Default: none.")
    group: str = Field(default="default", pattern=NAME, description="Group of the assets. Default: default.")
    source: FileSource = Field(description="Where the changelog comes from. Required.")
    format: Annotated[DebeziumFormat | PlainFormat, Field(discriminator="type")] = Field(
        description="How its records are coded. Required."
    )
    schema_: str = Field(
        alias="schema",
        description="The sink's columns as Spark DDL. NOT NULL refuses nulls; DEFAULT literal is the value in records from before the column was added; a column without one must be in every record. Required.",
    )
    key: list[str] = Field(
        min_length=1, description="The sink's primary key: columns of the schema with an exact type. Required."
    )
    order: Literal["arrival"] | SequenceOrder = Field(
        description="'arrival': retractions and additions apply as they arrive; {sequence: [_lsn]}: the greatest sequence per key wins. Required."
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
    ttl: StateTtlConfig | None = Field(
        default=None,
        description="Time to live of state: '30d', or the fields of StateTtlConfig. Sequence mode: of tombstones; arrival mode: of each row of a history. Default: for ever.",
    )
    max_clock_jump: PositiveDuration = Field(
        default="366d",
        validate_default=True,
        description="The most that a step's clock may be ahead of the last step's; a greater jump is held and reported. Default: 366d.",
    )
    lease_ttl: PositiveDuration = Field(
        default="60s",
        validate_default=True,
        description="How long a silent run on another machine keeps the pipeline to itself. Default: 60s.",
    )
    quarantine: QuarantineConfig = Field(
        default_factory=QuarantineConfig, description="Limits for bad records. Default: those of QuarantineConfig."
    )
    sink: DeltaSink = Field(
        default_factory=DeltaSink, description="The sink table. Default: Delta, no further properties."
    )
    checks: ChecksConfig = Field(
        default_factory=ChecksConfig, description="What the checks allow. Default: that of ChecksConfig."
    )
    schedules: SchedulesConfig = Field(
        default_factory=SchedulesConfig, description="When Dagster starts the jobs. Default: that of SchedulesConfig."
    )
    freshness: FreshnessConfig = Field(
        default_factory=lambda: FreshnessConfig(fail_window=timedelta(days=1)),
        description="How old the sink may get. Default: fail_window 1d.",
    )

    @field_validator("ttl", mode="before", json_schema_input_type=str | StateTtlConfig | None)
    @classmethod
    def _bare_ttl(cls, value: Any) -> Any:
        return value if value is None or isinstance(value, dict | StateTtlConfig) else {"ttl": parse_duration(value)}

    @model_validator(mode="after")
    def _fits_together(self) -> UpsertPipeline:
        columns = self.table.columns
        names = columns.names
        _refuse("schema", [n for n in names if n.lower() in RESERVED_COLUMNS], "names that Ebbtide does not reserve")
        unfit = [
            f"{n} DEFAULT {'NULL' if value is None else value}"
            for n, value in self.table.defaults.items()
            if not self._fits(value, columns.field(n))
        ]
        _refuse("schema", unfit, "defaults that fit their columns")
        _refuse("key", [k for k in self.key if k not in names], f"columns of the schema: {', '.join(names)}")
        _refuse("key", [k for k in self.key if self.key.count(k) > 1], "each column once")
        inexact = [
            k
            for k in self.key
            if pa.types.is_floating(columns.field(k).type) or pa.types.is_nested(columns.field(k).type)
        ]
        _refuse("key", inexact, "columns with an exact type: no FLOAT, DOUBLE, ARRAY, MAP, STRUCT")
        times = [n for n in names if pa.types.is_timestamp(columns.field(n).type)]
        _refuse(
            "format.time_units",
            [n for n in self.format.time_units if n not in times],
            f"TIMESTAMP columns: {', '.join(times) or 'none in the schema'}",
        )
        dated = [n for n in names if pa.types.is_temporal(columns.field(n).type)]
        _refuse(
            "event_time",
            [n for n in [self.event_time] if n and n not in dated],
            f"DATE or TIMESTAMP columns: {', '.join(dated) or 'none in the schema'}",
        )
        if self.sequence is not None:
            ordered = dated + [n for n in names if pa.types.is_integer(columns.field(n).type)]
            ordered += ["_lsn"] if isinstance(self.format, DebeziumFormat) else []
            _refuse(
                "order.sequence",
                [n for n in [self.sequence] if n not in ordered],
                f"integer, date or timestamp columns: {', '.join(ordered)}",
            )
        if self.ttl and self.ttl.expire_live and self.sequence is None:
            _refuse("ttl.expire_live", [True], "false with order: arrival, where every row of a history expires anyway")
        if self.needs_event_time and self.event_time is None and isinstance(self.format, PlainFormat):
            _refuse(
                "event_time",
                [None],
                f"a DATE or TIMESTAMP column, since the ttl goes by event time: {', '.join(dated) or 'none in the schema'}",
            )
        if self.source.table and isinstance(self.format, PlainFormat):
            _refuse(
                "source.table", [self.source.table], "none with format plain, whose records do not name their table"
            )
        if self.source.topic and self.source.records == "value":
            _refuse("source.topic", [self.source.topic], "none with records: value, which name no topic")
        return self

    def _fits(self, default: Any, column: pa.Field) -> bool:
        if default is None:
            return bool(column.nullable)
        if isinstance(default, str) and pa.types.is_string(column.type):
            return True  # said here, since `convert` loads pandas, and specs are loaded often
        return not convert([default], column.type, self.format.time_units.get(column.name, "us"))[1]

    @cached_property
    def table(self) -> TableSchema:
        """The parsed schema; key columns are not nullable."""
        try:
            table = parse_ddl(self.schema_)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return TableSchema(
            pa.schema([f.with_nullable(f.nullable and f.name not in self.key) for f in table.columns]),
            table.defaults,
            table.comments,
        )

    @property
    def sequence(self) -> str | None:
        """The column that orders changes; None in arrival mode."""
        return self.order.sequence[0] if isinstance(self.order, SequenceOrder) else None

    @property
    def needs_event_time(self) -> bool:
        """Whether state expires by event time."""
        return self.ttl is not None and self.ttl.time_characteristic is TimeCharacteristic.EVENT_TIME

    @property
    def has_positions(self) -> bool:
        """Whether records carry their place in the source, so that a redelivery can be known."""
        return self.source.records == "kafka" or (isinstance(self.format, PlainFormat) and bool(self.format.position))

    @cached_property
    def operator(self) -> SequenceOperator | ArrivalOperator:
        """The reconciler."""
        kind = SequenceOperator if self.sequence else ArrivalOperator
        return kind(self.table.columns, tuple(self.key), self.ttl)

    @cached_property
    def decoding(self) -> Decoding:
        """The decoder of raw records."""
        key, decoder = tuple(self.key), self._decoder()
        ahead = self.quarantine.max_ahead
        return Decoding(
            self.table.columns,
            key,
            decoder,
            defaults=self.table.defaults,
            kafka_records=self.source.records == "kafka",
            topic=self.source.topic,
            sequence=self.sequence,
            event_time=self.event_time,
            needs_event_time=self.needs_event_time,
            time_units=self.format.time_units,
            max_record_bytes=self.quarantine.max_record_bytes,
            max_ahead_ms=None if ahead is None else to_ms(ahead),
        )

    def _decoder(self) -> Decoder:
        if isinstance(self.format, DebeziumFormat):
            return DebeziumDecoder(tuple(self.key), retract=self.sequence is None, table=self.source.table)
        return PlainDecoder(self.format.kind, self.format.row, tuple(self.format.position))

    @property
    def identity(self) -> dict[str, Any]:
        """What stored state depends on; a change of it needs a refresh."""
        columns = [f"{f.name} {f.type}" for f in self.table.columns]
        return {
            "key": self.key,
            "order": "arrival" if self.sequence is None else [self.sequence],
            "columns": columns,
            "ttl": self.ttl is not None,
        }

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the spec with other fields, which are not checked; what follows from the fields is worked out anew."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("table", "operator", "decoding"):
            copied.__dict__.pop(name, None)
        return copied

    @classmethod
    def load(cls, location: str | Path) -> UpsertPipeline:
        """Read a spec from a `defs.yaml`, or from the folder that holds one.

        Raises:
            ConfigError: no such file, not YAML, or not a usable spec; the message names file and field.
        """
        path = Path(location)
        path = path / "defs.yaml" if path.is_dir() else path
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError.of(
                f"The spec '{path}' cannot be read: {error}.", allowed="a defs.yaml, or a folder with one"
            ) from error
        attributes = document.get("attributes") if isinstance(document, dict) else None
        if not isinstance(attributes, dict):
            raise ConfigError.of(f"The spec '{path}' has no attributes.", allowed="type: and attributes: at the top")
        try:
            spec = cls.model_validate(attributes)
        except ValidationError as error:
            raise ConfigError(f"The spec '{path}' is not usable. {_explain(error)}") from error
        return spec.located(path)

    def located(self, path: Path) -> UpsertPipeline:
        """Return the spec with its source's path made absolute.

        Args:
            path: The spec's file or folder; a relative source belongs to the nearest folder above with a pyproject.toml.
        """
        above = [path.resolve(), *path.resolve().parents]
        home = path.resolve() if path.is_dir() else path.resolve().parent
        base = next((p for p in above if (p / "pyproject.toml").exists()), home)
        source = self.source.model_copy(update={"path": resolve(self.source.path, base)})
        return self.model_copy(update={"source": source})


def _refuse(field: str, got: list[Any], allowed: str) -> None:
    if got:
        raise ValueError(f"{field}: got {', '.join(map(str, got))}; allowed: {allowed}")


def _explain(error: ValidationError) -> str:
    lines = []
    for e in error.errors(include_url=False):
        place = ".".join(str(p) for p in e["loc"])
        message = e["msg"].removeprefix("Value error, ")
        lines.append(f"{place}: {message}" + ("" if not place or "got" in message else f", got {e['input']!r}"[:120]))
    return "; ".join(lines) + "."


__all__ = [
    "ChecksConfig",
    "DebeziumFormat",
    "DeltaSink",
    "FileSource",
    "FreshnessConfig",
    "PlainFormat",
    "QuarantineConfig",
    "SchedulesConfig",
    "SequenceOrder",
    "UpsertPipeline",
]
