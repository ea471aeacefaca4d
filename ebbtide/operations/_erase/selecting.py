"""The keys of the rows that fulfil a condition, by Spark: in the sink, and among the newest entries of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException

from ebbtide.errors import ConfigError
from ebbtide.frames import column
from ebbtide.runtime import ErasureKey
from ebbtide.spark_versions import arrow_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from ebbtide.executors import Executor


def keys_where(executor: Executor, asked: ErasureKey, where: str) -> pa.Table:
    """Return the keys whose row in the sink fulfils a condition, or whose entry in the state does.

    Args:
        asked: The key that the pipeline's erasures go by.
        where: The condition, as Spark SQL.

    Raises:
        ConfigError: it is a condition neither on columns of the sink nor on those of the state.
    """
    plan = asked.plan
    key = asked.columns
    last = plan.state.last()
    if last is None:
        return key.empty_table()
    version, _ = last
    entries = plan.state.frames.live_entries(executor.spark(), version)
    frames = [(entries, asked.state)]
    if plan.sink_log is not None:
        sink = plan.delta_sink
        rows = sink.read(executor.spark(), sink.version())
        frames.insert(0, (rows, asked.sink))
    found = [key.empty_table()]
    allowed = []
    n_usable = 0
    for rows, own_names in frames:
        allowed.append(", ".join(rows.columns))
        # A condition on columns of only one table selects only there.
        keys = _selected(rows, own_names, key, where)
        if keys is not None:
            n_usable += 1
            found.append(keys)
    if not n_usable:
        tables = "; or on ".join(allowed)
        raise ConfigError.of(
            "The value of --where is a condition neither on the sink's columns nor on the state's.",
            got=where,
            allowed=f"SQL on {tables}",
        )
    groups = pa.concat_tables(found).group_by(key.names)
    keys = groups.aggregate([])
    return keys.select(key.names).cast(key)


def _selected(rows: DataFrame, names: Sequence[str], key: pa.Schema, where: str) -> pa.Table | None:
    """Return the keys of rows that fulfil a condition; None if it is not a condition on their columns."""
    renamed = []
    for own, name in zip(names, key.names, strict=True):
        key_column = column(own)
        renamed.append(key_column.alias(name))
    try:
        selected = rows.where(where).select(*renamed)
        keys = selected.distinct()
    except AnalysisException:  # a ParseException is one
        return None
    return arrow_table(keys).cast(key)
