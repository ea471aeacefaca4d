"""A value as text, and how many columns of a terminal it takes."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

NULL = "NULL"
ELLIPSIS = "…"
_ZERO = ("Mn", "Me", "Cf")
"""Categories of characters that take no column: accents, and what joins others."""
_WIDE = ("W", "F")
"""East Asian widths of two columns."""


def whole(value: Any) -> str:
    """Return a value as text, not cut; nothing for NULL.

    Example:
        >>> whole(True), whole([1, "ä"]), whole(None)
        ('true', '[1, "ä"]', '')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def width(text: str) -> int:
    """Return how many columns a text takes.

    Example:
        >>> width("abc"), width("東京"), width("e\u0301")
        (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_character_width, text))


def cut(text: str, most: int) -> str:
    """Return a text of some columns at most, with an ellipsis where it was cut.

    Example:
        >>> cut("abcdef", 4), cut("東京都", 4), cut("abc", 3)
        ('abc…', '東…', 'abc')
    """
    if width(text) <= most:
        return text
    kept = 0
    room = most - 1
    for character in text:
        room -= _character_width(character)
        if room < 0:
            break
        kept += 1
    return text[:kept] + ELLIPSIS


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Return a text that takes some columns: cut, or filled with spaces behind, or in front if it is to stand right."""
    shown = cut(text, columns)
    n_spaces = columns - width(shown)
    spaces = " " * n_spaces
    return spaces + shown if right else shown + spaces


def folded(text: str, columns: int) -> list[str]:
    """Return the lines of a text that is broken wherever a line is full; one at least.

    Example:
        >>> folded("abcdef", 4)
        ['abcd', 'ef']
    """
    lines = [""]
    room = columns
    for character in text:
        room -= _character_width(character)
        if room < 0:
            lines.append("")
            room = columns - _character_width(character)
        lines[-1] += character
    return lines


def _character_width(character: str) -> int:
    if unicodedata.east_asian_width(character) in _WIDE:
        return 2
    return 0 if unicodedata.category(character) in _ZERO else 1
