"""Colours of statements: SQL as Pygments reads it, with the words of ours and Spark's names in backticks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from pygments.lexers.sql import SqlLexer
from pygments.token import Keyword, Name, String

from ebbtide.sql.reference import STATEMENTS

_WORD = re.compile(r"[A-Z]{2,}")
KEYWORDS = frozenset(
    word for entries in STATEMENTS.values() for entry in entries for word in _WORD.findall(entry.syntax)
)
"""Words in capitals of the statements that HELP lists."""
STYLE = {
    "pygments.keyword": "ansiblue bold",
    "pygments.name.builtin": "ansicyan",
    "pygments.literal.string": "ansigreen",
    "pygments.literal.number": "ansimagenta",
    "pygments.comment": "ansibrightblack italic",
}
"""By the terminal's own colours."""


class StatementLexer(SqlLexer):
    """Splits what is typed into words of a kind."""

    tokens: ClassVar[dict[str, Any]] = {
        **SqlLexer.tokens,
        "root": [(r"`(``|[^`])*`", Name), (r"'(\\.|''|[^'\\])*'", String.Single), *SqlLexer.tokens["root"]],
    }

    def get_tokens_unprocessed(self, text: str, stack: Any = ("root",)) -> Iterator[tuple[int, Any, str]]:
        """Yield offset, kind and text of each word."""
        for offset, kind, word in super().get_tokens_unprocessed(text, stack):
            if kind is Name and word.upper() in KEYWORDS:
                yield offset, Keyword, word
            else:
                yield offset, kind, word
