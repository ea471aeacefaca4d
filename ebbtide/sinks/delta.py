"""The Delta sink: the user's columns, and two reserved ones.

| column | meaning |
|---|---|
| `_sequence` | sequence mode: the columns of the row's sequence and the rank of the operation (`op`), see `ebbtide.model.sequences`; never null |
| `_changed_by` | struct(step, part, position): the order of the input that caused the row's last change |

The change feed is on from the first commit. Every commit carries the step's identity, so that a replay is skipped.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.delta.altering import FileUnderNewColumns
from ebbtide.delta.features import refuse_unwritable
from ebbtide.delta.fitting import columns_of, types_of
from ebbtide.delta.restoring import restoring
from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import add_file, create_if_absent, emptied, redefined, replacing
from ebbtide.errors import MigrationError
from ebbtide.ledger.facts import StepFacts, TableFacts
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.tables import OwnTable
from ebbtide.ledger.transaction import settle_newest
from ebbtide.model import decision as does
from ebbtide.model.changelog import ORDER
from ebbtide.model.decision import Restore, RestoreAndApply
from ebbtide.model.entries import DELETE
from ebbtide.model.schema_change import SchemaChange
from ebbtide.model.sequences import stored_sequence_type
from ebbtide.sinks.floor import Floors
from ebbtide.sinks.old_rows import Upsert
from ebbtide.sinks.sink import ChangeSet, Sink, Work, cannot_perform
from ebbtide.sinks.stage import alter_stage, commit_stage, restore_stage
from ebbtide.sinks.upsert import STATISTICS_COLUMNS, Upserter
from ebbtide.state_table.columns import columns, numbered, quoted, read_delta, spark_schema

RESERVED = ("_sequence", "_changed_by")
"""Sink columns that views and comparisons leave out."""


@dataclass(frozen=True)
class SinkTable(Sink):
    """One pipeline's sink; Ebbtide makes and writes it. See `ebbtide.sinks.by_spark` for those that Spark makes or writes.

    Args:
        path: Its location.
        columns: The user's columns.
        key: Names of the key's columns.
        sequence: What orders changes: rows carry `_sequence`. Empty in arrival mode.
        how: How the old rows of a step's keys leave: by deletion vectors, or with their files.
        with_images: The change feed shows each row before and after its change, from files of its own.
        properties: Delta table properties, set when the table is made.
        sequence_columns: The columns that `sequence` may name, where they are not the table's. Default: these.
    """

    path: str
    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    how: Literal["vectors", "rewrite"] = "vectors"
    with_images: bool = True
    properties: Mapping[str, str] = field(default_factory=dict)
    sequence_columns: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The user's columns and the reserved ones."""
        fields = list(self.columns)
        if self.sequence:
            sequence_type = stored_sequence_type(self.sequence_columns or self.columns, self.sequence)
            fields.append(pa.field("_sequence", sequence_type))
        fields.append(pa.field("_changed_by", ORDER))
        return pa.schema(fields)

    @property
    def _stored_schema(self) -> pa.Schema:
        """The same as they are stored: all but the key's may be null."""
        fields = []
        for column_field in self.schema:
            is_key = column_field.name in self.key
            fields.append(column_field if is_key else column_field.with_nullable(True))
        return pa.schema(fields)

    @property
    def _stored_properties(self) -> dict[str, str]:
        return {
            "delta.enableDeletionVectors": str(self.how == "vectors").lower(),
            **self.properties,
            "delta.enableChangeDataFeed": "true",
        }

    @cached_property
    def _own(self) -> OwnTable:
        return OwnTable(self.path, "sink")

    @cached_property
    def _upserter(self) -> Upserter:
        return Upserter(
            self.path,
            self.schema,
            self.key,
            puts_of(self.path),
            by_vectors=self.how == "vectors",
            with_images=self.with_images,
        )

    @property
    def _floors(self) -> Floors:
        return Floors(self.sequence)

    def create(self, spark: SparkSession) -> None:
        """Create the table if it is not there."""
        create_if_absent(puts_of(self.path), self.path, self._stored_schema, self._stored_properties, name="sink")

    def last_step(self) -> int:
        """Return the last step that changed the sink, 0 before the first.

        Raises:
            TableMismatchError: the sink was deleted since it was looked at last.
        """
        self._own.refuse_gone()
        return self._own.last_step()

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it; see `Sink`."""
        return self._own.facts()

    def snapshot(self) -> Snapshot | None:
        """Return its newest version; None if it is not there."""
        return self._own.snapshot()

    def version(self) -> int:
        """Return the newest version."""
        return log.versions(self.path)[-1]

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows as of a version."""
        return read_delta(spark, self.path, version)

    def can(self, action: does.Action) -> bool:
        """Return that it performs every action."""
        return True

    def perform(self, action: does.Action, work: Work) -> None:
        """Perform the action of a step, once; see `ebbtide.sinks.sink`."""
        spark = work.spark
        facts = work.facts
        match action:
            case does.Apply():
                self.apply(spark, work.changes, facts, only_inserts=action.only_inserts)
            case Restore():
                self.restore(spark, action, facts)
            case RestoreAndApply():
                self.restore_and_apply(action, work.net_changes(action), facts)
            case does.Replace():
                self.take_rows(action, work)
            case does.Alter():
                self.alter(spark, work.columns_before(action), action.change, facts)
            case does.Clear():
                self.empty(spark, facts)
            case does.Rewrite():
                self.rewrite(action, work)
            case _:
                raise cannot_perform(self.path, action)

    def apply(self, spark: SparkSession, changes: ChangeSet, facts: StepFacts, *, only_inserts: bool) -> None:
        """Apply a step's change set, in one transaction with the step's number.

        Args:
            spark: The session to write in.
            changes: The change set.
            facts: The step's.
            only_inserts: No key is in the sink yet.
        """
        upsert = self._upsert(changes.rows(self.schema), facts.raised_floor)
        self._upserter.apply(upsert, facts.committed("sink", "MERGE"))

    def _upsert(self, decided: pa.Table, floor: tuple[int, ...] | None) -> Upsert:
        is_deleted = pc.equal(decided["_change"], DELETE)
        rows = decided.filter(pc.invert(is_deleted)).drop_columns("_change")
        floors = self._floors
        return Upsert(decided.select(list(self.key)), rows, floors.marks(floor), (floors.column,))

    def restore(self, spark: SparkSession, action: Restore, facts: StepFacts) -> None:
        """Bring the table back to an earlier version."""
        restore_stage(self.path, action, facts, "sink")

    def restore_and_apply(self, action: RestoreAndApply, changes: pa.Table, facts: StepFacts) -> None:
        """Bring the table back to an earlier version, and apply changes to that, in one commit."""
        # Whichever step raised the floor: what is below it is dead.
        upsert = self._upsert(changes, facts.frontier.floor)
        if upsert.is_below is not None:
            is_above = np.invert(upsert.is_below(upsert.rows))
            upsert = replace(upsert, rows=upsert.rows.filter(pa.array(is_above)))

        def back(found: Snapshot) -> list[Action]:
            if action.version is None:
                return replacing(found.files.values(), [])
            return restoring(found, action.version)

        self._upserter.apply(upsert, facts.committed("sink", "RESTORE"), back)

    def take_rows(self, action: does.Replace, work: Work) -> None:
        """Take the rows of the table under another root: those that differ, in one commit, so that the change feed shows only them."""
        if action.version is not None:
            rows = work.difference(action)
            self.replace(work.spark, rows.present, rows.coming, work.facts)

    def rewrite(self, action: does.Rewrite, work: Work) -> None:
        """Bring the rows to what the state shows."""
        spark = work.spark
        if action.overwrites or (action.alters and self._has_other_columns()):
            self.overwrite(spark, work.decided_rows(action), work.facts)
            return
        way = work.way_back()
        if way is not None:
            self.restore_and_apply(way, work.net_changes(way), work.facts)
            return
        rows = work.difference(action)
        self.replace(spark, rows.present, rows.coming, work.facts)

    def _has_other_columns(self) -> bool:
        found = self.snapshot()
        return found is not None and columns_of(found.metadata) != types_of(self.schema)

    def replace(self, spark: SparkSession, keys: DataFrame, rows: DataFrame, facts: StepFacts) -> None:
        """Give some keys other rows, in one commit.

        Args:
            spark: The session to write in.
            keys: Those whose rows go.
            rows: Those that come, with all columns.
            facts: The step's.
        """
        adds = self._added(rows.select(*columns(self.schema.names)))
        found = keys.toArrow()
        key_schema = pa.schema([self.columns.field(name) for name in self.key])
        self._upserter.replace(found.cast(key_schema), adds, facts.committed("sink", "MERGE"))

    def _added(self, rows: DataFrame) -> list[Action]:
        """Write rows as data files, where they are; return the actions that add them."""
        write_rows = RowFiles(self.path, self.schema)
        written = numbered(rows).mapInArrow(write_rows, "action STRING")
        return [json.loads(row["action"]) for row in written.collect()]

    def overwrite(self, spark: SparkSession, rows: DataFrame, facts: StepFacts) -> None:
        """Replace all rows, and the columns by the spec's; arguments as `replace`."""
        adds = self._added(rows.select(*columns(self.schema.names)))

        def actions_of(found: Snapshot) -> list[Action]:
            return [*emptied(found, self._stored_schema, self._stored_properties), *adds]

        commit_stage(self.path, actions_of, facts, "sink", "REPLACE TABLE")

    def empty(self, spark: SparkSession, facts: StepFacts) -> None:
        """Replace the table by an empty one with the spec's columns and properties; its history stays."""
        commit_stage(
            self.path,
            lambda found: emptied(found, self._stored_schema, self._stored_properties),
            facts,
            "sink",
            "REPLACE TABLE",
        )

    def alter(self, spark: SparkSession, stored: pa.Schema, change: SchemaChange, facts: StepFacts) -> None:
        """Give the table the spec's columns; each row stays.

        Args:
            spark: The session to write in.
            stored: The user's columns as they were.
            change: What becomes of them.
            facts: The step's.
        """
        before = replace(self, columns=stored)
        bounded = self.schema.names[:STATISTICS_COLUMNS]
        work = FileUnderNewColumns(self.path, before.schema, self._stored_schema, tuple(bounded), change)
        alter_stage(spark, work, facts, "sink")

    def extend(self, spark: SparkSession) -> None:
        """Give a table that another client made what a sink has beside the user's columns."""
        schema = spark_schema(self._stored_schema, nullable=True)
        nothing = spark.createDataFrame([], schema)
        writer = nothing.write.format("delta").mode("append")
        settings = []
        for name, value in self._stored_properties.items():
            setting = f"'{name}' = '{value}'"
            settings.append(setting)
        properties = ", ".join(settings)
        table = f"delta.{quoted(self.path)}"
        writer.option("mergeSchema", "true").save(self.path)
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")
        settle_newest(self.path)

    def refuse_altered(self) -> None:
        """Refuse a table with columns of another client; see `Sink`."""
        self._upserter.refuse_altered()

    def refuse_unalterable(self, stored: pa.Schema) -> None:
        """Refuse a table with columns of another client, which would be lost, or with a feature that is not written; see `Sink`."""
        snapshot = Snapshot.read(self.path, any_features=True)
        if snapshot is None:
            return
        reserved = [name for name in self.schema.names if name in RESERVED]
        known = [*stored.names, *reserved]
        found = list(columns_of(snapshot.metadata))
        if set(found) != set(known):
            raise MigrationError.of(
                f"The sink '{self.path}' has other columns than the pipeline has given it.",
                got=", ".join(found),
                allowed=", ".join(known),
                next_step="Put them back as they were (ALTER TABLE), or run 'ebbtide refresh' to rebuild the sink from the source.",
            )
        self._refuse_unwritable(snapshot)

    def _refuse_unwritable(self, found: Snapshot) -> None:
        refuse_unwritable(self.path, found.protocol, found.metadata)

    def fold(self) -> None:
        """Join small files, if there is something to gain."""
        self._upserter.fold()

    def join_files(self, spark: SparkSession) -> None:
        """Join all small files."""
        self._upserter.fold(everything=True)

    def definition(self, found: Snapshot) -> list[Action]:
        """Return the actions that give a version the columns that the table is to have."""
        return redefined(found, self._stored_schema, self._stored_properties)

    def below(self, floor: tuple[int, ...]) -> Column:
        """Return whether a row stands below a TRUNCATE."""
        return self._floors.condition(floor)


@dataclass(frozen=True)
class RowFiles:
    """Writes the rows that a task is given as data files of a table; goes to the workers.

    Args:
        table: Its location.
        columns: All its columns, in the order of the rows'.
    """

    table: str
    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the actions that add the files, as JSON."""
        for batch in batches:
            if not len(batch):
                continue
            rows = pa.Table.from_batches([batch])
            named = rows.rename_columns(self.columns.names)
            typed = named.cast(self.columns)
            name = f"part-{uuid.uuid4()}.parquet"
            bounded = self.columns.names[:STATISTICS_COLUMNS]
            action = add_file(self.table, name, typed, bounded=bounded)
            text = json.dumps(action)
            yield pa.record_batch({"action": [text]})
