"""Sinks that Spark makes, and those that it writes too.

Spark makes a sink whose table properties may switch on features that it alone knows. It writes a sink (`write: merge`) whose features
Ebbtide does not write, partitions for instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import pyarrow as pa
from delta import DeltaTable
from delta.tables import DeltaTableBuilder
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ebbtide.columns import quoted
from ebbtide.delta import Log, Snapshot
from ebbtide.entries import SinkChange
from ebbtide.errors import ConfigError
from ebbtide.executors import Executor
from ebbtide.formats import Coding
from ebbtide.ledger import StepFacts
from ebbtide.model import Action, Replace, Restore, RestoreAndApply, Rewrite, SchemaChange
from ebbtide.sessions import Frames, spark_schema
from ebbtide.tables._delta_sink import SinkTable
from ebbtide.tables._table import ChangeSet, Work


class SparkMadeSink(SinkTable):
    """A sink that Spark makes and empties, and Ebbtide writes."""

    @classmethod
    def written_by(cls, write: str) -> type[SparkMadeSink]:
        """Return the class of a sink, by the spec's `sink.write`: Spark also writes one that it merges."""
        return MergeSink if write == "merge" else cls

    def create(self, executor: Executor) -> None:
        """Create the table if it does not exist."""
        if not Log(self.path).versions():
            self._define(DeltaTable.createIfNotExists(executor.spark()))

    def empty(self, work: Work) -> None:
        """Replace the table by an empty one with the spec's columns and properties; its history stays."""
        spark = work.executor.spark()
        with self._own.transaction(spark, work.facts):
            self._define(DeltaTable.replace(spark))

    def extend(self, executor: Executor) -> None:
        """Add a sink's reserved columns and properties to a table that another client made."""
        # Spark knows every feature that the table may have. An append without rows adds the columns and leaves the files alone.
        schema = spark_schema(self.stored_schema, nullable=True)
        spark = executor.spark()
        nothing = spark.createDataFrame([], schema)
        writer = nothing.write.format("delta").mode("append")
        settings = []
        for name, value in self.stored_properties.items():
            setting = f"'{name}' = '{value}'"
            settings.append(setting)
        properties = ", ".join(settings)
        table = f"delta.{quoted(self.path)}"
        writer.option("mergeSchema", "true").save(self.path)
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")
        self._own.settle_newest()  # the state's commit, which follows, relies on both

    def _define(self, builder: DeltaTableBuilder) -> None:
        builder = builder.location(str(self.path))  # Delta takes no subclass of str
        builder = builder.addColumns(spark_schema(self.stored_schema))
        for name, value in self.stored_properties.items():
            builder = builder.property(name, value)
        try:
            with self._own.settled():
                builder.execute()
        except PySparkException as error:
            why = str(error).partition("\n")[0]
            raise ConfigError.of(
                f"Spark does not make the sink '{self.path}': {why}",
                got=f"table properties {', '.join(self.properties) or 'none'}",
                next_step="Correct the spec's sink.table_properties or its schema.",
            ) from error


@dataclass(frozen=True)
class MergeSink(SparkMadeSink):
    """A sink that Spark writes: by MERGE, which knows every feature of Delta."""

    deletes_by: Literal["vectors", "rewrite"] = "rewrite"

    def can(self, action: Action) -> bool:
        """Return whether it performs an action: to restore and apply would be two commits."""
        return not isinstance(action, RestoreAndApply)

    def apply(
        self,
        executor: Executor,
        changes: ChangeSet,
        facts: StepFacts,
        *,
        only_inserts: bool,
    ) -> None:
        """Apply a step's change set; only inserts are appended."""
        names = self.schema.names
        decided = changes.frame(executor.spark())
        own = [quoted(name) for name in names]
        if only_inserts:
            # An append does not read the sink: a MERGE would scan it for matches that do not exist.
            self._own.write(decided.select(*own), facts)
            return
        table = DeltaTable.forPath(executor.spark(), self.path).alias("t")
        source = decided.select("_change", *own).alias("s")
        values: dict[str, str | Column] = {quoted(name): F.col(quoted(name, "s")) for name in names}
        is_deleted = F.col("s._change") == SinkChange.DELETE
        is_newer = F.lit(True)
        # Only a row that is not newer is replaced; at an equal sequence a later fill of its columns still arrives.
        if self.sequence:
            stored = F.col("t._sequence")
            is_unknown = stored.isNull()  # a row that is being adopted has none yet
            is_newer = is_unknown | (F.col("s._sequence") >= stored)
        merge = (
            table.merge(source, self._is_same_row)
            .whenMatchedDelete(is_deleted & is_newer)
            .whenMatchedUpdate(~is_deleted & is_newer, values)
            .whenNotMatchedInsert(~is_deleted, values)
        )
        if facts.raised_floor is not None:
            is_below_floor = self._floors.condition(facts.raised_floor, "t.")
            merge = merge.whenNotMatchedBySourceDelete(is_below_floor)
        with self._own.transaction(executor.spark(), facts):
            merge.execute()

    @property
    def _is_same_row(self) -> Column:
        """The condition that `t` and `s` have the same key; null equals null."""
        are_same = []
        for name in self.key:
            value = F.col(quoted(name, "s"))
            is_same = F.col(quoted(name, "t")).eqNullSafe(value)
            are_same.append(is_same)
        return reduce(Column.__and__, are_same)

    def rewrite(self, action: Rewrite, work: Work) -> None:
        """Replace the rows that differ from those that the state shows, or all rows."""
        executor, facts = work.executor, work.facts
        if action.overwrites or (action.alters and self._has_other_columns()):
            self._overwrite(executor, work.take_shown(action, _as_they_are), facts)
            return
        # In two commits. Only the second has the step's mark: a run that ended between them finds the step lacking, and does both again.
        differing = work.difference(action, _as_they_are)
        spark = executor.spark()
        keys = Frames(spark).of_arrow(differing.present, spark_schema(differing.present.schema)).alias("s")
        with self._own.settled():
            merge = DeltaTable.forPath(spark, self.path).alias("t").merge(keys, self._is_same_row)
            merge.whenMatchedDelete().execute()
        self._own.write(self._frame(executor, differing.taken), facts)

    def take_rows(self, action: Replace, work: Work) -> None:
        """Take all rows of the table under another root, in one commit."""
        taken = work.taken(action)
        if taken is not None:
            self._overwrite(work.executor, [taken.rows(self.schema)], work.facts)

    def _overwrite(self, executor: Executor, tables: Sequence[pa.Table], facts: StepFacts) -> None:
        """Replace all rows, and the columns by the spec's."""
        self._own.write(self._frame(executor, tables), facts, "overwrite")

    def _frame(self, executor: Executor, tables: Sequence[pa.Table]) -> DataFrame:
        """Return rows as a frame under the sink's columns."""
        rows = pa.concat_tables([self.schema.empty_table(), *tables])
        return Frames(executor.spark()).of_arrow(rows, spark_schema(self.schema, nullable=True))

    def restore(self, action: Restore, work: Work) -> None:
        """Bring the table back to an earlier version."""
        spark = work.executor.spark()
        with self._own.transaction(spark, work.facts):
            DeltaTable.forPath(spark, self.path).restoreToVersion(action.version)

    def alter(
        self,
        executor: Executor,
        stored: pa.Schema,
        change: SchemaChange,
        facts: StepFacts,
    ) -> None:
        """Rewrite the whole table under the spec's columns; its change feed shows each row deleted and inserted."""
        stored_names = self.schema_of(stored).names
        rows = self.read(executor.spark(), self.version())
        fills = change.fills(self.schema, Coding().convert)
        types = spark_schema(self.schema, nullable=True)
        selected = []
        for name in self.schema.names:
            old_name = change.renamed.get(name, name)
            fill = fills[name].as_py() if name in fills else None
            value = F.lit(fill)
            if old_name in stored_names:
                value = F.col(quoted(old_name))
            typed = value.cast(types[name].dataType)
            selected.append(typed.alias(name))
        self._own.write(rows.select(*selected), facts, "overwrite")

    def refuse_altered(self, newest: Snapshot | None) -> None:
        """Refuse nothing: Spark itself refuses what it cannot write."""

    def _refuse_unwritable(self, found: Snapshot) -> None:
        """Refuse nothing, see `refuse_altered`."""

    def fold(self, executor: Executor) -> None:
        """Leave the files to `join_files`."""

    def join_files(self, executor: Executor) -> None:
        """Join all small files."""
        with self._own.settled():
            DeltaTable.forPath(executor.spark(), self.path).optimize().executeCompaction()


def _as_they_are(rows: pa.Table) -> pa.Table:
    """Return rows: they come to the process that asks for them."""
    return rows
