"""The parts of a pipeline spec: source, formats, sink, and what Dagster does with them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from ebbtide import formats  # a kind of format is loaded when it is first asked for
from ebbtide.amounts import shortened
from ebbtide.changelog import SequenceColumns
from ebbtide.delta import judged_properties
from ebbtide.durations import NaturalDuration, PositiveDuration, format_duration, to_ms
from ebbtide.errors import ConfigError
from ebbtide.formats import TOOLS, Coding, Decoding, FieldPath, PositionField, PositionType, RecordMap, Unavailable
from ebbtide.redaction import has_unseen, is_credential, printable, redacted
from ebbtide.sources import FileSource as Files
from ebbtide.sources import Source
from ebbtide.spec._log_sequences import LOG_SEQUENCES
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.formats import Format

EXPECTATION = r"^(expect_[a-z0-9_]+|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)$"
"""Names of an expectation: a type of Great Expectations, or `module:Class`."""

MOST_CHARACTERS = 255
"""Longest name that file systems and catalogs accept."""
MOST_SHOWN = 77
"""Letters of a wrong text that an error shows."""
PROPERTY = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
"""Pattern of the name of a table property."""


def _seen(text: str) -> str:
    is_name = text.strip() and len(text) <= MOST_CHARACTERS and not has_unseen(text)
    if not is_name:
        raise ValueError(f"got {shortened(repr(text), MOST_SHOWN)}; allowed: 1 to {MOST_CHARACTERS} visible characters")
    return text


@cache
def _names_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return all names and aliases of a model's fields."""
    names: dict[str, None] = {}
    for name, info in model.model_fields.items():
        alias = info.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias or name]
        names |= {str(choice): None for choice in choices}
    return tuple(names)


def _stranger(name: str, value: Any, known: tuple[str, ...]) -> InitErrorDetails:
    """Return the error for an unknown field."""
    meant = get_close_matches(name, known, n=1)
    hint = f"did you mean '{meant[0]}'? " if meant else ""
    allowed = ", ".join(known)
    fault = PydanticCustomError("extra_forbidden", f"there is no such field; {hint}allowed: {allowed}")
    return InitErrorDetails(type=fault, loc=(name,), input=value)


Name = Annotated[str, AfterValidator(_seen)]
"""An external name, of a topic, table or field: any text of visible characters."""


TimeUnit = Literal["ms", "us", "ns"]
"""Unit of integers since 1970."""
Encoding = Literal["unsigned", "bits", "precise", "base64", "base64url", "hex"]
"""Encoding of numbers or bytes in JSON; see `ebbtide.formats._encodings`."""


class SpecPart(BaseModel):
    """Base class of parts: frozen, without unknown fields. Errors do not show values, which may be credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, given: Any) -> Any:
        """Refuse unknown fields; the message lists the known fields and the nearest one, unlike pydantic's."""
        if not isinstance(given, Mapping) or cls.model_config.get("extra") == "allow":
            return given
        known = _names_of(cls)
        strangers = [name for name in given if name not in known]
        if not strangers:
            return given
        faults = [_stranger(str(name), given[name], known) for name in strangers]
        raise ValidationError.from_exception_data(cls.__name__, faults, hide_input=True)


class SourcePart(SpecPart):
    """Base class of sources: the form of their records, and the selection among them."""

    by_position: ClassVar[bool] = False
    """True: records have offsets in partitions. False: files are read whole."""
    listed_as: ClassVar[str] = "folders"
    """Field of `UpsertPipelines` with a pattern of such sources."""

    type: str = Field(description="Which source.")
    path: str = Field(description="Its location; relative to the project. Required.")
    records: Literal["kafka", "value"] = Field(
        default="kafka",
        description="A line holds 'kafka': a Kafka record (topic, partition, offset, key, value as text), or 'value': the bare value. Default: kafka.",
    )
    topic: Name | None = Field(default=None, description="Read only records of this topic. Default: all.")
    table: Name | None = Field(
        default=None,
        description="Read only Debezium events of this source table, 'orders' or 'public.orders'. Default: all.",
    )
    max_records_per_second: int | None = Field(
        default=None,
        gt=0,
        description="Maximum records per second that a run reads on average, above 0. Steps of at least one file are delayed. For a backfill next to other runs, or to protect a source. Default: no limit.",
    )

    @abstractmethod
    def opened(self, pipeline: str, *, in_order: bool, has_positions: bool = True) -> Source:
        """Return the source of a pipeline's records.

        Args:
            pipeline: Its name.
            in_order: Changes apply as they arrive.
            has_positions: Records carry their place, so that redeliveries can be recognized.
        """

    @property
    def place(self) -> str:
        """Name of this source in the listing of a pattern."""
        return self.path

    @property
    def server(self) -> str:
        """The server that it is read from, HOST:PORT; empty if there is none."""
        return ""

    @property
    def address(self) -> Hashable:
        """The address where sources are listed: empty, the pattern itself says it."""
        return None

    @field_validator("path")
    @classmethod
    def _is_location(cls, value: str) -> str:
        try:
            Location(value).refuse_unusable("source.path")
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return value

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that select the records; the location is compared separately, and the size of a step does not matter."""
        return {"type": self.type, "records": self.records, "topic": self.topic, "table": self.table}


MOST_AFTER = timedelta(days=30)
"""As long as the commits of a state are kept by default: they say when a step was made."""


class AfterReadConfig(SpecPart):
    """Files that were read leave the source's folder, by `ebbtide vacuum`."""

    move_to: str | None = Field(
        default=None,
        description="Archive, outside the source's folder, by an absolute path or a URI; a run after a restore or a refresh reads it. Default: none.",
    )
    delete: bool = Field(
        default=False,
        description="Delete them. Default: false.",
    )
    after: NaturalDuration = Field(
        default="7d",
        validate_default=True,
        description="Least age of the step that read a file, up to 30d. The state's `delta.deletedFileRetentionDuration` counts if it is longer. Default: 7d.",
    )

    @field_validator("move_to")
    @classmethod
    def _is_location(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            Location(value).refuse_unusable("source.after_read.move_to")
        except ConfigError as error:
            raise ValueError(str(error)) from error
        is_absolute = not Location(value).is_local or value.startswith("/")
        refuse("move_to", [] if is_absolute else [value], "an absolute path, or a URI")
        return value.rstrip("/")

    @field_validator("after")
    @classmethod
    def _is_within_the_log(cls, value: timedelta) -> timedelta:
        refuse("after", [format_duration(value)] if value > MOST_AFTER else [], "up to 30d, the retention of commits")
        return value

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.move_to is None) == self.delete:
            return self
        raise ValueError("Allowed: either move_to or delete.")


class FileSource(SourcePart):
    """A folder of JSON-lines files, plain or gzip, and all folders in it; each file is read once, in the order of their whole names (`folder/name`)."""

    type: Literal["files"] = Field(default="files", description="'files'. Default.")
    path: str = Field(
        description="Folder of the files; relative to the project (the nearest folder above the spec with a pyproject.toml). `~/` is the home folder, `${NAME}` a variable of the environment. Required."
    )
    pattern: list[Name] = Field(
        default=list(Files.patterns),
        min_length=1,
        description="Files to read, one pattern or several, with `*`, `?` and `[...]`: `*.json` in any folder, `/*.json` in the folder itself, `2026/*.json` in one below. Names that begin with `_` or `.`, of files or folders, are never read. Default: *.json, *.jsonl, *.ndjson, each plain or .gz.",
    )
    min_age: NaturalDuration = Field(
        default="0s",
        validate_default=True,
        description="How long ago a file must have been written to be read; younger ones are left for a later run. For writers that do not create files atomically: a file read too early is refused once it has grown. Default: 0s.",
    )
    max_bytes_per_step: int = Field(
        default=256 * 2**20,
        gt=0,
        description="Stored bytes of files that one step reads, above 0; a larger file is a separate step. More bytes make fewer, longer steps. Default: 268435456.",
    )
    max_files_per_step: int = Field(
        default=1000, gt=0, description="Files that one step reads, above 0. Default: 1000."
    )
    after_read: AfterReadConfig | None = Field(
        default=None,
        description="Lets files leave, see [AfterReadConfig](#afterreadconfig); only where no other pipeline reads the folder. Default: they stay.",
    )

    def opened(self, pipeline: str, *, in_order: bool, has_positions: bool = True) -> Source:
        """See `SourcePart.opened`."""
        files = Files(
            self.path,
            tuple(self.pattern),
            in_order=in_order,
            counts_repeats=in_order and not has_positions,
            min_age_ms=to_ms(self.min_age),
            max_files_per_step=self.max_files_per_step,
            max_bytes_per_step=self.max_bytes_per_step,
        )
        asked = self.after_read
        return files if asked is None else files.after_reading(pipeline, asked.move_to, to_ms(asked.after))

    @model_validator(mode="after")
    def _leaves_alone(self) -> Self:
        """Refuse to take files away that other pipelines read, or to an archive that is read as the source."""
        if self.after_read is None:
            return self
        refuse(
            "after_read",
            [name for name in ("topic", "table") if getattr(self, name)],
            "files that one pipeline reads alone",
        )
        archive = self.after_read.move_to
        path = self.path.rstrip("/")
        is_apart = archive is None or not (f"{archive}/".startswith(f"{path}/") or f"{path}/".startswith(f"{archive}/"))
        refuse("after_read.move_to", [] if is_apart else [archive], "a folder neither in the source's nor above it")
        return self

    @field_validator("pattern", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("pattern")
    @classmethod
    def _refuse_empty(cls, value: list[str]) -> list[str]:
        refuse("pattern", [repr(each) for each in value if not each.strip("/ ")], "patterns such as '*.json'")
        leads_out = []
        for each in value:
            parts = each.split("/")
            if "." in parts or ".." in parts:
                leads_out.append(each)
        refuse("pattern", leads_out, "names below the source's folder, without '.' and '..'")
        return value


@dataclass(frozen=True)
class Reads:
    """The changes and columns that a pipeline reads from its records.

    Args:
        columns: Columns of its schema.
        key: Names of the key's columns.
        sequence: Columns that order changes; empty in arrival mode.
        positions: Fields of the records that order changes.
        retracts: An update comes as a retraction and an addition.
        table: Read only changes of this source table; None: of all.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    positions: tuple[PositionField, ...]
    retracts: bool
    table: str | None


class FormatPart(SpecPart):
    """Base class of formats."""

    @abstractmethod
    def decoder(self, reads: Reads) -> Format:
        """Return the decoder of a pipeline's records."""

    @abstractmethod
    def coding(self, column: str) -> Coding:
        """Return the coding of a column's values in a record without a schema."""

    @property
    def unavailable(self) -> Unavailable:
        """Recognizes the values that a record leaves out. Default: by Debezium's placeholder."""
        return Unavailable()

    def encodings_in(self, columns: pa.Schema) -> Mapping[str, Encoding]:
        """Return the encodings of columns by name: as the spec says, else as the tool writes them."""
        return {}

    def position_field(self, name: str, type_: PositionType | None = None) -> PositionField | None:
        """Return the envelope field that a spec names to order changes; None: there is none of this name.

        Args:
            name: The name in `order.sequence`.
            type_: The type of its values that the spec states.
        """
        return None

    @property
    def positions_there_are(self) -> str:
        """Text for messages: the fields that `order.sequence` may name instead of columns; empty for none."""
        return ""

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that decide the meaning of records, without those at their defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _refuse_no_placeholder(text: str) -> str:
    try:
        is_usable = bool(Unavailable(text).raw)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ValueError(f"got {shortened(repr(text), MOST_SHOWN)}; allowed: a text, or hex: and bytes in hex")
    return text


_AS_UNSTATED = ("base64", "base64url")
"""Encodings that match reading bytes without a stated encoding."""


class ChangeFormat(FormatPart):
    """Base class of the formats of change events: the coding of values, and the mark of an unsent value."""

    time_units: dict[str, TimeUnit] = Field(
        default_factory=dict,
        description="Column to the unit of its integers: ms, us, ns. A record's schema takes precedence. Default: us for every TIMESTAMP.",
    )
    encodings: dict[str, Encoding] = Field(
        default_factory=dict,
        description="Column to the encoding of its numbers or bytes. Numbers: unsigned (MySQL's BIGINT UNSIGNED as a signed number, the connector's default), bits (BIT(n) as base64), precise (a decimal as base64, decimal.handling.mode=precise, in records without schema; with the column's scale). BINARY: base64, base64url, hex, like the connector's binary.handling.mode. Default: the encoding in the record's schema. Without a schema, numbers are plain, and bytes are base64 that cannot be hex: a value that can be both makes the record bad.",
    )
    unavailable_value: Annotated[str, AfterValidator(_refuse_no_placeholder)] = Field(
        default=Unavailable().placeholder,
        description="The connector's placeholder for an unsent value, such as an unchanged TOAST column: its option unavailable.value.placeholder. The last known value is kept. Each form of the placeholder is recognized: [what a record leaves out](formats.md#values-that-were-not-sent). Default: __debezium_unavailable_value.",
    )

    def coding(self, column: str) -> Coding:
        """See `FormatPart.coding`."""
        return Coding.of(self.encodings.get(column), self.time_units.get(column, "us"))

    @property
    def unavailable(self) -> Unavailable:
        """Recognizes the values that a record leaves out."""
        return Unavailable(self.unavailable_value)

    def encodings_in(self, columns: pa.Schema) -> Mapping[str, Encoding]:
        """See `FormatPart.encodings_in`."""
        return self.encodings

    @property
    def identity(self) -> dict[str, Any]:
        """See `FormatPart`. Base64 may be stated later, since bytes without an encoding were read as base64."""
        fields = super().identity
        encodings = fields.pop("encodings", {})
        deciding = {column: encoding for column, encoding in encodings.items() if encoding not in _AS_UNSTATED}
        return fields | ({"encodings": deciding} if deciding else {})


class DebeziumFormat(ChangeFormat):
    """Debezium change events: envelope, with schema, or flattened; recognized record by record."""

    type: Literal["debezium"] = Field(description="'debezium'.")

    def decoder(self, reads: Reads) -> Format:
        """See `FormatPart.decoder`."""
        return formats.DebeziumDecoder(
            reads.key,
            () if reads.sequence == SequenceColumns.PLACE else reads.sequence,
            retract=reads.retracts,
            table=reads.table,
            columns=tuple(reads.columns.names),
            unavailable=self.unavailable,
            positions=reads.positions,
        )

    def position_field(self, name: str, type_: PositionType | None = None) -> PositionField | None:
        """See `FormatPart.position_field`."""
        return formats.DebeziumDecoder.position_field(name, type_)

    @property
    def positions_there_are(self) -> str:
        """See `FormatPart.positions_there_are`."""
        in_log = [f"[{', '.join(names)}]" for names in LOG_SEQUENCES]
        orders = dict.fromkeys(formats.DebeziumDecoder.ORDERS.values())
        by_path = [f"[{', '.join(order)}]" for order in orders]
        return f"one of {' '.join(in_log)}; or fields of the envelope, such as {' '.join(by_path)}, of any other with its type: {{field: source.version, type: number}}"


class PlainFormat(ChangeFormat):
    """Changelog rows: a kind (+I -U +U -D), a row, and optionally its place in the source."""

    type: Literal["plain"] = Field(description="'plain'.")
    kind: Name = Field(default="kind", description="Field with the row kind. Default: kind.")
    row: Name | None = Field(
        default="row", description="Field with the row; null if the columns are next to the kind. Default: row."
    )
    position: list[Name] = Field(
        default_factory=list,
        max_length=2,
        description="Fields with the record's partition and position, to recognize redeliveries. Default: none; file and line are used.",
    )

    def decoder(self, reads: Reads) -> Format:
        """See `FormatPart.decoder`."""
        return formats.PlainDecoder(
            kind=self.kind,
            row=self.row,
            position=tuple(self.position),
            unavailable=self.unavailable,
        )


_TIME_ZONE = "UTC: a time without a zone is in UTC if its column is a TIMESTAMP. Default: none; such a time is bad."


Word = str | int | None
"""A value of the operation field; null: the field is null or absent."""


class OperationWords(SpecPart):
    """The operation field of a record, and its values. A record with another value is bad (`unknown_operation`)."""

    field: Name = Field(description="The field, as a dotted path: metadata.change_type. Required.")
    insert: list[Word] = Field(
        default_factory=list,
        description="Its values for a new row; null: the field is null or absent. Default: none.",
    )
    snapshot: list[Word] = Field(
        default_factory=list,
        description="Its values for a row that was read, not changed: like `insert`, and below all changes if it has no position. Default: none.",
    )
    update: list[Word] = Field(default_factory=list, description="Its values for a changed row. Default: none.")
    delete: list[Word] = Field(default_factory=list, description="Its values for a deleted row. Default: none.")
    truncate: list[Word] = Field(default_factory=list, description="Its values for an emptied table. Default: none.")
    ignore: list[Word] = Field(
        default_factory=list,
        description="Its values in records that change no row, such as DDL. Default: none.",
    )

    @property
    def words(self) -> dict[str, list[Word]]:
        """The values by their meaning."""
        meanings = ("insert", "snapshot", "update", "delete", "truncate", "ignore")
        return {meaning: getattr(self, meaning) for meaning in meanings}

    @model_validator(mode="after")
    def _says_each_once(self) -> Self:
        words = [word for own in self.words.values() for word in own]
        refuse("operation", [str(word) for word in words if words.count(word) > 1], "each value once")
        refuse(
            "operation", [] if words else ["no value"], "values of insert, snapshot, update, delete, truncate or ignore"
        )
        return self


class EventTimeField(SpecPart):
    """The field of a record with the time of its change."""

    field: Name = Field(description="The field, as a dotted path. Required.")
    unit: Literal["s", "ms", "us", "ns", "tso"] = Field(
        default="ms",
        description="Unit of its integers since 1970: s, ms, us, ns; tso: TiDB's timestamps. Text is read as ISO 8601, in UTC without a zone. Default: ms.",
    )


class PositionPart(SpecPart):
    """A field of a record that orders changes, with the type of its values."""

    field: Name = Field(description="The field, as a dotted path. Required.")
    type: PositionType = Field(
        default="number",
        description="Type of its values, see [SequenceField](spec.md#sequencefield). Default: number.",
    )


class ByMap(ChangeFormat):
    """Base class of formats whose records a map describes."""

    type: str
    time_zone: Literal["UTC"] | None

    def decoder(self, reads: Reads) -> Format:
        """See `FormatPart.decoder`."""
        return formats.MappedDecoder(
            self.map,
            key=reads.key,
            columns=reads.columns,
            retract=reads.retracts,
            table=reads.table,
            in_utc=self.time_zone is not None,
            encoded=frozenset(self.encodings_in(reads.columns)),
            unavailable=self.unavailable,
            positions=reads.positions,
        )

    def encodings_in(self, columns: pa.Schema) -> Mapping[str, Encoding]:
        """See `FormatPart.encodings_in`."""
        of_tool: dict[str, Encoding] = {}
        if self.map.writes_base64:
            of_tool = {column.name: "base64" for column in columns if Coding.is_of_bytes(column.type)}
        return {**of_tool, **self.encodings}

    @property
    @abstractmethod
    def map(self) -> RecordMap:
        """The fields of records that make up a change."""

    def position_field(self, name: str, type_: PositionType | None = None) -> PositionField | None:
        """See `FormatPart.position_field`: a field that the map knows, or that has a type."""
        type_ = type_ or dict(self.map.positions).get(name)
        return PositionField(name, type_) if type_ else None

    @property
    def positions_there_are(self) -> str:
        """See `FormatPart.positions_there_are`."""
        known = ", ".join(path for path, _ in self.map.positions)
        typed = "any other field of the records with its type: {field: meta.version, type: number}"
        return f"fields of the records: {known}; or {typed}" if known else typed


class MappedFormat(ByMap):
    """Records of any tool, by their fields for operation and row; see [Formats](formats.md#any-other-records)."""

    type: Literal["mapped"] = Field(description="'mapped'.")
    operation: OperationWords | None = Field(
        default=None,
        description="The operation. Default: none; each record is the present row.",
    )
    row: Name | None = Field(
        default=None,
        description="Field with the row, as a dotted path: an object, or an array of objects. A delete without it has the row in `before`; where no operation is named, such a record is a delete. Default: none; the columns are at the top level of the record.",
    )
    before: Name | None = Field(
        default=None,
        description="Field with the values before an update, as a dotted path; columns that it leaves out did not change. An update that changes the key deletes the row of the old key. An array of values is the key's (CockroachDB's `key`), in the order of `key`; a row must agree with it. Default: none; no update changes the key.",
    )
    deleted: Name | None = Field(
        default=None,
        description="Field that marks a deleted row, as a dotted path: true, 1, or the time of the deletion; false, 0 or null for other rows. Default: none.",
    )
    table: list[Name] = Field(
        default_factory=list,
        description="Fields that name the record's table, as dotted paths: [database, table]; `source.table` selects by them. Default: none.",
    )
    position: list[Name | PositionPart] = Field(
        default_factory=list,
        description="Fields that order changes, as dotted paths: [metadata.commit_lsn, metadata.commit_idx], with a type if they are not integers: [{field: lsn, type: lsn}]. `order.sequence` may name them. Default: none.",
    )
    event_time: EventTimeField | None = Field(
        default=None, description="Time of the change, if the spec names no column for it. Default: none."
    )
    time_zone: Literal["UTC"] | None = Field(default=None, description=_TIME_ZONE)

    @property
    def map(self) -> RecordMap:
        """The fields of records that make up a change."""
        operation = self.operation
        event_time = self.event_time
        return RecordMap(
            operation=FieldPath.of(operation.field) if operation else None,
            words=RecordMap.words_of(**operation.words) if operation else (),
            row=FieldPath.of(self.row) if self.row else None,
            before=FieldPath.of(self.before) if self.before else None,
            deleted=FieldPath.of(self.deleted) if self.deleted else None,
            table=tuple(FieldPath.of(name) for name in self.table),
            event_time=FieldPath.of(event_time.field) if event_time else None,
            event_unit=event_time.unit if event_time else "ms",
            positions=tuple(_position(given) for given in self.position),
        )


def _position(given: str | PositionPart) -> tuple[str, PositionType]:
    return (given, "number") if isinstance(given, str) else (given.field, given.type)


class ToolFormat(ByMap):
    """Records of a known tool; see [Formats](formats.md)."""

    type: Literal["maxwell", "canal", "ticdc", "dms", "dms_s3", "sequin", "airbyte", "airbyte_flat", "fivetran"] = (
        Field(
            description="'maxwell'; 'canal': Canal, and TiCDC's canal-json; 'ticdc': TiCDC's simple protocol; 'dms': AWS DMS to Kafka and Kinesis; 'dms_s3': AWS DMS to S3, as JSON; 'sequin'; 'airbyte': Airbyte's raw records; 'airbyte_flat': those with the columns at the root; 'fivetran'.",
        )
    )
    time_zone: Literal["UTC"] | None = Field(default=None, description=_TIME_ZONE)

    @property
    def map(self) -> RecordMap:
        """The fields of records that make up a change."""
        return TOOLS[self.type]


SchemaEvolutionMode = Literal["ignore", "evolve", "quarantine", "fail"]
"""Treatment of records that do not fit the schema."""


class ColumnConfig(SpecPart):
    """Settings of a column."""

    personal: bool = Field(
        default=False,
        description="Its values are personal: checks, Data Docs, Dagster, errors and the quarantine's `detail` show *** instead. The tables hold them unchanged. Default: false.",
    )
    renamed_from: Name | None = Field(
        default=None,
        description="The column's former name: 'ebbtide migrate' renames stored columns, and records with the old name are still read. Not for columns of the key, the order or an upsert key. Default: none.",
    )


class QuarantineConfig(SpecPart):
    """Limits of the quarantine: additional reasons for bad records, their number in a step, and their retention."""

    max_rows_per_step: int = Field(
        default=1000,
        ge=0,
        description="Maximum bad records in one step; above it the run fails before it commits. Default: 1000.",
    )
    max_record_bytes: int = Field(
        default=Decoding.max_record_bytes,
        gt=0,
        description="Maximum bytes of a record; larger ones are bad. Only so many bytes of a longer line are read, and kept in the quarantine. Default: 16 MiB.",
    )
    max_event_time_ahead: NaturalDuration | None = Field(
        default=None,
        validation_alias=AliasChoices("max_event_time_ahead", "max_ahead"),
        description="A record is bad if its event time is further ahead of the step's wall clock; null: no limit. One such record would expire all entries with a ttl by event time. Default: 1d if a ttl is by EVENT_TIME, else null.",
    )

    max_age: PositiveDuration | None = Field(
        default=None,
        description="How long the quarantine keeps a record, by the pipeline's clock; the job ebbtide_cleanup drops and counts older ones. Default: no limit.",
    )
    max_bytes: int | None = Field(
        default=None,
        gt=0,
        description="Bytes of records that the quarantine keeps, above 0; the job ebbtide_cleanup drops and counts the oldest above it. Default: no limit.",
    )

    @model_serializer(mode="wrap")
    def _without_default(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `max_event_time_ahead` out if it was not given: null differs from the default."""
        fields: dict[str, Any] = dump(self)
        if "max_event_time_ahead" not in self.model_fields_set:
            fields.pop("max_event_time_ahead", None)
        return fields


VECTORS = "delta.enableDeletionVectors"
"""Table property that follows from `sink.write`."""


class DeltaSink(SpecPart):
    """The pipeline's Delta table, at ROOT/NAME/sink."""

    type: Literal["delta"] = Field(
        default="delta", description="'delta', or the type of another package's sink (OtherSink). Default: delta."
    )
    write: Literal["vectors", "rewrite"] = Field(
        default="vectors",
        description="How old rows are removed. vectors: by deletion vectors; rewrite: their files are written again, for readers "
        "that know no vectors. Default: vectors.",
    )
    change_feed: Literal["images", "net"] = Field(
        default="images",
        description="How the sink's change feed shows an update. images: the row before and after it, from a file that each "
        "commit also writes; net: a delete and an insert, which readers derive from the data files: less is written. Default: images.",
    )
    table_properties: dict[Annotated[str, Field(pattern=PROPERTY)], str] = Field(
        default_factory=dict,
        description="Delta table properties, set when the sink is created or refreshed. Readers of the table see them: no credentials. Default: none; the change feed is always on.",
    )

    @field_validator("write", mode="before")
    @classmethod
    def _refuse_merge(cls, value: Any) -> Any:
        if value == "merge":
            refuse(
                "sink.write",
                ["'merge'"],
                "vectors, or rewrite for readers without deletion vectors. Ebbtide writes partitioned tables too: "
                "leave the field out, and the pipeline goes on with the same tables",
            )
        return value

    @field_validator("table_properties")
    @classmethod
    def _refuse_unfit_properties(cls, value: dict[str, str]) -> dict[str, str]:
        secret = []
        unseen = []
        for name, text in value.items():
            if is_credential(name) or redacted(text) != text:
                secret.append(name)
            if has_unseen(text):
                unseen.append(name)
        refuse("sink.table_properties", secret, "no credentials: the table's log shows its properties to all readers")
        refuse("sink.table_properties", unseen, "values of visible characters")
        named, unfit = judged_properties(value)
        refuse("sink.table_properties", list(unfit), "; ".join(dict.fromkeys(unfit.values())))
        return named

    @model_validator(mode="after")
    def _refuse_other_vectors(self) -> Self:
        wanted = str(self.write == "vectors").lower()
        given = self.table_properties.get(VECTORS, wanted)
        if given.lower() != wanted:
            refuse("sink.table_properties", [f"{VECTORS}: {given}"], f"{wanted} with write: {self.write}")
        return self

    @model_validator(mode="after")
    def _refuse_net_of_rewritten_files(self) -> Self:
        # From rewritten files readers would derive a change of every row.
        if self.change_feed == "net" and self.write == "rewrite":
            refuse("sink.change_feed", ["'net'"], "images with write: rewrite")
        return self


class ExpectationConfig(SpecPart):
    """A project's rule for the sink's rows, by Great Expectations."""

    type: str = Field(
        pattern=EXPECTATION,
        description="Great Expectations' name (expect_column_values_to_be_between), or 'module:Class', a class of the project. Required.",
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Its arguments: column, bounds. Default: none.")
    severity: Literal["critical", "warning"] = Field(
        default="critical",
        description="critical: a violation is an error, and readers of the sink wait; warning: a violation is a warning. Default: critical.",
    )


class ChecksConfig(SpecPart):
    """Limits that the checks allow."""

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
        default=0.01,
        ge=0,
        le=1,
        description="Greatest share of bad records, 0 to 1. Below 1 a run has failed whose records are all bad. Default: 0.01.",
    )
    max_unapplied_rate: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Greatest share of changes, 0 to 1, that may contradict stored rows before 'ordering' is an error: retractions without a row, changes that lose to a row with an older event time. A smaller share is a warning. Default: 0.01.",
    )
    max_event_delay: PositiveDuration | None = Field(
        default=None,
        description="Maximum age of the newest event, by its event time, before the check 'event_time' fails: the source is read but has nothing new. Default: none, and no such check.",
    )
    max_state_bytes: int | None = Field(
        default=None,
        gt=0,
        description="Maximum bytes of the state's data files, for the check 'state_size'. Default: no limit.",
    )
    max_state_rows: int | None = Field(
        default=None,
        gt=0,
        description="Maximum rows of the state, for the same check. Default: no limit.",
    )
    expectations: list[ExpectationConfig] = Field(
        default_factory=list,
        description="The project's rules, each checked on all rows of the sink after a run, by the check 'expectations'. Default: none, and no such check.",
    )

    @property
    def may_all_be_bad(self) -> bool:
        """Return whether a run whose records are all bad has done its work."""
        return self.max_quarantine_rate >= 1


def refuse(field: str, got: list[Any], allowed: str) -> None:
    """Refuse a field of a spec, if anything in it is wrong.

    Args:
        field: Its name.
        got: The wrong values.
        allowed: The allowed values.

    Raises:
        ValueError: `got` is not empty.
    """
    if got:
        text = printable(", ".join(map(str, got)))
        raise ValueError(f"{field}: got {text}; allowed: {allowed}")
