"""The pipeline spec: one schema for YAML, the command line and Python.

In YAML a spec is the `attributes` of a `defs.yaml`. What all pipelines share is here, each kind has a module beside this one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
import yaml
from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from ebbtide.errors import ConfigError
from ebbtide.formats.columns import convert
from ebbtide.formats.settings import STAGED_COLUMNS
from ebbtide.model.changelog import CHANGELOG_COLUMNS, RowKind
from ebbtide.model.durations import NaturalDuration, PositiveDuration, format_duration
from ebbtide.model.entries import ENTRY_COLUMNS
from ebbtide.model.sequences import LOG_POSITIONS
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.arrival.rules import ARRIVAL_COLUMNS
from ebbtide.operators.sequence.rules import SEQUENCE_COLUMNS
from ebbtide.paths import is_local, resolve
from ebbtide.redaction import is_credential
from ebbtide.spec.ddl import DELTA_REFUSES, TableSchema, added_ddl, all_names, as_compared, is_exact, parse_ddl
from ebbtide.spec.extensions import (
    BUILT_IN,
    FORMATS,
    OTHER,
    SINKS,
    SOURCES,
    OtherFormat,
    OtherSink,
    OtherSource,
    kind_in,
)
from ebbtide.spec.kafka import KafkaSource
from ebbtide.spec.parts import (
    ChecksConfig,
    ColumnConfig,
    DebeziumFormat,
    DeltaSink,
    FileSource,
    FreshnessConfig,
    Name,
    PlainFormat,
    QuarantineConfig,
    SchedulesConfig,
    SchemaEvolutionMode,
    SpecPart,
    refuse,
)
from ebbtide.spec.row_functions import make_importable

RESERVED_COLUMNS = frozenset(CHANGELOG_COLUMNS | ENTRY_COLUMNS | ARRIVAL_COLUMNS | STAGED_COLUMNS) | {
    *SEQUENCE_COLUMNS,
    *LOG_POSITIONS,
    "_entry",
    "_note",
    "_commit_version",
    "_commit_timestamp",
    "_change_type",
    *("_n", "_rows", "_new", "_before", "_truncates", "_emptied", "_decided", "_waits", "_overdue_ms"),
}
"""What stands beside the user's columns: in the tables, in staged rows, in what checks compute."""
MAX_EVENT_TIME_AHEAD = timedelta(days=1)
"""Where state expires by event time and the spec says nothing: clocks of sources are off by hours, not by days."""
_WRITTEN = "_written_path"
"""Beside a spec's fields: its source's path, absolute and as it was written. It makes no difference to whether specs are equal."""
_CHOSEN = {
    (part, tag)
    for part, group in (("source", SOURCES), ("format", FORMATS), ("sink", SINKS))
    for tag in (*BUILT_IN[group], OTHER)
}
"""How the location of an error begins in a part whose model was chosen by its tag."""
OPTIONAL_PARTS = ("transform",)
"""Parts of a spec's identity that it may lack."""
NAME = r"^[a-z][a-z0-9_]{0,62}$"
OWNER = re.compile(r"team:.+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
"""What Dagster takes for an owner."""


class Pipeline(SpecPart):
    """What all pipelines share: a source and how it is coded, a key, a sink, and how they are looked after."""

    name: str = Field(
        pattern=NAME, description="Name of the pipeline: lower-case letters, digits, underscores. Required."
    )
    description: str = Field(default="", description="What the sink holds, for people. Default: empty.")
    owners: list[str] = Field(default_factory=list, description="Email addresses or team:NAME. Default: none.")
    group: str = Field(default="default", pattern=NAME, description="Group of the assets. Default: default.")
    source: Annotated[
        Annotated[FileSource, Tag("files")] | Annotated[KafkaSource, Tag("kafka")] | Annotated[OtherSource, Tag(OTHER)],
        Discriminator(kind_in(SOURCES, default="files")),
    ] = Field(
        description="Where the changelog comes from. Another topic, table or kind of records under the same name is refused; a changed path is confirmed once by 'ebbtide run --accept-source-path'. Required."
    )
    format: Annotated[
        Annotated[DebeziumFormat, Tag("debezium")]
        | Annotated[PlainFormat, Tag("plain")]
        | Annotated[OtherFormat, Tag(OTHER)],
        Discriminator(kind_in(FORMATS)),
    ] = Field(description="How its records are coded. Another format under the same name is refused. Required.")
    schema_: str = Field(
        alias="schema",
        description="The sink's columns as Spark DDL. NOT NULL refuses nulls; DEFAULT literal is the value in records from before the column was added; a column without one must be in every record. Required.",
    )
    key: list[str] = Field(
        min_length=1, description="The sink's primary key: columns of the schema with an exact type. Required."
    )
    columns: dict[str, ColumnConfig] = Field(
        default_factory=dict,
        description="Column of the schema, or of the sink, to what is to be known of it beside its type: {email: {personal: true}}. Default: nothing.",
    )
    schema_evolution_mode: SchemaEvolutionMode = Field(
        default="ignore",
        description="What becomes of records with columns that the schema lacks. ignore: these columns are left out, and said by the run's summary and the check 'schema_drift'; evolve: they are taken in, nullable, where their type is certain; quarantine: such records are bad (unknown_column); fail: the run is refused before it commits anything of the step, for these and for values that do not fit their type (wrong_type, missing_column), which are bad records else. See [drift](drift.md). Default: ignore.",
    )
    ignored_columns: list[Name] = Field(
        default_factory=list,
        description="Columns of the source's records that are left out on purpose: no mode and no check minds them. Default: none.",
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
    max_clock_jump: PositiveDuration = Field(
        default="366d",
        validate_default=True,
        description="The most that a step's clock may be ahead of the last step's; a greater jump is held and reported, and made up for by a day a step at most; `ebbtide clock` sets the clock by hand. Default: 366d.",
    )
    downtime_over: PositiveDuration | None = Field(
        default=None,
        description="A pause longer than this from the last step to the next run's first is downtime, in which processing time stands still and nothing ages (FLINK-9661). Where it is set, each run ends with a step that notes the time. Default: none; all time counts.",
    )
    max_group_bytes: int = Field(
        default=256 * 2**20,
        gt=0,
        description="About how many bytes of changes and stored entries, as Arrow columns, a worker decides on together: whole keys, so one at least. Less takes less memory. Default: 268435456.",
    )
    run: Literal["bounded", "continuous"] = Field(
        default="bounded",
        description="bounded: a run reads what is there and ends; continuous: it goes on with what comes until it is stopped. Default: bounded.",
    )
    trigger_interval: PositiveDuration = Field(
        default="1s",
        validate_default=True,
        description="Of a continuous run the least time from one step to the next. More make fewer, larger steps. Default: 1s.",
    )
    max_run_age: PositiveDuration | None = Field(
        default=None,
        description="How old a continuous run gets until a new one goes on in its place, after a step: with memory, certificates and packages of its own. In Dagster its assets are then materialized and judged. Below freshness.fail_window. Default: none; it goes on until it is stopped.",
    )
    lease_ttl: PositiveDuration = Field(
        default="60s",
        validate_default=True,
        description="How long a silent run on another machine keeps the pipeline to itself. Default: 60s.",
    )
    quarantine: QuarantineConfig = Field(
        default_factory=QuarantineConfig, description="Limits for bad records. Default: those of QuarantineConfig."
    )
    sink: Annotated[
        Annotated[DeltaSink, Tag("delta")] | Annotated[OtherSink, Tag(OTHER)],
        Discriminator(kind_in(SINKS, default="delta")),
    ] = Field(default_factory=DeltaSink, description="The sink table. Default: Delta, no further properties.")
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

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        strangers = [owner for owner in self.owners if not OWNER.fullmatch(owner)]
        refuse("owners", strangers, "email addresses or team:NAME")
        if self.max_run_age is not None and self.max_run_age >= self.freshness.fail_window:
            limit = format_duration(self.freshness.fail_window)
            refuse("max_run_age", [format_duration(self.max_run_age)], f"less than freshness.fail_window, {limit}")
        columns = self.table.columns
        names = columns.names
        refuse(
            "schema", [n for n in names if as_compared(n) in RESERVED_COLUMNS], "names that Ebbtide does not reserve"
        )
        unfit = [
            f"{n} DEFAULT {'NULL' if value is None else value}"
            for n, value in self.table.defaults.items()
            if not self._fits(value, columns.field(n))
        ]
        refuse("schema", unfit, "defaults that fit their columns")
        if self.spark_makes_sink:
            refused = [n for n in all_names(self.sink_table.columns) if not DELTA_REFUSES.isdisjoint(n)]
            characters = "".join(sorted(DELTA_REFUSES))
            refuse(
                "schema", refused, f"names without any of '{characters}', as Spark makes the sink for its properties"
            )
        columns_there = [*names, *self.sink_table.columns.names]
        unknown = [n for n in self.columns if n not in columns_there]
        refuse("columns", unknown, f"columns of the schema or of the sink: {', '.join(names)}")
        self._refuse_unfit_renames(names)
        read = {*names, *self.renamed.values()}
        refuse("ignored_columns", [n for n in self.ignored_columns if n in read], "columns that the schema lacks")
        refuse("key", [k for k in self.key if k not in names], f"columns of the schema: {', '.join(names)}")
        refuse("key", [k for k in self.key if self.key.count(k) > 1], "each column once")
        inexact = [k for k in self.key if not is_exact(columns.field(k).type)]
        refuse("key", inexact, "columns with an exact type: no FLOAT, DOUBLE, ARRAY, MAP, STRUCT")
        times = [n for n in names if pa.types.is_timestamp(columns.field(n).type)]
        refuse(
            "format.time_units",
            [n for n in self.format.time_units if n not in times],
            f"TIMESTAMP columns: {', '.join(times) or 'none in the schema'}",
        )
        encoded = self.format.encodings if isinstance(self.format, DebeziumFormat) else {}
        exact = [
            n for n in names if pa.types.is_integer(columns.field(n).type) or pa.types.is_decimal(columns.field(n).type)
        ]
        refuse(
            "format.encodings",
            [n for n in encoded if n not in exact],
            f"integer or DECIMAL columns: {', '.join(exact) or 'none in the schema'}",
        )
        narrow = [
            n for n, how in encoded.items() if how == "unsigned" and convert([2**64 - 1], columns.field(n).type)[1]
        ]
        refuse("format.encodings", narrow, "for unsigned, columns that hold 2^64 - 1: DECIMAL(20,0)")
        scaleless = [
            n for n, how in encoded.items() if how == "precise" and not pa.types.is_decimal(columns.field(n).type)
        ]
        refuse("format.encodings", scaleless, "for precise, DECIMAL columns")
        dated = [n for n in names if pa.types.is_temporal(columns.field(n).type)]
        refuse(
            "event_time",
            [n for n in [self.event_time] if n is not None and n not in dated],
            f"DATE or TIMESTAMP columns: {', '.join(dated) or 'none in the schema'}",
        )
        if self.needs_event_time and self.event_time is None and not isinstance(self.format, DebeziumFormat):
            refuse(
                "event_time",
                [None],
                f"a DATE or TIMESTAMP column, since state expires by event time: {', '.join(dated) or 'none in the schema'}",
            )
        if self.source.table and not isinstance(self.format, DebeziumFormat):
            without = f"none with format {self.format.type}, whose records do not name their table"
            refuse("source.table", [self.source.table], without)
        if self.source.topic and self.source.records == "value":
            refuse("source.topic", [self.source.topic], "none with records: value, which name no topic")
        return self

    def _refuse_unfit_renames(self, names: list[str]) -> None:
        old_names = list(self.renamed.values())
        still_there = [old for old in old_names if old in names or old_names.count(old) > 1]
        refuse("columns.renamed_from", still_there, "names that no column has now, each once")
        fixed = [name for name in self.renamed if name in self.fixed_columns or name not in names]
        refuse(
            "columns.renamed_from", fixed, "none of columns that are of the key, the order, or no column of the schema"
        )

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
    def spark_makes_sink(self) -> bool:
        """Whether Spark makes the sink; it makes none of a project's own."""
        return isinstance(self.sink, DeltaSink) and self.sink.is_spark_s

    @property
    def sequence(self) -> tuple[str, ...]:
        """The columns that order changes; none: they apply in order of arrival."""
        return ()

    @property
    def needs_event_time(self) -> bool:
        """Whether state expires by event time."""
        return any(ttl.by_event_time for ttl in self.ttls.values())

    @property
    def ttls(self) -> Mapping[str | None, StateTtlConfig]:
        """Name of a state, None for the only one, to its time to live; of those that expire."""
        return {}

    @property
    def max_event_time_ahead(self) -> timedelta | None:
        """How far a record's event time may be ahead of the wall clock; None: as far as it likes."""
        if "max_event_time_ahead" in self.quarantine.model_fields_set or not self.needs_event_time:
            return self.quarantine.max_event_time_ahead
        return MAX_EVENT_TIME_AHEAD

    @property
    def expires_live(self) -> bool:
        """Whether the sink's row stands in for an entry that has expired."""
        return False

    @property
    def personal(self) -> frozenset[str]:
        """Columns whose values are shown nowhere but in the tables."""
        return frozenset(name for name, column in self.columns.items() if column.personal)

    @property
    def renamed(self) -> dict[str, str]:
        """Columns to what they were called before, of those that were renamed."""
        return {name: column.renamed_from for name, column in self.columns.items() if column.renamed_from}

    @property
    def fixed_columns(self) -> set[str]:
        """Columns by which entries are distinguished or ordered: their names are part of what is stored."""
        return {*self.key, *self.sequence}

    @property
    def sink_table(self) -> TableSchema:
        """The sink's columns; those of its key are not nullable."""
        return self.table

    @property
    def sink_key(self) -> list[str]:
        """The sink's primary key."""
        return self.key

    @property
    def state_key_of(self) -> dict[str, str]:
        """The sink's key columns to those of the state."""
        return {name: name for name in self.sink_key}

    @property
    def selects_changes(self) -> bool:
        """Whether a transform applies to each change, before it is decided on."""
        return False

    @property
    def selects_rows(self) -> bool:
        """Whether a transform applies to each row that was decided."""
        return False

    @property
    def column_sources(self) -> dict[str, list[str]]:
        """The sink's columns to those of the source that they come from; without those that do not."""
        names = self.table.columns.names
        return {name: [name] for name in self.sink_table.columns.names if name in names}

    @property
    def has_transform(self) -> bool:
        """Whether the sink shows something else than the source's rows, or a function's."""
        return self.selects_changes or self.selects_rows

    @property
    def knows_keys(self) -> bool:
        """Whether the state tells which keys of the source have a row."""
        return False

    @property
    def emits_every(self) -> bool:
        """Whether what each record emits is appended to a changelog table."""
        return False

    @property
    def leaves_orphans(self) -> bool:
        """Whether rows may stay in the sink that the state forgets."""
        return False

    @property
    def stream_cron(self) -> str | None:
        """When Dagster's schedule runs it; None: there is no schedule, as for a run that goes on by itself."""
        return self.schedules.stream if self.run == "bounded" else None

    @property
    def has_positions(self) -> bool:
        """Whether records carry their place in the source, so that a redelivery can be known."""
        return self.source.records == "kafka" or (isinstance(self.format, PlainFormat) and bool(self.format.position))

    @property
    def may_repeat_offsets(self) -> bool:
        """Whether a record may be delivered again under its offset: a topic is read once, unless records name other places."""
        names_positions = isinstance(self.format, PlainFormat) and bool(self.format.position)
        return self.has_positions and (names_positions or not self.source.by_position)

    @property
    def kinds_taken(self) -> frozenset[RowKind]:
        """Kinds of changes that are not skipped."""
        return frozenset(RowKind)

    @property
    def takes_truncate(self) -> bool:
        """Whether a TRUNCATE can be applied."""
        return True

    @property
    def retracts(self) -> bool:
        """Whether an update must come as a retraction and an addition."""
        return False

    def lacking(self, evolved: Mapping[str, str]) -> dict[str, str]:
        """Return those of some columns, with their types, that the schema neither has nor had, and that are not to be left out."""
        known = [
            *self.table.columns.names,
            *self.renamed.values(),
            *self.ignored_columns,
        ]
        known_as_compared = {as_compared(name) for name in known}
        lacking = [name for name in evolved if as_compared(name) not in known_as_compared]
        return {name: evolved[name] for name in lacking}

    def with_columns(self, evolved: Mapping[str, str]) -> Self:
        """Return the spec with further columns, null in records that lack them; see `lacking`."""
        if not evolved:
            return self
        schema = ", ".join([self.schema_, *added_ddl(evolved)])
        return self.model_copy(update={"schema_": schema})

    def with_source(self, **changes: Any) -> Self:
        """Return the spec with other values in fields of its source."""
        source = self.source.model_copy(update=changes)
        return self.model_copy(update={"source": source})

    def at_rate(self, max_records_per_second: int | None) -> Self:
        """Return the spec with runs that read no more than so many records a second; None: as it says itself."""
        if max_records_per_second is None:
            return self
        return self.with_source(max_records_per_second=max_records_per_second)

    @property
    def identity(self) -> dict[str, Any]:
        """What stored state depends on: at least what is read."""
        return {"source": self.source.identity, "format": self.format.identity}

    @property
    def source_path(self) -> str | None:
        """Where the source is, as the spec's file says: a relative path stays so, and moves with its project; None if it has none."""
        resolved, written = self.__dict__.get(_WRITTEN, ("", ""))
        return written if self.source.path == resolved else self.source.path

    @property
    def migrates(self) -> frozenset[str]:
        """Parts of `identity` that a migration can change."""
        return frozenset({"ttl"})

    def misfits(self, stored: Mapping[str, Any]) -> list[str]:
        """Return the parts of `identity` that do not fit those that state was stored under; a transform may be gone."""
        identity = self.identity
        names = dict.fromkeys([*identity, *OPTIONAL_PARTS])
        return [name for name in names if stored.get(name) != identity.get(name)]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the spec with other fields, which are not checked; what follows from the fields is computed again."""
        copied = super().model_copy(update=update, deep=deep)
        given = {*type(self).model_fields, _WRITTEN}
        derived = copied.__dict__.keys() - given
        for name in derived:
            del copied.__dict__[name]
        return copied

    @classmethod
    def load(cls, location: str | Path) -> Self:
        """Read a spec from a `defs.yaml`, or from the folder that holds one.

        Raises:
            ConfigError: no such file, not YAML, or not a usable spec; the message names file and field.
        """
        path, document = read_document(location)
        attributes = document.get("attributes")
        if not isinstance(attributes, dict):
            raise ConfigError.of(f"The spec '{path}' has no attributes.", allowed="type: and attributes: at the top")
        return cls.of_attributes(attributes, path)

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any], path: Path) -> Self:
        """Make the spec that stands, or is to stand, in a file.

        Raises:
            ConfigError: not a usable spec; the message names file and field.
        """
        if cls.imports(attributes):
            make_importable(project_of(path))
        try:
            spec = cls.model_validate(dict(attributes))
        except ValidationError as error:
            raise ConfigError.of(f"The spec '{path}' is not usable. {explained(error)}") from error
        return spec.located(path)

    @classmethod
    def imports(cls, attributes: Mapping[str, Any]) -> bool:
        """Return whether a spec names functions of its project."""
        return False

    def located(self, path: Path) -> Self:
        """Return the spec with its source's path made absolute.

        Args:
            path: The spec's file or folder; a relative source belongs to the nearest folder above with a pyproject.toml.
        """
        written = self.source.path
        if written is None:
            return self
        resolved = resolve(written, project_of(path))
        located = self.with_source(path=resolved)
        if is_local(written):
            written = os.path.normpath(written)
        located.__dict__[_WRITTEN] = resolved, written
        return located


def read_document(location: str | Path) -> tuple[Path, dict[str, Any]]:
    """Read a `defs.yaml`, or that in a folder; return its path and what it says.

    Raises:
        ConfigError: no such file, or not YAML.
    """
    path = Path(location)
    path = path / "defs.yaml" if path.is_dir() else path
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise ConfigError.of(
            f"The spec '{path}' cannot be read: {why}.", allowed="a defs.yaml, or a folder with one"
        ) from error
    return path, document if isinstance(document, dict) else {}


def project_of(path: Path) -> Path:
    """Return the nearest folder above a spec with a pyproject.toml, else the spec's own."""
    spec = path.resolve()
    for folder in (spec, *spec.parents):
        project_file = folder / "pyproject.toml"
        if project_file.exists():
            return folder
    return spec if spec.is_dir() else spec.parent


def explained(
    error: ValidationError,
    place_of: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda names: names,
) -> str:
    """Return the field and the fault of each error, with the value that was got unless the message has it.

    Args:
        error: Of a spec.
        place_of: Where the file has a field.
    """
    lines: dict[str, None] = {}
    for details in error.errors(include_url=False):
        names = place_of(field_path(details["loc"]))
        field = ".".join(names)
        message = details["msg"].removeprefix("Value error, ")
        message = message.removeprefix(f"{names[-1]}: ") if names else message
        is_secret = any(map(is_credential, names))
        got = ""
        if field and not is_secret and "got" not in message.lower():
            got = f", got {details['input']!r}"
        place = f"{field}: " if field else ""
        lines[f"{place}{message}{got[:120]}"] = None
    return "; ".join(lines) + "."


def field_path(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the names that lead to the field of an error, without the tag by which a part's model was chosen.

    Example:
        >>> field_path(("source", "kafka", "topic"))
        ('source', 'topic')
    """
    names = tuple(map(str, location))
    chosen = names[:2]
    return (names[0], *names[2:]) if chosen in _CHOSEN else names
