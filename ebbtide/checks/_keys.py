"""Keys: the sink has one row per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule


def sink_keys(judged: Judged) -> Rows:
    """Name the keys of the sink's rows, each once, with its count (`_rows`)."""

    def query(sql: Dialect) -> str:
        key = sql.names(judged.key)
        return f"SELECT {key}, count(*) AS _rows FROM sink_rows GROUP BY {key}"

    return Rows({"sink_rows": judged.sink_rows}, query, [*judged.key, "_rows"], judged.key)


@rule("expect_keys_to_be_unique", "$key must be unique and not null.")
def duplicate_keys(sql: Dialect, key: Sequence[str]) -> str:
    """Pick the keys with more than one row, and those that have a null.

    Args:
        sql: The dialect.
        key: Names of the key's columns.
    """
    are_null = [f"{sql.name(name)} IS NULL" for name in key]
    return " OR ".join(["_rows > 1", *are_null])


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the sink's keys."""
    yield judged.batch(sink_keys(judged), duplicate_keys.expected(key=judged.key))
