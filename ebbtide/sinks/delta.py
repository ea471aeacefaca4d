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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from delta import DeltaTable
from delta.tables import DeltaTableBuilder
from numpy.typing import NDArray
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.delta.altering import FileUnderNewColumns, fills_of
from ebbtide.delta.features import refuse_unwritable
from ebbtide.delta.restoring import restoring
from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import add_file, create_if_absent, emptied, redefined, replacing
from ebbtide.errors import ConfigError, MigrationError
from ebbtide.ledger.facts import StepFacts, TableFacts
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.tables import OwnTable
from ebbtide.ledger.transaction import settle_newest, settled, transaction, write
from ebbtide.model import decision as does
from ebbtide.model.changelog import ORDER
from ebbtide.model.decision import Restore, RestoreAndApply
from ebbtide.model.entries import DELETE
from ebbtide.model.schema_change import SchemaChange
from ebbtide.model.sequences import stored_sequence_type
from ebbtide.sinks.sink import ChangeSet, Sink, Work, cannot_perform
from ebbtide.sinks.stage import alter_stage, commit_stage, restore_stage
from ebbtide.sinks.upsert import STATISTICS_COLUMNS, Upsert, Upserter
from ebbtide.state_table.columns import column, columns, numbered, quoted, spark_schema

RESERVED = ("_sequence", "_changed_by")
"""Sink columns that views and comparisons leave out."""


Write = Literal["vectors", "rewrite", "merge"]
"""How the old rows of a step's keys leave: by deletion vectors, with their files, or as Delta's MERGE does it."""


@dataclass(frozen=True)
class SinkTable(Sink):
    """One pipeline's sink.

    Args:
        path: Its location.
        columns: The user's columns.
        key: Names of the key's columns.
        sequence: What orders changes: rows carry `_sequence`. Empty in arrival mode.
        how: How old rows leave.
        is_spark_s: Spark defines the table, see `ebbtide.spec.parts.DeltaSink`.
        with_images: The change feed shows each row before and after its change, from files of its own.
        properties: Delta table properties, set when the table is made.
        sequence_columns: The columns that `sequence` may name, where they are not the table's. Default: these.
    """

    path: str
    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    how: Write = "vectors"
    is_spark_s: bool = False
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

    def create(self, spark: SparkSession) -> None:
        """Create the table if it is not there."""
        if not self.is_spark_s:
            create_if_absent(
                puts_of(self.path),
                self.path,
                self._stored_schema,
                self._stored_properties,
                name="sink",
            )
        elif not log.versions(self.path):
            builder = DeltaTable.createIfNotExists(spark)
            self._define(builder)

    @property
    def _stored_schema(self) -> pa.Schema:
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

    def _define(self, builder: DeltaTableBuilder) -> None:
        builder = builder.location(self.path)
        builder = builder.addColumns(spark_schema(self._stored_schema))
        for name, value in self._stored_properties.items():
            builder = builder.property(name, value)
        try:
            with settled(self.path):
                builder.execute()
        except PySparkException as error:
            why = str(error).partition("\n")[0]
            raise ConfigError.of(
                f"Spark does not make the sink '{self.path}': {why}",
                got=f"table properties {', '.join(self.properties) or 'none'}",
                next_step="Correct the spec's sink.table_properties or its schema.",
            ) from error

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

    def can(self, action: does.Action) -> bool:
        """Return that it performs every action."""
        return True

    def perform(self, action: does.Action, work: Work) -> None:
        """Perform the action of a step, once; `replace` and `overwrite` are asked by themselves for what compares it with the state."""
        spark = work.spark
        facts = work.facts
        match action:
            case does.Apply():
                self.apply(spark, work.changes, facts, only_inserts=action.only_inserts)
            case Restore():
                self.restore(spark, action, facts)
            case RestoreAndApply():
                self.restore_and_apply(spark, action, work.net_changes(action), facts)
            case does.Alter():
                self.alter(spark, work.columns_before(action), action.change, facts)
            case does.Clear():
                self.empty(spark, facts)
            case _:
                raise cannot_perform(self.path, action)

    @cached_property
    def _own(self) -> OwnTable:
        return OwnTable(self.path, "sink")

    def version(self) -> int:
        """Return the newest version."""
        return log.versions(self.path)[-1]

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows as of a version."""
        reader = spark.read.format("delta").option("versionAsOf", version)
        return reader.load(self.path)

    def apply(
        self,
        spark: SparkSession,
        changes: ChangeSet,
        facts: StepFacts,
        *,
        only_inserts: bool,
    ) -> None:
        """Apply a step's change set, in one transaction with the step's number.

        Args:
            spark: The session to write in.
            changes: The change set.
            facts: The step's.
            only_inserts: No key is in the sink yet: append instead of merge.
        """
        if self.how == "merge":
            self._merge(spark, changes.frame(spark), facts, only_inserts=only_inserts)
            return
        upsert = self._upsert(changes.rows(self.schema), facts.raised_floor)
        info = {"userMetadata": facts.to_json()}
        self._upserter.apply(upsert, facts.transaction("sink"), facts.step, info)

    def _upsert(self, decided: pa.Table, floor: tuple[int, ...] | None) -> Upsert:
        is_deleted = pc.equal(decided["_change"], DELETE)
        rows = decided.filter(pc.invert(is_deleted)).drop_columns("_change")
        return Upsert(
            keys=decided.select(list(self.key)),
            rows=rows,
            is_below=self._below(floor),
            floor_columns=(self._rank,),
        )

    def replace(
        self,
        spark: SparkSession,
        keys: DataFrame,
        rows: DataFrame,
        facts: StepFacts,
    ) -> None:
        """Give some keys other rows; see `Sink`."""
        in_order = rows.select(*columns(self.schema.names))
        if self.how == "merge":
            # Two commits: a run that ended between them finds the deleted rows missing, and appends them.
            table = DeltaTable.forPath(spark, self.path).alias("t")
            is_same_row = _has_same_values(self.key)
            with settled(self.path):
                table.merge(keys.alias("s"), is_same_row).whenMatchedDelete().execute()
            write(in_order, self.path, facts, "sink")
            return
        adds = self._added(in_order)
        found = keys.toArrow()
        found = found.cast(self._key_schema)
        info = {"userMetadata": facts.to_json()}
        self._upserter.replace(found, adds, facts.transaction("sink"), facts.step, info)

    def _added(self, rows: DataFrame) -> list[Action]:
        """Write rows as data files, where they are; return the actions that add them."""
        write_rows = RowFiles(self.path, self.schema)
        written = numbered(rows).mapInArrow(write_rows, "action STRING")
        return [json.loads(row["action"]) for row in written.collect()]

    def overwrite(self, spark: SparkSession, rows: DataFrame, facts: StepFacts) -> None:
        """Replace all rows, and the columns by the spec's; see `Sink`."""
        in_order = rows.select(*columns(self.schema.names))
        if self.how == "merge":
            write(in_order, self.path, facts, "sink", "overwrite")
            return
        adds = self._added(in_order)

        def actions_of(found: Snapshot) -> list[Action]:
            return [*emptied(found, self._stored_schema, self._stored_properties), *adds]

        commit_stage(self.path, actions_of, facts, "sink", "REPLACE TABLE")

    def extend(self, spark: SparkSession) -> None:
        """Give a table that others made what a sink has beside the user's columns; see `Sink`."""
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

    def restore(self, spark: SparkSession, action: Restore, facts: StepFacts) -> None:
        """Bring the table back to an earlier version; see `Sink`."""
        if self.how == "merge":
            with transaction(spark, self.path, facts, "sink"):
                DeltaTable.forPath(spark, self.path).restoreToVersion(action.version)
        else:
            restore_stage(self.path, action, facts, "sink")

    def restore_and_apply(
        self,
        spark: SparkSession,
        action: RestoreAndApply,
        changes: pa.Table,
        facts: StepFacts,
    ) -> None:
        """Bring the table back to an earlier version, and apply changes to that; see `Sink`."""
        # Whichever step raised the floor: what is below it is dead.
        upsert = self._upsert(changes, facts.frontier.floor)
        if upsert.is_below is not None:
            is_above = np.invert(upsert.is_below(upsert.rows))
            upsert = replace(upsert, rows=upsert.rows.filter(pa.array(is_above)))

        def back(found: Snapshot) -> list[Action]:
            if action.version is None:
                return replacing(found.files.values(), [])
            return restoring(found, action.version)

        info = {"userMetadata": facts.to_json()}
        self._upserter.restore_and_apply(back, upsert, facts.transaction("sink"), facts.step, info)

    @property
    def _key_schema(self) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in self.key])

    def refuse_altered(self) -> None:
        """Refuse a table with columns of others, where Spark does not write it; see `Sink`."""
        if self.how != "merge":
            self._upserter.refuse_altered()

    def refuse_unalterable(self, stored: pa.Schema) -> None:
        """Refuse a table with columns of others, which would be lost, or with a feature that is not written; see `Sink`."""
        snapshot = Snapshot.read(self.path, any_features=True)
        if snapshot is None:
            return
        reserved = [name for name in self.schema.names if name in RESERVED]
        known = [*stored.names, *reserved]
        fields = json.loads(snapshot.metadata["schemaString"])["fields"]
        found = [field["name"] for field in fields]
        if set(found) != set(known):
            raise MigrationError.of(
                f"The sink '{self.path}' has other columns than the pipeline has given it.",
                got=", ".join(found),
                allowed=", ".join(known),
                next_step="Put them back as they were (ALTER TABLE), or run 'ebbtide refresh' to rebuild the sink from the source.",
            )
        if self.how != "merge":
            refuse_unwritable(self.path, snapshot.protocol, snapshot.metadata)

    def alter(
        self,
        spark: SparkSession,
        stored: pa.Schema,
        change: SchemaChange,
        facts: StepFacts,
    ) -> None:
        """Give the table the spec's columns; see `Sink`."""
        before = replace(self, columns=stored)
        if self.how == "merge":
            self._overwrite(spark, before.schema, change, facts)
            return
        bounded = self.schema.names[:STATISTICS_COLUMNS]
        work = FileUnderNewColumns(
            self.path,
            before.schema,
            self._stored_schema,
            tuple(bounded),
            change,
        )
        alter_stage(spark, work, facts, "sink")

    def _overwrite(
        self,
        spark: SparkSession,
        stored: pa.Schema,
        change: SchemaChange,
        facts: StepFacts,
    ) -> None:
        """Write the whole table again by Spark, which knows every feature; its change feed shows all rows go and come."""
        rows = self.read(spark, self.version())
        fills = fills_of(change, self.schema)
        types = spark_schema(self.schema, nullable=True)
        selected = []
        for name in self.schema.names:
            old_name = change.renamed.get(name, name)
            fill = fills[name].as_py() if name in fills else None
            value = column(old_name) if old_name in stored.names else F.lit(fill)
            typed = value.cast(types[name].dataType)
            selected.append(typed.alias(name))
        write(rows.select(*selected), self.path, facts, "sink", "overwrite")

    def fold(self) -> None:
        """Join small files, if there is something to gain, where Spark does not write the table."""
        if self.how != "merge":
            self._upserter.fold()

    def join_files(self, spark: SparkSession) -> None:
        """Join all small files."""
        if self.how == "merge":
            with settled(self.path):
                DeltaTable.forPath(spark, self.path).optimize().executeCompaction()
        else:
            self._upserter.fold(everything=True)

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
    def _rank(self) -> str:
        """The column that a floor is compared with."""
        return "_sequence" if self.sequence else "_changed_by"

    def _below(self, floor: tuple[int, ...] | None) -> Callable[[pa.Table], NDArray[np.bool_]] | None:
        """Return what marks the rows below a TRUNCATE; None if there is none."""
        if floor is None:
            return None
        names = self.sequence or tuple(ORDER.names)
        limits = dict(zip(names, floor, strict=True))

        def is_below(rows: pa.Table) -> NDArray[np.bool_]:
            ranks = rows[self._rank].combine_chunks()
            below = np.zeros(len(rows), dtype=bool)
            is_equal = np.ones(len(rows), dtype=bool)
            # The first component that differs decides.
            for name, limit in limits.items():
                component = pc.struct_field(ranks, name)
                integers = component.cast(pa.int64())
                values = integers.to_numpy(zero_copy_only=False)
                is_less = values < limit
                below |= is_equal & is_less
                is_equal &= values == limit
            return below

        return is_below

    def _merge(
        self,
        spark: SparkSession,
        changes: DataFrame,
        facts: StepFacts,
        *,
        only_inserts: bool,
    ) -> None:
        """Apply a change set by MERGE, which knows every feature of Delta; only inserts are appended."""
        names = self.schema.names
        if only_inserts:
            rows = changes.select(*columns(names))
            write(rows, self.path, facts, "sink")
            return
        table = DeltaTable.forPath(spark, self.path).alias("t")
        source = changes.select("_change", *columns(names)).alias("s")
        values: dict[str, str | Column] = {quoted(name): column(name, "s") for name in names}
        is_same_row = _has_same_values(self.key)
        is_deleted = F.col("s._change") == DELETE
        is_newer = F.lit(True)
        if self.sequence:
            is_unknown = F.col("t._sequence").isNull()  # of a row that is being adopted
            is_newer = is_unknown | (F.col("s._sequence") >= F.col("t._sequence"))
        merge = (
            table.merge(source, is_same_row)
            .whenMatchedDelete(is_deleted & is_newer)
            .whenMatchedUpdate(~is_deleted & is_newer, values)
            .whenNotMatchedInsert(~is_deleted, values)
        )
        if facts.raised_floor is not None:
            is_below_floor = self.below(facts.raised_floor, "t.")
            merge = merge.whenNotMatchedBySourceDelete(is_below_floor)
        with transaction(spark, self.path, facts, "sink"):
            merge.execute()

    def empty(self, spark: SparkSession, facts: StepFacts) -> None:
        """Replace the table by an empty one with the spec's columns and properties; its history stays."""
        if self.is_spark_s:
            with transaction(spark, self.path, facts, "sink"):
                self._define(DeltaTable.replace(spark))
            return
        commit_stage(
            self.path,
            lambda found: emptied(found, self._stored_schema, self._stored_properties),
            facts,
            "sink",
            "REPLACE TABLE",
        )

    def definition(self, found: Snapshot) -> list[Action]:
        """Return the actions that give a version the columns that the table is to have; see `Sink`."""
        return redefined(found, self._stored_schema, self._stored_properties)

    def below(self, floor: tuple[int, ...], side: str = "") -> Column:
        """Return whether a row stands below a TRUNCATE."""
        names = self.sequence or ORDER.names
        # Structs compare field by field, which is the order of the changes.
        own = []
        limits = []
        for name, limit in zip(names, floor, strict=True):
            component = quoted(name, self._rank)
            value = F.col(f"{side}{component}")
            bound = F.lit(limit).cast("bigint")
            own.append(value.alias(name))
            limits.append(bound.alias(name))
        return F.struct(*own) < F.struct(*limits)


def _has_same_values(key: tuple[str, ...]) -> Column:
    """Return whether `t` and `s` have the same key; null is the same as null."""
    are_same = [column(name, "t").eqNullSafe(column(name, "s")) for name in key]
    return reduce(Column.__and__, are_same)


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
