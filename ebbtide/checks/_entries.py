"""Queries over a state table's rows, `state_rows`: newest entries, rows that the sink must show, decisions of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebbtide.checks._dialects import Dialect
from ebbtide.entries import SinkChange
from ebbtide.runtime import Plan
from ebbtide.tables import EntryKind


@dataclass(frozen=True)
class Entries:
    """Writes queries over the entries of a pipeline.

    Args:
        tables: The pipeline's.
        sql: The dialect.
    """

    tables: Plan
    sql: Dialect

    @property
    def names(self) -> list[str]:
        """The columns of an entry."""
        return list(self.tables.operator.schema.names)

    def rows(self, condition: str = "true") -> str:
        """Select stored versions of entries."""
        names = self.sql.names(self.names)
        return f"""
            SELECT {names}
            FROM state_rows
            WHERE _entry = '{EntryKind.ROW}' AND ({condition})"""

    def current(self, since: int = 0) -> str:
        """Select the newest version of each entry written after a step, dropped ones included (`_removed`)."""
        operator = self.tables.operator
        conditions = ["true"]
        if since:
            conditions.append(f"_step > {since}")
        if operator.has_named_states:
            conditions.append("_state IS NOT NULL")  # the rest are rows for the sink
        condition = " AND ".join(conditions)
        versions = self.rows(condition)
        return self.newest(versions, operator.entry_key)

    def newest(self, entries: str, alike: Sequence[str]) -> str:
        """Select the rows of the greatest step in each group of rows with equal values in some columns."""
        names = self.sql.names(self.names)
        group = self.sql.names(alike)
        # A rank, not a row number: all rows of the same step are kept.
        rank = f"rank() OVER (PARTITION BY {group} ORDER BY _step DESC)"
        ranked = f"SELECT *, {rank} AS _ebbtide_rank FROM ({entries}) AS _versions"
        return f"""
            SELECT {names}
            FROM ({ranked}) AS _ranked
            WHERE _ebbtide_rank = 1"""

    @property
    def _output_key(self) -> dict[str, str]:
        """Key columns of a transform's output to the entry's columns; empty without a transform."""
        return dict(getattr(self.tables.operator, "output_key", ()))

    def column(self, name: str) -> str:
        """Return a column of the sink: a transform's output is in `_out`; the key is the entry's, if known."""
        output_key = self._output_key
        if name in output_key:
            of_entry = output_key[name]
            return self.sql.name(of_entry)
        struct = "_out" if name in self._selected_names else ""
        return self.sql.name(name, struct)

    @property
    def _selected_names(self) -> list[str]:
        """The columns that a transform selects; none without one."""
        if "_out" not in self.names:
            return []
        out = self.tables.operator.schema.field("_out")
        return list(out.type.names)

    def for_sink(self, entries: str, condition: str = "true") -> str:
        """Select entries under the sink's columns, with their `_step` and `_change`."""
        selected = ["_step", "_change"]
        for name in self.tables.delta_sink.schema.names:
            value = self.column(name)
            shown_as = self.sql.name(name)
            selected.append(f"{value} AS {shown_as}")
        columns = ", ".join(selected)
        return f"""
            SELECT {columns}
            FROM ({entries}) AS _entries
            WHERE {condition}"""

    def above(self, rows: str, floor: tuple[int, ...] | None) -> str:
        """Select the rows of the sink that are not below the floor of a TRUNCATE."""
        if not floor:
            return rows
        sequence = self.tables.delta_sink.sequence
        struct = "_sequence" if sequence else "_changed_by"
        ranks = self.sql.ranks(struct, sequence or ("step", "part", "position"))
        limits = [f"CAST({limit} AS BIGINT)" for limit in floor]
        is_below = self.sql.is_before(ranks, limits)
        return f"""
            SELECT *
            FROM ({rows}) AS _above
            WHERE NOT {is_below}"""

    def decided(self, floor: tuple[int, ...] | None) -> str:
        """Select the last decision on each key that the version still holds, without keys that a TRUNCATE deleted.

        Only the newest versions of entries count. A step may change an entry without deciding anything for the sink,
        and a fold may keep this version next to older ones in files that it did not read. A dropped entry's decision
        counts until its key is written again, since the following decision may have been on an entry that a later step
        has changed.
        """
        operator = self.tables.operator
        versions = self.rows()
        entries = self.newest(versions, operator.entry_key)
        columns_of_entry = [name for name in self.names if name != "_change"]
        columns = self.sql.names(columns_of_entry)
        key = self.sql.names(operator.key)
        stated = f"""
            SELECT
                {columns},
                {self._stated_change} AS _change,
                max(_step) OVER (PARTITION BY {key}) AS _ebbtide_last_step
            FROM ({entries}) AS _newest"""
        made = f"""
            SELECT *
            FROM ({stated}) AS _stated
            WHERE (NOT _removed OR _step = _ebbtide_last_step) AND _change IS NOT NULL"""
        last = self.newest(made, operator.key)
        rows = self.for_sink(last)
        return self.above(rows, floor)

    @property
    def _stated_change(self) -> str:
        """Return the change of the sink that the newest version of each key's entry asks for.

        By sequence a key has one entry. If a later step has changed it without a decision, the row that it shows counts.
        """
        if self._output_key:
            return f"CASE WHEN _shown THEN '{SinkChange.INSERT}' ELSE '{SinkChange.DELETE}' END"
        if "_tombstone" not in self.names:
            return "_change"
        return f"coalesce(_change, CASE WHEN NOT _tombstone AND NOT _removed THEN '{SinkChange.INSERT}' END)"

    def decided_since(self, step: int) -> str:
        """Select the changes for the sink of all later steps that the version still holds."""
        condition = f"_step > {step}"
        if not self._output_key:
            condition = f"{condition} AND _change IS NOT NULL"
        versions = self.rows(condition)
        return self.for_sink(versions)
