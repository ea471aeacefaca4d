"""The columns that statistics are kept of in the log, and the table property that names them to other writers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ebbtide.columns import quoted
from ebbtide.delta import Snapshot
from ebbtide.errors import DeltaFeatureError

COLUMNS = "delta.dataSkippingStatsColumns"
"""Table property: the columns that writers keep statistics of."""
FIRST_COLUMNS = 32
"""Statistics are kept of the first columns, as many as Spark keeps by default."""


def bounded_columns(columns: pa.Schema, hidden: frozenset[str]) -> tuple[str, ...]:
    """Return the columns of a table that statistics are kept of.

    Args:
        columns: All its columns.
        hidden: Those whose values the log does not show.
    """
    first = columns.names[:FIRST_COLUMNS]
    return tuple(name for name in first if name not in hidden)


def hiding_properties(columns: pa.Schema, hidden: frozenset[str]) -> dict[str, str]:
    """Return the table property that makes other writers keep hidden columns out of the log; none without such columns."""
    if not hidden:
        return {}
    last = columns.names[-1]  # never a user's: an empty list would be refused
    shown = bounded_columns(columns, hidden) or (last,)
    fields = [columns.field(name) for name in shown]
    return statistics_property(fields)


def refuse_shown(found: Snapshot, hidden: frozenset[str]) -> None:
    """Refuse a table that is partitioned by hidden columns: the log and the names of folders show their values.

    Args:
        found: A version of it.
        hidden: Columns whose values the log does not show.

    Raises:
        DeltaFeatureError: it is.
    """
    shown = [name for name in found.partitioned if name in hidden]
    if shown:
        raise DeltaFeatureError.of(
            f"The Delta table '{found.table}' is partitioned by personal columns: its log and its folders show their values.",
            got=", ".join(shown),
            allowed="partition columns that are not personal",
            next_step="Write it again without this partitioning (CREATE OR REPLACE TABLE ... AS SELECT), then run again.",
        )


def statistics_property(columns: Sequence[pa.Field]) -> dict[str, str]:
    """Return the table property that names the columns with statistics, those of types that Delta accepts there.

    Args:
        columns: Top-level columns.
    """
    taken = [column for column in columns if _is_taken(column.type)]
    names = [quoted(column.name) for column in taken]
    return {COLUMNS: ",".join(names)}


def _is_taken(type_: pa.DataType) -> bool:
    """Return whether Delta takes a column of a type in its list: it refuses the table's property otherwise."""
    is_bare = pa.types.is_boolean(type_) or pa.types.is_binary(type_)
    is_collection = pa.types.is_list(type_) or pa.types.is_map(type_)
    return not (is_bare or is_collection)
