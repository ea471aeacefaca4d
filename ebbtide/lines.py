"""Lines of texts."""

from __future__ import annotations


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text, as editors and JSON lines have them.

    `str.splitlines` also cuts at form feeds, U+0085, U+2028 and the like, which may stand within a value.

    Example:
        >>> lines_of("a\u2028b\r\nc\n"), lines_of("")
        (['a\u2028b', 'c'], [])
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
