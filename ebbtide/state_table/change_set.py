"""What a step decided for the sink, read from its commit's files alone: in Spark, or here without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.delta import log
from ebbtide.model.entries import equals
from ebbtide.operators.operator import Operator
from ebbtide.paths import open_parquet
from ebbtide.state_table.layout import EMITTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class StepChanges:
    """The change set of one step.

    Args:
        table: Location of the state table.
        version: The step's.
        operator: What decided.
    """

    table: str
    version: int
    operator: Operator

    def frame(self, spark: SparkSession) -> DataFrame:
        """Read it in Spark, with `_step`."""
        from ebbtide.state_table.table import StateTable

        return StateTable(self.table, self.operator).change_set(spark, self.version)

    def rows(self, columns: pa.Schema) -> pa.Table:
        """Read it here: `_change` and some columns of the sink, in these types."""
        schema = pa.schema([pa.field("_change", pa.string()), *columns])
        tables = [self._rows_of(location, schema) for location in log.added(self.table, self.version)]
        return pa.concat_tables([schema.empty_table(), *tables])

    def _rows_of(self, location: str, schema: pa.Schema) -> pa.Table:
        file = open_parquet(location)
        has_own_column = self.operator.has_named_states  # a function's rows for the sink stand in `_out`
        names = ["_change", "_out", "_changed_by"] if has_own_column else schema.names
        stored = file.read(columns=names)
        changes = stored.filter(pc.is_valid(stored["_change"]))
        values = {name: changes[name] for name in changes.column_names}
        if has_own_column:
            out = values.pop("_out").combine_chunks()
            values |= {name: pc.struct_field(out, name) for name in out.type.names}
        arrays = [values[column.name].cast(column.type) for column in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def emitted(self, columns: pa.Schema) -> pa.Table:
        """Read what the step emitted record by record: `_kind`, columns of the user's, `_order`, `_number`.

        Args:
            columns: Of the changelog table.
        """
        tables = [columns.empty_table()]
        for location in log.added(self.table, self.version):
            file = open_parquet(location)
            names = ["_entry", "_note", "_changed_by", "_position", *self.operator.columns.names]
            if "_changed_by" not in file.schema_arrow.names or "_position" not in file.schema_arrow.names:
                continue
            rows = file.read(columns=names)
            emitted = rows.filter(pa.array(equals(rows, "_entry", EMITTED)))
            stored_as = {"_kind": "_note", "_order": "_changed_by", "_number": "_position"}
            arrays = []
            for column in columns:
                stored = emitted[stored_as.get(column.name, column.name)]
                arrays.append(stored.cast(column.type))
            tables.append(pa.Table.from_arrays(arrays, schema=columns))
        return pa.concat_tables(tables)
