"""Colours of statements: SQL as Pygments reads it, with the words of ours and Spark's names in backticks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pygments.lexers.sql import SqlLexer
from pygments.token import Keyword, Name, String

from ebbtide.sql.keywords import KEYWORDS

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
