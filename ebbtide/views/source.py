"""Entry point of materialized views for the runtime: their tables as a source, and the computation of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ebbtide.runtime import Stager
from ebbtide.views.inputs import ViewTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from ebbtide.model import ViewPosition
    from ebbtide.views.lineage import Lineage


class ComputedTables(ViewTables):
    """The tables of a view with the computation of its steps; see `ebbtide.runtime._guests.ViewSource`."""

    @staticmethod
    def analyse(
        spark: SparkSession,
        query: str,
        tables: Mapping[str, StructType],
        keys: Mapping[str, Sequence[str]],
    ) -> Lineage:
        """See `ViewSource`."""
        from ebbtide.views.query import analyse, new_session

        return analyse(new_session(spark), query, tables, keys)

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
        """See `ViewSource`."""
        from ebbtide.views.recompute import Recomputing

        last, to = versions
        recomputing = Recomputing(spark, self, sink, last, to)
        results = recomputing.stage(stager, step, wall_ms)
        return results, recomputing.extent.reason
