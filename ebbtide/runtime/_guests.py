"""The contract between the runtime and its guests, materialized views and SQL.

The runtime finds materialized views by the entry point `tables` of the group `ebbtide.sources`, a class that is a `ViewSource`.
Importing this loads no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from ebbtide.errors import ConfigError
from ebbtide.model import ViewPosition
from ebbtide.runtime._workers.staging import Stager
from ebbtide.sources import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from ebbtide.spec import MaterializedView


GROUP = "ebbtide.sources"
NAME = "tables"


class ViewLineage(Protocol):
    """An analysed query; see `ViewSource.analyse`."""

    tables: frozenset[str]
    """The tables that it reads."""

    @property
    def columns(self) -> pa.Schema:
        """Its columns."""

    @property
    def key(self) -> list[str] | None:
        """The columns that identify its rows; None if unknown."""

    def common_columns(self, tables: Iterable[str]) -> list[str]:
        """Return the columns whose values show which rows a change of some tables touches; none: all are computed."""

    def origins(self, name: str) -> frozenset[tuple[str, str]]:
        """Return the sources of a column: tables, each with a column."""


@runtime_checkable
class ViewSource(Source, Protocol):
    """The tables that a materialized view reads, and what computes its steps."""

    def __init__(self, view: MaterializedView, root: str) -> None:
        """Name the view, and the folder of all pipelines' tables."""

    @staticmethod
    def analyse(
        spark: SparkSession,
        query: str,
        tables: Mapping[str, StructType],
        keys: Mapping[str, Sequence[str]],
    ) -> ViewLineage:
        """Analyze a query, without reading rows of its tables.

        Args:
            query: The query.
            tables: Name of each table that it may read to the table's columns.
            keys: The tables' keys, if known.

        Raises:
            ViewQueryError: it is not usable as a view.
        """

    def stage(
        self,
        spark: SparkSession,
        sink: str,
        stager: Stager,
        versions: tuple[ViewPosition | None, ViewPosition],
        *,
        step: int,
        wall_ms: int,
    ) -> tuple[list[str], str]:
        """Compute the changes, and stage them.

        Args:
            sink: Where the view's rows are.
            stager: Writes changes.
            versions: What the view was computed from by the step before, None before the first; and what to compute it from.
            step: The step's number.
            wall_ms: Its wall time, epoch ms.

        Returns:
            What the tasks returned (`StagedFile.to_json`); why all of the view was computed, empty if it was not.
        """


@lru_cache(maxsize=1)
def view_source() -> type[ViewSource]:
    """Return what materialized views are made of.

    Raises:
        ConfigError: this installation has none.
    """
    for found in entry_points(group=GROUP, name=NAME):
        source: type[ViewSource] = found.load()
        return source
    raise ConfigError.of(
        "This installation has no materialized views.",
        got=f"no entry point '{NAME}' of the group '{GROUP}'",
        next_step="Install ebbtide again; in a checkout, run 'uv sync'.",
    )
