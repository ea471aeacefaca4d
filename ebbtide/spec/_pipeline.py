"""The pipeline spec: one schema for YAML, the command line and Python.

In YAML a spec is the `attributes` of a `defs.yaml`. The common parts of all pipelines are here; each kind has its module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import pyarrow as pa
from pydantic import ValidationError, model_validator

from ebbtide.changelog import TRUNCATE
from ebbtide.ddl import TableSchema, added_ddl, as_compared, parse_ddl
from ebbtide.durations import to_ms
from ebbtide.errors import ConfigError
from ebbtide.formats import Decoding
from ebbtide.spec import _fitting as fitting
from ebbtide.spec._extensions import source_option_names
from ebbtide.spec._fields import PipelineFields
from ebbtide.spec._kafka import KafkaSource
from ebbtide.spec._parts import FileSource, PlainFormat, Reads, SchemaEvolutionMode
from ebbtide.spec._positioned import SparkSource
from ebbtide.spec._reading import Project, SpecFile, explained
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.sources import MicroBatches

MAX_EVENT_TIME_AHEAD = timedelta(days=1)
"""Default if state expires by event time: clocks of sources are off by hours, not by days."""
LEAST_CLOCK_JUMP = timedelta(days=2)
"""A daily run must not fall behind, however short a ttl is: a day since the last step, and a day of catching up."""
MOST_CLOCK_JUMP = timedelta(days=366)
_UNKNOWN_COLUMNS: Mapping[SchemaEvolutionMode, Literal["ignore", "infer", "refuse"]] = {
    "ignore": "ignore",
    "evolve": "infer",
    "quarantine": "refuse",
    "fail": "refuse",
}
"""Each mode to the decoder's treatment of columns that the schema lacks."""
_WRITTEN = "_written_path"
"""The source's path, absolute and as written. It is not a field, and equality of specs ignores it."""
OPTIONAL_PARTS = ("transform",)
"""Parts of a spec's identity that it may lack."""


class Pipeline(PipelineFields):
    """Base class of pipelines: their common fields, and properties that follow from these.

    Attributes:
        RESERVED_COLUMNS: Names of columns that Ebbtide adds to the user's, as `as_compared` gives them.
    """

    RESERVED_COLUMNS: ClassVar[frozenset[str]] = fitting.RESERVED_COLUMNS

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        columns = self.table.columns
        fitting.refuse_unfit_settings(self)
        fitting.refuse_unfit_outputs(self)
        has_personal = any(column.personal for column in self.columns.values())
        fitting.refuse_shown_statistics(self, has_personal=has_personal)
        fitting.refuse_unfit_schema(self, self.table)
        sink_names = self.sink_table.columns.names
        fitting.refuse_unknown_statistics(self, sink_names)
        fitting.refuse_unfit_columns(self, columns.names, sink_names, self.renamed, self.fixed_columns)
        fitting.refuse_unfit_key(self.key, columns)
        fitting.refuse_unfit_format(self, columns)
        fitting.refuse_unfit_event_time(self, columns, is_needed=self.needs_event_time)
        return self

    @staticmethod
    def source_fields(type_: str | None = None) -> frozenset[str]:
        """Return the fields of `source`: those of built-in sources, and the options of another package's source.

        Args:
            type_: The source's type. Default: a built-in one.

        Raises:
            ValueError: no package has a source of this type.
        """
        built_in = frozenset({*FileSource.model_fields, *KafkaSource.model_fields})
        return built_in if type_ is None else built_in | source_option_names(type_)

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

    @cached_property
    def decoding(self) -> Decoding:
        """The decoder of its records."""
        columns = self.table.columns
        key = tuple(self.key)
        ahead = self.max_event_time_ahead
        reads = Reads(columns, key, self.sequence, self.positions, self.retracts, self.source.table)
        return Decoding(
            columns=columns,
            key=key,
            format=self.format.decoder(reads),
            defaults=self._json_defaults(),
            in_envelopes=self.source.records == "kafka",
            topic=self.source.topic,
            sequence=self.sequence,
            kinds=frozenset({*self.kinds_taken, TRUNCATE}),
            truncates=self.takes_truncate,
            event_time=self.event_time,
            needs_event_time=self.needs_event_time,
            time_units=self.format.time_units,
            encodings=self.format.encodings_in(columns),
            unavailable=self.format.unavailable,
            max_record_bytes=self.quarantine.max_record_bytes,
            max_ahead_ms=None if ahead is None else to_ms(ahead),
            personal=self.personal,
            renamed=self.renamed,
            unknown_columns=_UNKNOWN_COLUMNS[self.schema_evolution_mode],
            ignored_columns=frozenset(self.ignored_columns),
            doubts_tombstones=self.knows_keys,
            tombstones_delete=self.source.table is None,
            needs_whole_rows=self.retracts,
        )

    def _json_defaults(self) -> dict[str, Any]:
        """Return the columns' defaults as JSON; those of bytes are read, since a record may code its bytes in another way."""
        defaults = {}
        for name, value in self.table.defaults.items():
            type_ = self.table.columns.field(name).type
            is_coded = pa.types.is_binary(type_) and isinstance(value, str)
            defaults[name] = self.format.coding(name).read_bytes(value) if is_coded else value
        return defaults

    @property
    def needs_event_time(self) -> bool:
        """Return whether state expires by event time."""
        return any(ttl.by_event_time for ttl in self.ttls.values())

    @property
    def largest_clock_jump(self) -> timedelta:
        """The largest advance of processing time in one step: no wrong clock ends all entries at once."""
        if self.max_clock_jump is not None:
            return self.max_clock_jump
        shortest: timedelta = min((ttl.ttl for ttl in self.ttls.values() if ttl.by_clock), default=timedelta.max)
        return min(max(shortest / 2, LEAST_CLOCK_JUMP), MOST_CLOCK_JUMP)

    @property
    def max_event_time_ahead(self) -> timedelta | None:
        """Largest distance of a record's event time ahead of the wall clock; None: no limit."""
        if "max_event_time_ahead" in self.quarantine.model_fields_set or not self.needs_event_time:
            return self.quarantine.max_event_time_ahead
        return MAX_EVENT_TIME_AHEAD

    @property
    def personal(self) -> frozenset[str]:
        """Columns whose values are shown only in the tables."""
        return frozenset(name for name, column in self.columns.items() if column.personal)

    @property
    def renamed(self) -> dict[str, str]:
        """Renamed columns to their former names."""
        return {name: column.renamed_from for name, column in self.columns.items() if column.renamed_from}

    @property
    def fixed_columns(self) -> set[str]:
        """Columns that identify or order entries: their names are stored."""
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
    def column_sources(self) -> dict[str, list[str]]:
        """The sink's columns to those of the source that they come from; without computed ones."""
        names = self.table.columns.names
        return {name: [name] for name in self.sink_table.columns.names if name in names}

    @property
    def copied_columns(self) -> frozenset[str]:
        """The sink's columns whose values are a column of the source, unchanged."""
        return frozenset(self.column_sources)

    @property
    def runs_user_code(self) -> bool:
        """Return whether code of a user or of another package runs in its steps."""
        parts = (self.source, self.format, self.sink, *self.outputs.values())
        return not all(type(part).__module__.startswith("ebbtide.") for part in parts)

    @property
    def reads_stream_of_spark(self) -> bool:
        """Return whether a query of Spark hands over the rows."""
        return isinstance(self.source, SparkSource)

    @property
    def awaits_stream(self) -> bool:
        """Return whether it does, and none is given yet."""
        return isinstance(self.source, SparkSource) and not self.source.is_handed

    @property
    def stream_function(self) -> str | None:
        """The function whose query a run starts; None: there is none, or a program hands rows over."""
        return self.source.function if isinstance(self.source, SparkSource) else None

    def handed(self, batches: MicroBatches) -> Self:
        """Return the pipeline with the micro-batches of its query."""
        source = cast("SparkSource", self.source).handed(batches)
        return self.model_copy(update={"source": source})

    @property
    def has_transform(self) -> bool:
        """Return whether a transform computes the sink's rows."""
        return self.selects_changes or self.selects_rows

    @property
    def stream_cron(self) -> str | None:
        """Cron expression of Dagster's schedule; None: there is no schedule, as for a continuous run."""
        return self.schedules.stream if self.run == "bounded" else None

    @property
    def has_positions(self) -> bool:
        """Return whether records carry their place in the source, so that redeliveries can be recognized."""
        return self.source.records == "kafka" or (isinstance(self.format, PlainFormat) and bool(self.format.position))

    @property
    def may_repeat_offsets(self) -> bool:
        """Return whether a record may be redelivered under its offset. A topic is read only once, unless its records name places."""
        names_positions = isinstance(self.format, PlainFormat) and bool(self.format.position)
        return self.has_positions and (names_positions or not self.source.by_position)

    def lacking(self, evolved: Mapping[str, str]) -> dict[str, str]:
        """Return those of some columns, with types, that the schema neither has nor had, without ignored ones."""
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

    def in_steps_of(self, n_records: int, n_bytes: int) -> Self:
        """Return the spec with the size of a step capped at so many records, or bytes of files."""
        limits = {"max_records_per_step": n_records, "max_bytes_per_step": n_bytes}
        smaller = {}
        for name, most in limits.items():
            asked = getattr(self.source, name, None)
            if asked is not None and asked > most:
                smaller[name] = most
        return self.with_source(**smaller) if smaller else self

    def at_rate(self, max_records_per_second: int | None) -> Self:
        """Return the spec with runs capped at so many records per second; None: unchanged."""
        if max_records_per_second is None:
            return self
        return self.with_source(max_records_per_second=max_records_per_second)

    def without_outputs(self) -> Self:
        """Return the spec without further outputs: of tables that are built elsewhere before they take the place of these."""
        return self.model_copy(update={"outputs": {}})

    def on_engine(self, engine: str | None) -> Self:
        """Return the spec with runs on an engine; None: unchanged."""
        return self if engine is None else self.model_copy(update={"engine": engine})

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that stored state depends on: at least the selection of records."""
        return {"source": self.source.identity, "format": self.format.identity}

    @property
    def source_path(self) -> str | None:
        """Path of the source as written in the spec's file: a relative path stays relative and moves with its project.

        None if none.
        """
        resolved, written = self.__dict__.get(_WRITTEN, ("", ""))
        return written if self.source.path == resolved else self.source.path

    def misfits(self, stored: Mapping[str, Any]) -> list[str]:
        """Return the parts of `identity` that do not fit the stored ones; a transform may have been removed."""
        identity = self.identity
        names = dict.fromkeys([*identity, *OPTIONAL_PARTS])
        return [name for name in names if stored.get(name) != identity.get(name)]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the spec with other fields, which are not validated; derived values are computed again."""
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
        file = SpecFile.read(location)
        return cls.of_attributes(file.attributes, file.path)

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any], path: Path) -> Self:
        """Create a spec from the attributes of an existing or future file.

        Raises:
            ConfigError: not a usable spec; the message names file and field.
        """
        if cls.imports(attributes):
            Project.around(path).make_importable()
        try:
            spec = cls.model_validate(dict(attributes))
        except ValidationError as error:
            raise ConfigError.of(f"The spec '{path}' is not usable. {explained(error, path=path)}") from error
        return spec.located(path)

    def located(self, path: Path) -> Self:
        """Return the spec with its source's path made absolute.

        Args:
            path: The spec's file or folder; a relative source belongs to the nearest folder above with a pyproject.toml.
        """
        written = self.source.path
        if written is None:
            return self
        resolved = Location(Location(written).expanded("source.path")).resolved(Project.around(path).folder)
        located = self.with_source(path=resolved)
        if Location(written).is_local:
            written = os.path.normpath(written)
        located.__dict__[_WRITTEN] = resolved, written
        return located
