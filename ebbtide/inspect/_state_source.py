"""Stored state as a format of Spark, for SQL and programs that have no spec in Python.

```sql
CREATE TEMPORARY VIEW state USING ebbtide OPTIONS (spec 'defs/orders', root 's3://lake/ebbtide', step 12)
```

Spark plans the reading in a process of Python, and reads each range of keys in a task. Columns as in `ebbtide.inspect._state`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ebbtide.inspect._state import ShownState

OPTIONS = {"spec": "the spec's folder or file", "root": "the folder of all pipelines' tables", "step": "a number"}
"""Options of a read. `spec` and `root` are needed; without `step` it is the last one."""


class StateSource(DataSource):
    """The format `ebbtide`: the state of a pipeline as of a step."""

    @classmethod
    def name(cls) -> str:
        """Its name in `format`."""
        return "ebbtide"

    def schema(self) -> StructType:
        """Return the columns.

        Raises:
            ConfigError: an option is missing or not usable.
        """
        from ebbtide.sessions import spark_schema

        schema: StructType = spark_schema(self._shown().schema, nullable=True)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the state."""
        return _StateReader(self._shown())

    def _shown(self) -> ShownState:
        from ebbtide.definitions import load
        from ebbtide.inspect._state import shown_state

        spec = load(self._needed("spec"))
        return shown_state(spec, self._needed("root"), as_of_step=self._step())

    def _needed(self, name: str) -> str:
        value = self.options.get(name)
        if not value:
            raise self._misfit(f"The option '{name}' is missing.", "none")
        return value

    def _step(self) -> int | None:
        step = self.options.get("step")
        if step is None:
            return None
        if not step.isdigit():
            raise self._misfit("The option 'step' is no step.", step)
        return int(step)

    def _misfit(self, what: str, got: str) -> ConfigError:
        allowed = "; ".join(f"{name}: {value}" for name, value in OPTIONS.items())
        return ConfigError.of(f"{what} It is of the format 'ebbtide'.", got=got, allowed=allowed)


class _StateReader(DataSourceReader):
    """Reads a state.

    Args:
        rows: Returns the rows of a range of keys.
    """

    def __init__(self, rows: ShownState) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return the ranges, each a task's."""
        from ebbtide.tables import HashRange

        return [InputPartition(part) for part in HashRange.covering(self._rows.n_rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""
        for rows in self._rows(partition.value):
            yield from rows.to_batches()
