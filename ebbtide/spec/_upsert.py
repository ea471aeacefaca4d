"""Upsert pipelines: turn a changelog into a correct table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from ebbtide.changelog import SequenceColumns
from ebbtide.ddl import TableSchema, as_compared, is_exact
from ebbtide.durations import NaturalDuration
from ebbtide.formats import PositionField, PositionType
from ebbtide.keyed_state import CleanupConfig, ExpiryClock, StateTtlConfig, StateVisibility, Ttl, UpdateType
from ebbtide.operators import Emission, Keep, OnExpire
from ebbtide.spec._fitting import RESERVED_COLUMNS, refuse_lone_updates
from ebbtide.spec._log_sequences import LOG_SEQUENCES
from ebbtide.spec._parts import Name, SpecPart, refuse
from ebbtide.spec._pipeline import Pipeline
from ebbtide.spec._transform import Transform


class SequenceField(SpecPart):
    """A field of the record's envelope that orders changes, with the type of its values."""

    field: Name = Field(description="Its path in the record: source.scn. Required.")
    type: PositionType | None = Field(
        default=None,
        description="Type of its values. number: a 64-bit integer; decimal: a larger one; both also as text; lsn: hexadecimal text, or Postgres' 0/16B3748; gtid, binlog_file: the number at the end of a text; hlc: CockroachDB's 1767225600000000000.0000000002; timestamp: ISO 8601. Default: known for the fields that order Debezium's connectors.",
    )


class SequenceOrder(SpecPart):
    """The greatest sequence per key wins, in any order of arrival.

    Sequences are compared column by column, from the first; texts by their UTF-8 bytes, false before true. A change
    without a value in a column of the sequence is a bad record (`null_sequence`).

    By the database's log, with the position in the record's envelope: `[_lsn]` and `[_ts_ms, _lsn]` (Postgres),
    `[_file, _pos, _row]` (MySQL, MariaDB), `[source.commit_lsn, source.change_lsn, source.event_serial_no]` (SQL
    Server), `[source.scn, source.rs_id, source.ssn]` (Oracle), or any other of its fields with their types
    ([SequenceField](#sequencefield)). `_lsn` is short for `source.lsn`. In a flattened row `source.scn` is
    `__source_scn` or `__scn`.

    At one position a snapshot row precedes a create or an update. Other changes of a key at one position are ordered by their
    records within one partition or file: the last one counts. If the last changes of two partitions, files or steps at one position
    differ, the position does not determine the row. Such positions are counted (`conflicts`), and the check `ordering` fails until a
    greater position arrives.
    An update that changes the key is a delete of the old key and an update of the new one, both at its position, the delete
    first. A TRUNCATE empties the table below its position; changes at its position survive.

    A Postgres snapshot row without an LSN ranks below every change, and above snapshot rows read earlier (`source.ts_ms`). It
    provides rows for which no change was captured. Use `[_ts_ms, _lsn]` to let it win over changes committed before it was
    read. The database's clock must then not go back, and the connector's clock must agree with it.

    By columns of the schema: a delete carries the deleted row with its sequence, and comes last at one sequence. An update
    that changes the key deletes the old key at the old row's sequence, or at the new row's if the record has only the old
    key. A retraction (-U) retracts, at its sequence, only the row with the same content; it must carry the whole row. A delete
    whose row lacks the sequence is a bad record (Postgres: set REPLICA IDENTITY FULL), as is a TRUNCATE.

    Changes of one key, sequence, operation and content are one change (`duplicates`). If several contents remain at one sequence,
    it is unknown which came later. They are counted (`conflicts`), and the one with the greatest digest wins (BLAKE2b of the
    values that all of them carry). The check `ordering` fails until only one remains or a greater sequence arrives. Losing
    rows are kept: if the winner is retracted, the next one becomes the row.

    If several contents were all retracted, it is unknown whether one was added again. The key then has no row and is counted,
    and `ordering` fails until another content or a greater sequence arrives. A single content that is retracted and added
    again at its sequence counts as a redelivery: the key has no row. A row inserted again at the sequence of its delete is
    also absent: the delete is the last change of a sequence.
    """

    sequence: list[str | SequenceField] = Field(
        min_length=1,
        description="The order of a key's changes, compared field by field: columns of the schema with an exact type ([updated_at, id]), or envelope fields with the position in the database's log: [_lsn] (Postgres), [_file, _pos, _row] (MySQL, MariaDB), [source.scn], [{field: source.version, type: number}]. Required.",
    )

    @field_validator("sequence", mode="before")
    @classmethod
    def _is_list(cls, value: Any) -> Any:
        """Refuse a single word, such as `auto`: stored data must not depend on the first record read."""
        if isinstance(value, str):
            allowed = "a list, such as [_lsn] or [source.scn]; 'ebbtide new' writes the order of the records' connector"
            refuse("order.sequence", [value], allowed)
        return value


_OF_STRATEGIES = ("strategy", "thresholds", "threshold_high", "threshold_low")
"""Settings that FLIP-544's operator has."""


class MaterializerConfig(SpecPart):
    """Settings of the histories of `order: arrival`. Source: FLIP-544."""

    upsert_key: list[str] = Field(
        default_factory=list,
        description="Columns by which rows of a key replace each other and retractions find their rows. Default: none; whole rows match.",
    )
    keep: Keep = Field(
        default=Keep.LAST,
        description="The row that the sink shows for a key: the last or first inserted of those not retracted. Default: last.",
    )
    on_expire: OnExpire = Field(
        default=OnExpire.KEEP,
        description="Treatment of the sink's row when it expires: keep, or delete, which emits its -D. Default: keep, like Flink.",
    )
    retraction_grace: NaturalDuration = Field(
        default="0s",
        validate_default=True,
        description="How long a retraction waits for its row, which it then cancels. A repeated retraction may then cancel a row that is inserted again. Default: 0s; it does not wait.",
    )
    max_history: int | None = Field(
        default=None,
        ge=1,
        description="Maximum rows of a key; the oldest are dropped at the end of a step and counted (dropped). Default: no limit.",
    )
    emission: Emission = Field(
        default=Emission.NET,
        description="net: the sink gets a step's net effect; every: in addition, the emissions of each record are appended to the table NAME/changelog. Default: net.",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_strategies(cls, given: Any) -> Any:
        """Refuse FLIP-544's choice of a form: a step decides all of a key's records at once, in columns."""
        if isinstance(given, dict):
            refuse(
                "materializer",
                [name for name in _OF_STRATEGIES if name in given],
                "none of these: a step decides in columns, whose rows are those of every strategy, so there is nothing to choose",
            )
            asked = given.get("on_expire")
            allowed = "keep or delete: an expired row that the sink shows is emitted as its -D by delete, and a row that it does not show was taken back before"
            refuse("materializer.on_expire", [asked] if asked == "emit" else [], allowed)
        return given


class UpsertPipeline(Pipeline):
    """A changelog source, the order in which its rows are reconciled, and the resulting table.

    Example:
        >>> spec = UpsertPipeline(
        ...     name="orders", source={"path": "in"}, format={"type": "debezium"},
        ...     schema="id BIGINT NOT NULL, total DECIMAL(12,2)", key=["id"], order={"sequence": ["_lsn"]}, ttl="30d",
        ... )
        >>> spec.ttl.ttl.days, spec.order.sequence
        (30, ['_lsn'])
    """

    order: Literal["arrival", "upsert"] | SequenceOrder = Field(
        description="{sequence: [_lsn]}: the greatest sequence per key wins, see [SequenceOrder](#sequenceorder); 'upsert': the last write per key wins, in order of arrival, and a delete needs only the key; 'arrival': for changelogs with retractions (-U), which apply in order of arrival. Required."
    )
    ttl: Ttl | None = Field(
        default=None,
        description="Time to live of state: '30d', or the fields of StateTtlConfig. By sequence: of tombstones, by event time counted from the latest change of the key; order: upsert: the same, but only a record replayed from the quarantine can be late; order: arrival: of each row of a history. Default: entries never expire.",
    )

    materializer: MaterializerConfig = Field(
        default_factory=MaterializerConfig,
        description="How histories are kept with order: arrival. Default: that of MaterializerConfig.",
    )
    transform: Transform | None = Field(
        default=None,
        description="A projection and a filter of the source's rows, see [Transform](#transform). Default: none; all rows unchanged.",
    )

    @model_validator(mode="after")
    def _transform_fits(self) -> Self:
        transform = self.transform
        if transform is None:
            return self
        transform.refuse_unfit(self.table)
        names = [*self.table.columns.names, *transform.table.columns.names]
        reserved = [name for name in names if as_compared(name) in RESERVED_COLUMNS | {"_out"}]
        refuse("transform.schema", reserved, "names that Ebbtide does not reserve")
        if self.schema_evolution_mode == "evolve":
            allowed = "ignore, quarantine, fail: a transform names the columns that it reads"
            refuse("schema_evolution_mode", ["evolve"], allowed)
        if self.sequence:
            transform.refuse_other_key(self.table, self.key)
        if self.expires_live:
            allowed = "false with a transform: a row of the sink does not determine the source's row"
            refuse("ttl.expire_live", [True], allowed)
        return self

    @model_validator(mode="after")
    def _order_and_ttl_fit(self) -> Self:
        columns = self.state_columns
        if isinstance(self.order, SequenceOrder):
            self._refuse_unfit_sequence()
        if self.sequence and self.materializer != MaterializerConfig():
            refuse("materializer", ["settings"], "only with order: arrival; other orders need no histories")
        upsert_key = self.materializer.upsert_key
        refuse(
            "materializer.upsert_key",
            [n for n in upsert_key if n not in columns.names or upsert_key.count(n) > 1],
            f"columns of the schema, with a transform of its schema, each once: {', '.join(columns.names)}",
        )
        if self.retracts and not upsert_key:
            refuse_lone_updates(self.format)
        if self.ttl is not None:
            self._refuse_unfit(self.ttl)
        elif self.materializer.on_expire is OnExpire.DELETE:
            refuse("materializer.on_expire", [OnExpire.DELETE], "keep without a ttl, where nothing expires")
        return self

    def _refuse_unfit_sequence(self) -> None:
        """Refuse a sequence that is neither columns with an exact type nor a position in the database's log."""
        exact = [field.name for field in self.table.columns if is_exact(field.type)]
        allowed = f"columns with an exact type: {', '.join(exact)}"
        if self.format.positions_there_are:
            allowed += f"; or {self.format.positions_there_are}"
        positions = [part for part in self.order_parts if isinstance(part, PositionField)]
        unfit = [part for part in self.order_parts if isinstance(part, str) and part not in exact]
        refuse("order.sequence", unfit, allowed)
        position_columns = tuple(column for field in positions for column in field.columns)
        if len(positions) < len(self.order_parts):
            refuse("order.sequence", list(position_columns), f"{allowed}; not both")
        are_of_source = bool(positions) and all(field.path.startswith("source.") for field in positions)
        uses_short_names = are_of_source and set(position_columns) <= set(SequenceColumns.LOG_POSITIONS)
        is_place = position_columns == SequenceColumns.PLACE
        if is_place or (uses_short_names and position_columns not in LOG_SEQUENCES):
            refuse("order.sequence", list(position_columns), allowed)
        hidden = [name for name in position_columns if name in self.table.columns.names]
        refuse("schema", hidden, "names that no part of order.sequence has")
        repeated = [name for name in self.sequence if self.sequence.count(name) > 1]
        refuse("order.sequence", repeated, "each column once")

    def _refuse_unfit(self, ttl: StateTtlConfig) -> None:
        """Refuse settings that apply only to a function's states: here a step reads exactly the entries that it touches."""
        writes = (UpdateType.ON_CREATE, UpdateType.ON_CREATE_AND_WRITE)
        if ttl.update_type not in writes:
            named = ", ".join(writes)
            refuse("ttl.update_type", [ttl.update_type], f"{named}; no ttl: never")
        if ttl.state_visibility is not StateVisibility.NEVER_RETURN_EXPIRED:
            refuse("ttl.state_visibility", [ttl.state_visibility], "NEVER_RETURN_EXPIRED")
        if ttl.expiry_clock is not ExpiryClock.WATERMARK:
            refuse("ttl.expiry_clock", [ttl.expiry_clock], "WATERMARK")
        if ttl.cleanup != CleanupConfig():
            allowed = "none: ticks expire, the jobs ebbtide_cleanup and ebbtide_compaction delete"
            refuse("ttl.cleanup", ["settings"], allowed)
        if ttl.expire_live and not self.sequence:
            refuse("ttl.expire_live", [True], "false with order: arrival, where every row of a history expires anyway")

    @cached_property
    def order_parts(self) -> tuple[str | PositionField, ...]:
        """The parts that order changes: columns of the schema, and fields of the envelope; also unknown names."""
        if not isinstance(self.order, SequenceOrder):
            return ()
        columns = self.table.columns.names
        parts: list[str | PositionField] = []
        for given in self.order.sequence:
            if isinstance(given, str) and given in columns:
                parts.append(given)
                continue
            name = given if isinstance(given, str) else given.field
            type_ = None if isinstance(given, str) else given.type
            parts.append(self.format.position_field(name, type_) or name)
        return tuple(parts)

    @property
    def positions(self) -> tuple[PositionField, ...]:
        """Fields of the envelope that order changes; none if columns do, or in arrival mode."""
        return tuple(part for part in self.order_parts if isinstance(part, PositionField))

    @property
    def sequence(self) -> tuple[str, ...]:
        """The columns of a sequence: the schema's, a position's numbers, or the record's place (`order: upsert`); none in arrival mode."""
        if self.order == "upsert":
            return SequenceColumns.PLACE
        names: list[str] = []
        for part in self.order_parts:
            names += [part] if isinstance(part, str) else part.columns
        return tuple(names)

    @property
    def applies_in_order(self) -> bool:
        """Return whether changes apply in order of arrival."""
        return not isinstance(self.order, SequenceOrder)

    @property
    def retracts(self) -> bool:
        """Return whether an update must come as a retraction and an addition: in arrival mode."""
        return self.order == "arrival"

    @property
    def expires_live(self) -> bool:
        """Return whether entries of live rows expire too; the sink's row then replaces the entry."""
        return self.ttl is not None and self.ttl.expire_live

    @property
    def emits_every(self) -> bool:
        """Return whether emissions of each record are appended to a changelog table."""
        return self.materializer.emission is Emission.EVERY

    @property
    def leaves_orphans(self) -> bool:
        """Return whether the sink may keep rows that the state forgets."""
        keeps = self.materializer.on_expire is OnExpire.KEEP
        return not self.sequence and self.ttl is not None and keeps

    @property
    def knows_keys(self) -> bool:
        """Return whether the state knows which keys of the source have a row."""
        return not self.selects_changes

    @property
    def selects_changes(self) -> bool:
        """Return whether a transform applies to each change before the decision."""
        return self.transform is not None and not self.sequence

    @property
    def selects_rows(self) -> bool:
        """Return whether a transform applies to each decided row."""
        return self.transform is not None and bool(self.sequence)

    @cached_property
    def sink_table(self) -> TableSchema:
        """The sink's columns; those of its key are not nullable."""
        if self.transform is None:
            return self.table
        table = self.transform.table
        fields = [field.with_nullable(field.nullable and field.name not in self.sink_key) for field in table.columns]
        return TableSchema(pa.schema(fields), table.defaults, table.comments)

    @property
    def sink_key(self) -> list[str]:
        """The sink's primary key."""
        return self.key if self.transform is None else self.transform.key

    @property
    def state_columns(self) -> pa.Schema:
        """The columns of the rows that the state keeps."""
        return self.sink_table.columns if self.selects_changes else self.table.columns

    @property
    def state_key(self) -> list[str]:
        """The key that rows of the state have."""
        return self.sink_key if self.selects_changes else self.key

    @property
    def state_key_of(self) -> dict[str, str]:
        """The sink's key columns to those of the state."""
        if self.transform is None or self.selects_changes:
            return super().state_key_of
        return self.transform.source_keys(self.table)

    @property
    def column_sources(self) -> dict[str, list[str]]:
        """The sink's columns to those of the source that they come from; without computed ones."""
        if self.transform is None:
            return super().column_sources
        return self.transform.column_sources(self.table)

    @property
    def copied_columns(self) -> frozenset[str]:
        """The sink's columns whose values are a column of the source, unchanged."""
        return super().copied_columns if self.transform is None else self.transform.copied_columns(self.table)

    @property
    def filter_columns(self) -> list[str]:
        """The source's columns that decide which rows the sink shows."""
        return [] if self.transform is None else self.transform.filter_columns(self.table)

    @cached_property
    def personal(self) -> frozenset[str]:
        """Columns whose values are shown only in the tables, including columns selected from personal ones."""
        given = super().personal
        if self.transform is None:
            return given
        return given | self.transform.personal(self.table, given)

    @property
    def ttls(self) -> dict[str | None, StateTtlConfig]:
        """Its only state's time to live, if it has one."""
        return {} if self.ttl is None else {None: self.ttl}

    @property
    def fixed_columns(self) -> set[str]:
        """Columns that identify or order entries: their names are stored."""
        return super().fixed_columns | {*self.materializer.upsert_key}

    @classmethod
    def imports(cls, attributes: Mapping[str, Any]) -> bool:
        """Return whether a transform may call functions of the spec's project."""
        transform = attributes.get("transform")
        return isinstance(transform, Mapping) and bool(transform.get("functions"))

    @property
    def migrates(self) -> frozenset[str]:
        """Parts of `identity` that a migration can change: not a transform that selected the state's rows."""
        if self.sequence:
            return frozenset({"ttl", "columns", "transform"})
        return frozenset({"ttl"} if self.selects_changes else {"ttl", "columns"})

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that stored state depends on; a change of one needs a refresh; of `ttl` and `columns`, a migration."""
        columns = [f"{f.name} {f.type}" for f in self.state_columns]
        return {
            **super().identity,
            "key": self.key,
            "order": self._order_identity,
            "columns": columns,
            "ttl": {} if self.ttl is None else {"": self.ttl.state_contract},
            **self._transform_identity,
        }

    @property
    def _order_identity(self) -> list[str] | dict[str, Any] | str:
        """The parts of the order that stored state depends on, with types of fields and settings of histories."""
        if isinstance(self.order, SequenceOrder):
            names: list[str] = []
            for part in self.order_parts:
                if isinstance(part, str):
                    names.append(part)
                elif set(part.columns) <= set(SequenceColumns.LOG_POSITIONS):
                    names += part.columns
                else:
                    names.append(f"{part.path} {part.type}")
            return names
        if self.order == "upsert":
            return self.order
        materializer = self.materializer
        histories = {"upsert_key": materializer.upsert_key, "keep": str(materializer.keep)}
        histories["emission"] = str(materializer.emission)
        return {"arrival": histories}

    @property
    def _transform_identity(self) -> dict[str, Any]:
        """The transform; if it selected the state's rows, also the columns that it reads."""
        transform = self.transform
        if transform is None:
            return {}
        identity = transform.identity
        if self.selects_changes:
            read = [self.table.columns.field(name) for name in transform.columns_read(self.table)]
            identity["reads"] = [f"{field.name} {field.type}" for field in read]
        return {"transform": identity}
