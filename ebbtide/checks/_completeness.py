"""Completeness: the sink has exactly the rows that the state shows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._comparing import compared
from ebbtide.checks._dialects import Dialect
from ebbtide.checks._entries import Entries
from ebbtide.checks._inputs import GivenRows, Input, TableRows
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.entries import SinkChange
from ebbtide.ledger import StepFacts
from ebbtide.model import RestoreAndApply
from ebbtide.runtime import SinkHistory


def differences(judged: Judged) -> Rows | None:
    """Compare the newest versions, whole.

    Returns:
        One row for each key, with `_decided`, `_shown`, `_rows` and `_ebbtide_is_same` as in `compared`; None if the state does
        not keep the rows that the sink must show, or the last step is not in the sink yet. Acknowledged keys without
        later changes are left out. If the state forgets rows that stay in the sink, and other clients have changed
        rows, keys that the state does not show are compared with the sink's way back (`SinkHistory`), if
        there is one.
    """
    tables = judged.tables
    facts = judged.window.last_step(tables)
    if facts is None:
        return None
    history = SinkHistory(tables, facts)
    if not history.is_kept:
        return None
    inputs: dict[str, Input] = {"state_rows": judged.state_rows, "sink_rows": judged.sink_rows}
    forgets = history.may_forget
    way = _way_back(judged, history) if forgets else None
    if way is not None:
        inputs["net_changes"] = GivenRows(history.net_changes(way))
        if way.version is not None:
            sink = tables.delta_sink
            inputs["earlier_rows"] = TableRows(sink.path, way.version, sink.schema)

    def query(sql: Dialect) -> str:
        writer = _Differences(judged, facts, sql)
        if way is None:
            return writer.kept(only_decided=forgets)
        kept = writer.kept(only_decided=True)
        forgotten = writer.forgotten(has_base=way.version is not None)
        return f"{kept} UNION ALL {forgotten}"

    columns = [*judged.key, "_decided", "_shown", "_rows"]
    return Rows(inputs, query, columns, judged.key)


def _way_back(judged: Judged, history: SinkHistory) -> RestoreAndApply | None:
    """Find the sink's way back; None if there is none, or no other client has changed the sink."""
    window = judged.window
    own = history.own_versions(
        window.state_until,
        window.sink_until,
        window.sink_since,
    )
    if not own.foreign:
        return None
    return history.way_back(own)


class _Differences:
    """Writes the query for a pipeline whose last step has `facts`."""

    def __init__(self, judged: Judged, facts: StepFacts, sql: Dialect) -> None:
        self.sql = sql
        self.floor = facts.frontier.floor
        self.entries = Entries(judged.tables, sql)
        self.columns: pa.Schema = judged.tables.delta_sink.columns
        self.key = judged.key
        self.names = sql.names(self.key)
        self.result = f"{self.names}, _decided, _shown, _rows, _ebbtide_is_same"

    def kept(self, *, only_decided: bool) -> str:
        """Compare the sink with the state's rows, without acknowledged keys that have not changed since."""
        shown = self.entries.shown(self.floor)
        decided = f"SELECT *, true AS _ebbtide_is_decided FROM ({shown}) AS _to_show"
        join = "LEFT" if only_decided else "FULL OUTER"
        both = self._with_sink(decided, join)
        acknowledged = self.entries.acknowledged()
        return f"""
            SELECT {self.result}
            FROM ({both}) AS _both
            LEFT JOIN ({acknowledged}) AS _known
            USING ({self.names})
            WHERE NOT coalesce(_ebbtide_accepted > coalesce(_step, 0), false)"""

    def forgotten(self, *, has_base: bool) -> str:
        """Compare the sink with the rows after its way back, for keys that the state does not show.

        Args:
            has_base: Earlier rows of the sink are `earlier_rows`; `net_changes` follow on them.
        """
        names = self.names
        rows = self.sql.names(self.entries.tables.delta_sink.schema.names)
        applied = f"SELECT {rows} FROM net_changes WHERE _change <> '{SinkChange.DELETE}'"
        if has_base:
            changed = f"SELECT {names}, true AS _ebbtide_is_changed FROM net_changes"
            applied = f"""
                SELECT {rows}
                FROM earlier_rows
                LEFT JOIN ({changed}) AS _changed
                USING ({names})
                WHERE _ebbtide_is_changed IS NULL
                UNION ALL
                {applied}"""
        expected = self.entries.above(applied, self.floor)
        decided = f"""
            SELECT *, CAST(NULL AS BIGINT) AS _step, true AS _ebbtide_is_decided
            FROM ({expected}) AS _expected"""
        both = self._with_sink(decided, "FULL OUTER")
        shown = self.entries.shown(self.floor)
        known = f"SELECT DISTINCT {names}, true AS _ebbtide_is_known FROM ({shown}) AS _to_show"
        return f"""
            SELECT {self.result}
            FROM ({both}) AS _both
            LEFT JOIN ({known}) AS _known
            USING ({names})
            WHERE _ebbtide_is_known IS NULL"""

    def _with_sink(self, decided: str, join: str) -> str:
        """Join decided rows with those of the sink."""
        return compared(
            self.sql,
            decided,
            "SELECT * FROM sink_rows",
            self.key,
            self.columns,
            join=join,
        )


@rule("expect_sink_to_be_complete", "The sink must have exactly the rows that the state shows.")
def differing_keys(sql: Dialect) -> str:
    """Select the keys whose row differs from the decided one, or that have several rows."""
    return "NOT _ebbtide_is_same OR _rows > 1"


def judge(judged: Judged) -> Iterator[Batch]:
    """Compare the whole sink with the whole state."""
    rows = differences(judged)
    if rows is not None:
        yield judged.batch(rows, differing_keys.expected())
