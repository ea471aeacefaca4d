"""Texts within Markdown that a browser shows: values of records, names of files. None of them becomes HTML, a link or another form."""

from __future__ import annotations

import re

from ebbtide.redaction import printable

_SPECIAL = re.compile(r"[\\`*\[\]|~<>&]|(?<![^\W_])_|_(?![^\W_])|^[#+-]|^\d+(?=[.)])")
_LINK = re.compile(r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)|(?<=@)(?=\w)", re.IGNORECASE)
"""Places to split a text that looks like an address: renderers turn even escaped addresses into links."""
_BREAK = "\u200b"
"""A character that takes no room."""


def code(text: str, *, in_table: bool = False) -> str:
    r"""Return a text as code, in which markup is not interpreted.

    Args:
        text: The text.
        in_table: A pipe would end its cell.

    Example:
        >>> code("a`b"), code("x|y", in_table=True), code("")
        ('``a`b``', '`x\\|y`', '` `')
    """
    shown = printable(text)
    # The fence is longer than any run of backticks in the text; a space parts it from one at an end.
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    needs_space = not shown.strip() or shown[0] == "`" or shown[-1] == "`"
    padded = f" {shown} " if needs_space and shown else shown or " "
    written = padded.replace("|", "\\|") if in_table else padded
    return f"{fence}{written}{fence}"


def prose(text: str) -> str:
    r"""Return a text as it is read in a line of Markdown.

    Example:
        >>> prose("<b>*x*</b>")
        '\\<b\\>\\*x\\*\\</b\\>'
    """
    parts = printable(text).split("`")
    is_paired = len(parts) % 2 == 1
    if not is_paired:
        return _escaped("`".join(parts))
    # Parts between backticks are code, as intended by the line's author; a value with a backtick only shifts them.
    return "".join(code(part) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    escaped = _SPECIAL.sub(_with_backslash, text)
    return _LINK.sub(_BREAK, escaped)


def _with_backslash(found: re.Match[str]) -> str:
    special = found[0]
    return f"{special}\\" if special.isdigit() else f"\\{special}"
