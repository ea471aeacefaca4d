"""Avro with a schema registry, in Confluent's wire format.

Values are converted to the JSON with schema that Kafka Connect writes.

| bytes | meaning |
|---|---|
| 0 | 0 |
| 1 to 4 | the schema's id at the registry, big-endian |
| from 5 on | the value, encoded by that schema |

The source asks the registry and puts the answers into the metadata of each batch (`with_schemas`), so that decoding needs no network.
A batch without that metadata is not read as Avro.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from ebbtide.formats._connect import SharedSchema
from ebbtide.formats._format import BadRecordError, Json
from ebbtide.formats._parsing import Parse, parse

if TYPE_CHECKING:
    from ebbtide.formats._avro_schema import ParsedSchema

SchemaTexts = Mapping[int, str]
"""Schema id to the registry's answer: `{"schemas": [...]}`, referenced schemas first, or `{"error": ...}`."""
MAGIC = b"\x00"
SCHEMA_FROM = 5
"""Bytes before a value: where those that its schema describes begin."""
_METADATA = b"avro_schemas"
_OF_STREAM = re.compile(r" from <[^>]*>")
"""The part of an error's text that names the stream, with its address in memory."""
_NOT_READ = (
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
    struct.error,
)
"""Errors raised for bytes that do not fit their schema."""


def schema_id(raw: bytes | None) -> int | None:
    """Return the id of the schema that a value or key was written with; None if it does not begin with one.

    Example:
        >>> schema_id(bytes([0, 0, 0, 1, 2, 8])), schema_id(b"{}")
        (258, None)
    """
    if raw is None:
        return None
    header = raw[:SCHEMA_FROM]
    is_whole = len(header) == SCHEMA_FROM
    if not is_whole or not header.startswith(MAGIC):
        return None
    return int.from_bytes(header[1:], "big")


def schema_ids(values: Iterable[bytes | None]) -> set[int]:
    """Return the ids of all schemas that values or keys were written with."""
    # Values share few headers: each distinct one is read once.
    headers: set[bytes] = set()
    for value in values:
        if value is not None:
            headers.add(value[:SCHEMA_FROM])
    ids = map(schema_id, headers)
    return {id_ for id_ in ids if id_ is not None}


def with_schemas(
    batches: Iterable[pa.RecordBatch],
    ask: Callable[[set[int]], SchemaTexts],
) -> Iterator[pa.RecordBatch]:
    """Yield placed records with the schemas that their values and keys name.

    Args:
        batches: Batches of `PLACED_RECORDS`.
        ask: Returns the registry's answers for the ids of schemas that no earlier batch named.
    """
    known: dict[int, str] = {}
    for batch in batches:
        values = batch.column("value").to_pylist()
        keys = batch.column("key").to_pylist()
        missing = schema_ids([*values, *keys]) - known.keys()
        known |= ask(missing)
        yield batch.replace_schema_metadata({_METADATA: json.dumps(known)})


@dataclass(frozen=True)
class WriterSchema:
    """The schema of written values.

    Args:
        parsed: The schema, parsed.
        connect_text: The same schema in Connect's form, as JSON.
    """

    parsed: ParsedSchema
    connect_text: str

    @cached_property
    def shared(self) -> SharedSchema:
        """The schema in Connect's form, as it is parsed from JSON."""
        return SharedSchema(parse(self.connect_text))

    @property
    def head(self) -> str:
        """The JSON text of a value with its schema, up to its payload."""
        return f'{{"schema": {self.connect_text}, "payload":'

    def payload(self, raw: bytes) -> Any:
        """Read a value as JSON.

        Raises:
            BadRecordError: it does not fit.
        """
        from fastavro import schemaless_reader

        stream = io.BytesIO(raw)
        stream.seek(SCHEMA_FROM)
        try:
            value = schemaless_reader(stream, self.parsed.avro, None)
        except _NOT_READ as error:
            problem = _OF_STREAM.sub("", str(error))
            raise _bad(f"{type(error).__name__}: {problem}") from error
        left = stream.read()
        if left:
            raise _bad(f"{len(left)} bytes after it")
        as_json = self.parsed.as_json
        if as_json is None:
            return value
        return as_json(value)

    def text(self, raw: bytes) -> str:
        """Convert a value to JSON text with its schema."""
        payload = self.payload(raw)
        payload_text = json.dumps(payload, ensure_ascii=False)
        return f"{self.head} {payload_text}}}"


@dataclass(frozen=True)
class AvroRecords:
    """Reads the values and keys of one batch.

    Args:
        texts: The schemas that the values name.
    """

    texts: SchemaTexts

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Self | None:
        """Return the reader of a batch; None if its records are not Avro."""
        metadata = batch.schema.metadata or {}
        if _METADATA not in metadata:
            return None
        texts: dict[str, str] = json.loads(metadata[_METADATA])
        by_id = {int(id_): text for id_, text in texts.items()}
        return cls(by_id)

    def schema_of(self, raw: bytes) -> WriterSchema:
        """Return the schema of a value.

        Raises:
            BadRecordError: it names no schema, or the registry does not have it.
        """
        id_ = schema_id(raw)
        if id_ is None:
            head = raw[:SCHEMA_FROM].hex(" ") or "nothing"
            detail = f"begins with {head}; allowed: a byte 0 and the schema's id, as the source has a registry"
            raise BadRecordError("no_magic_byte", detail, masked=detail)
        return _writer_schema(id_, self.texts[id_])

    def value(self, raw: bytes, parsing: Parse) -> Json:
        """Convert a value to JSON with its schema.

        Args:
            raw: The value.
            parsing: Parses JSON. The exact parser keeps the digits of numbers as they would be written.

        Raises:
            BadRecordError: it cannot be read.
        """
        schema = self.schema_of(raw)
        if parsing is not parse:
            return parsing(schema.text(raw))
        return {"schema": schema.shared, "payload": schema.payload(raw)}

    def value_text(self, raw: bytes) -> str:
        """Convert a value to JSON text with its schema.

        Raises:
            BadRecordError: it cannot be read.
        """
        schema = self.schema_of(raw)
        return schema.text(raw)

    def key_text(self, key: bytes | None) -> str | None:
        """Read a key in the same way. A key that is not Avro is read as text; None if it is missing or neither."""
        as_text = self.as_text(key)
        return text_of(as_text)

    def as_text(self, raw: bytes | None) -> bytes | None:
        """Convert a value or key to JSON with its schema; unreadable bytes are returned unchanged."""
        if raw is None or schema_id(raw) is None:
            return raw
        try:
            return self.value_text(raw).encode()
        except BadRecordError:
            return raw


def text_of(raw: bytes | None) -> str | None:
    """Return bytes as text; None if there are none, or they are not UTF-8."""
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def refuse_avro(raw: bytes) -> None:
    """Refuse a value that begins like Avro although the source has no registry. JSON never begins with a zero byte.

    Raises:
        BadRecordError: it begins like Avro.
    """
    id_ = schema_id(raw) if raw.startswith(MAGIC) else None
    if id_ is not None:
        detail = (
            f"got a value by schema {id_} of a registry; allowed: JSON, or a source with a registry (source.registry)"
        )
        raise BadRecordError("no_registry", detail, masked=detail)


@lru_cache(maxsize=4096)
def _writer_schema(id_: int, text: str) -> WriterSchema:
    from fastavro.schema import SchemaParseException, UnknownType

    from ebbtide.formats._avro_schema import ParsedSchema

    answer = json.loads(text)
    if "error" in answer:
        reason = answer["error"]
        raise BadRecordError("unknown_schema", reason, masked=reason)
    try:
        parsed = ParsedSchema(answer["schemas"])
    except (SchemaParseException, UnknownType, *_NOT_READ) as error:
        detail = f"schema {id_} of the registry is not an Avro schema: {error}"
        raise BadRecordError("unknown_schema", detail, masked=detail) from error
    connect_text = json.dumps(parsed.connect, ensure_ascii=False)
    return WriterSchema(parsed, connect_text)


def _bad(problem: str) -> BadRecordError:
    return BadRecordError(
        "bad_avro",
        f"{problem}; allowed: a value that fits its schema",
        masked="a value that does not fit its schema",
    )
