"""EMIT CHANGES: the rows of a query, then what becomes of them, step by step of the tables that it reads.

The rows of two moments are compared, each whole at pinned versions: what is new, and what is gone. A query that has the key of the
one table it reads tells which belong together: -U and +U. Not Spark's own streaming: over a change feed it counts changes, not rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ebbtide.errors import SqlError
from ebbtide.sql.results import ResultColumn

Versions = Mapping[str, int]
"""Name of a table to a version of its sink."""
OWN_COLUMNS = (ResultColumn("op"), ResultColumn("version", "bigint"))
"""What stands before a query's columns: +I -U +U -D, and the version of the table that last changed."""
_OP, _VERSION = "_ebbtide_op", "_ebbtide_version"
_POSITION = re.compile(r"([a-z][a-z0-9_]*)=(\d+)")


@dataclass(frozen=True)
class Moment:
    """A query as of a moment.

    Args:
        versions: Of the tables that it reads.
        rows: Its rows then.
    """

    versions: Versions
    rows: DataFrame


def position_text(versions: Versions) -> str:
    """Write a moment down so that changes can be taken up again from there.

    Example:
        >>> position_text({"orders": 3, "items": 12})
        'items=12,orders=3'
    """
    parts = [f"{name}={version}" for name, version in sorted(versions.items())]
    return ",".join(parts)


def parse_position(text: str, names: Sequence[str]) -> dict[str, int]:
    """Read a position.

    Args:
        text: As `position_text` writes it.
        names: Of the tables that the query reads.

    Raises:
        SqlError: it is none of this query.
    """
    parts = [_POSITION.fullmatch(part) for part in text.split(",")]
    found = {part[1]: int(part[2]) for part in parts if part}
    if None in parts or found.keys() != set(names):
        allowed = [f"{name}=VERSION" for name in sorted(names)]
        raise SqlError.of(
            "This is no position of the query.",
            got=text,
            allowed=", ".join(allowed),
        )
    return found


def next_versions(now: Versions, newest: Versions) -> dict[str, int]:
    """Return the moment after one: of a single table its next version, of several that of them all now."""
    if len(now) != 1:
        return dict(newest)
    [name] = now
    following = now[name] + 1
    return {name: min(following, newest[name])}


def snapshot(moment: Moment) -> DataFrame:
    """Return all rows of a moment as insertions."""
    return _with_op(moment.rows, F.lit("+I"), moment)


def difference(before: Moment, after: Moment, key: Sequence[str]) -> DataFrame:
    """Return what became of the rows of one moment by another.

    Args:
        before: The earlier.
        after: The later.
        key: Columns of the query by which a new row replaces an old one; none: no row is an update.
    """
    gone = before.rows.exceptAll(after.rows)
    new = after.rows.exceptAll(before.rows)
    gone_with_sign = _with_op(gone, F.lit("-"), after)
    new_with_sign = _with_op(new, F.lit("+"), after)
    with_sign = gone_with_sign.unionAll(new_with_sign)
    sign = F.col(_OP)
    kind = F.when(sign == "+", "I").otherwise("D")
    if not key:
        return with_sign.withColumn(_OP, F.concat(sign, kind))
    keyed = [F.col(f"`{name}`") for name in key]
    of_key = Window.partitionBy(*keyed)
    n_of_key = F.count(F.lit(1)).over(of_key)
    kind_of_key = F.when(n_of_key > 1, "U").otherwise(kind)
    with_op = with_sign.withColumn(_OP, F.concat(sign, kind_of_key))
    deletions_first = F.col(_OP).desc()  # '-' is greater than '+'
    return with_op.orderBy(*keyed, deletions_first)


def key_of(columns: Sequence[str], sink_key: Sequence[str]) -> list[str]:
    """Return a table's key if a query over it alone has all of it, each once."""
    has_key = all(columns.count(name) == 1 for name in sink_key)
    return list(sink_key) if has_key else []


def _with_op(rows: DataFrame, op: Column, moment: Moment) -> DataFrame:
    newest = max(moment.versions.values(), default=0)
    version = F.lit(newest).cast("bigint")
    return rows.select(
        op.alias(_OP),
        version.alias(_VERSION),
        "*",
    )


def steps_since(
    start: Moment,
    newest: Callable[[], Versions],
    at: Callable[[Versions], Moment],
    wait: Callable[[], bool],
) -> Iterator[tuple[Moment, Moment]]:
    """Yield each moment with the one before it, as they come.

    Args:
        start: The first.
        newest: Tells the tables' versions now.
        at: Gives the query as of a moment.
        wait: Waits a while; False: there shall be no more.
    """
    before = start
    while True:
        versions = next_versions(before.versions, newest())
        if versions == before.versions:
            if not wait():
                return
            continue
        after = at(versions)
        yield before, after
        before = after
