"""Rows as lines of styled text, for a view: many in columns, or one of them a column a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ebbtide.redaction import printable
from ebbtide.sql.results import ResultColumn, Row
from ebbtide.sql.shell.cells import folded, padded, width
from ebbtide.sql.shell.formats import cell, is_number, short_cell

Line = list[tuple[str, str]]
"""Styles and texts, from left to right."""
HEADER, CURSOR, STATUS, PLAIN = "class:header", "class:cursor", "class:status", ""
OP_STYLES = {"+I": "class:insert", "+U": "class:update", "-U": "class:retract", "-D": "class:delete"}
JOINT = "  "


class Columns:
    """The columns that are seen: from one of them on, each of a width, as many as there is room for.

    Args:
        columns: All.
        widths: Of each.
        left: The first that is seen.
        width: Of the terminal.
    """

    def __init__(
        self,
        columns: Sequence[ResultColumn],
        widths: Sequence[int],
        left: int,
        width: int,
    ) -> None:
        end = left
        room = width
        while end < len(columns) and room > 0:
            room -= widths[end] + len(JOINT)
            end += 1
        self._columns = columns[left:end]
        self._widths = widths[left:end]
        self._left = left
        self._end = end
        self._width = width

    def header(self) -> Line:
        """Lay out their names."""
        names = [printable(column.name) for column in self._columns]
        return [(HEADER, self._joined(names))]

    def line(self, row: Row, style: str) -> Line:
        """Lay out a row."""
        cells = [short_cell(value) for value in row[self._left : self._end]]
        return [(style, self._joined(cells))]

    def _joined(self, cells: Sequence[str]) -> str:
        parts = []
        with_columns = zip(self._columns, cells, self._widths, strict=True)
        for column, text, wide in with_columns:
            part = padded(text, wide, right=is_number(column))
            parts.append(part)
        return padded(JOINT.join(parts), self._width)


def op_style(row: Row) -> str:
    """Return how a change is shown, by what it does."""
    return OP_STYLES.get(str(row[0]), PLAIN)


def row_lines(columns: Sequence[ResultColumn], row: Sequence[Any], most_width: int) -> list[Line]:
    """Lay out one row, a column a line; long values are broken, not cut."""
    names = [printable(column.name) for column in columns]
    longest = max(map(width, names), default=0)
    name_width = min(longest, most_width // 3)
    rest = most_width - name_width - len(JOINT)
    value_width = max(1, rest)
    lines: list[Line] = []
    for name, value in zip(names, row, strict=True):
        label = padded(name, name_width)
        for part in folded(cell(value), value_width):
            line = [
                (HEADER, label),
                (PLAIN, JOINT + part),
            ]
            lines.append(line)
            label = " " * name_width
    return lines
