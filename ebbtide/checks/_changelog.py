"""The changelog: per key an insertion follows only a deletion; an update or deletion follows only an insertion or update.

Source: FLIP-544, on what sinks expect of a changelog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.changelog import ORDER, TRUNCATE
from ebbtide.checks._dialects import Dialect
from ebbtide.checks._inputs import TableRows
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.delta import Log


def emitted(judged: Judged) -> Rows:
    """Select all emissions for the keys with emissions in the window, from the first record on.

    Each record has `_new` (it is in the window), the number of TRUNCATEs before it (`_truncates`), and the kind of the
    record before (`_before`). Among a key's records between two TRUNCATEs, only the previous one decides what may follow.
    """
    changelog = judged.tables.changelog
    version = Log(changelog.path).versions()[-1]
    last_step_before = judged.window.input_step(judged.tables)

    def query(sql: Dialect) -> str:
        key = sql.names(judged.key)
        own = f"{key}, _kind, _order, _number"
        records = f"""
            SELECT {own}, _order.step > {last_step_before} AS _new
            FROM emissions
            WHERE _kind <> '{TRUNCATE}'"""
        truncates = f"""
            SELECT _order AS _emptied
            FROM emissions
            WHERE _kind = '{TRUNCATE}'"""
        place = sql.ranks("_order", ORDER.names)
        place_of_truncate = sql.ranks("_emptied", ORDER.names)
        is_emptied = sql.is_before(place_of_truncate, place)
        # There are few TRUNCATEs: each record is joined with all of them, and counts those before it.
        counted = f"""
            SELECT {own}, _new, count_if(_emptied IS NOT NULL AND {is_emptied}) AS _truncates
            FROM ({records}) AS _records
            LEFT JOIN ({truncates}) AS _truncated
            ON true
            GROUP BY {own}, _new"""
        new_keys = f"""
            SELECT DISTINCT {key}
            FROM ({records}) AS _all_records
            WHERE _new"""
        in_order = ", ".join([*place, "_number"])
        before = f"lag(_kind) OVER (PARTITION BY {key}, _truncates ORDER BY {in_order})"
        return f"""
            SELECT {own}, _new, _truncates, {before} AS _before
            FROM ({counted}) AS _counted
            INNER JOIN ({new_keys}) AS _new_keys
            USING ({key})"""

    columns = [*judged.key, "_kind", "_order", "_number", "_new", "_truncates", "_before"]
    inputs = {"emissions": TableRows(changelog.path, version, changelog.schema)}
    return Rows(inputs, query, columns, [*judged.key, "_order", "_number"])


@rule(
    "expect_emitted_to_follow",
    "Per $key, +I must come only where the key is absent, +U and -D only where it is present.",
)
def invalid_transitions(sql: Dialect, key: Sequence[str], orphans: bool) -> str:  # noqa: FBT001 - an expectation's argument
    """Pick the records that cannot follow the one before, per key.

    Args:
        sql: The dialect.
        key: Names of the key's columns.
        orphans: The sink keeps rows that have expired in the state: an insertion may meet an existing row.
    """
    is_absent = "_kind <> '+I' AND _before = '-D'"
    if orphans:
        return f"_new AND {is_absent}"
    is_inserted_twice = "_kind = '+I' AND _before <> '-D'"
    return f"_new AND (({is_inserted_twice}) OR ({is_absent}))"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the sink's changelog."""
    orphans = judged.tables.spec.leaves_orphans
    yield judged.batch(emitted(judged), invalid_transitions.expected(key=judged.key, orphans=orphans))
