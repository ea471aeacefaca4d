"""SQL text as tokens with their places: what splits a script into statements, and what statements of ours are read from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import Token, TokenType, errors

from ebbtide.errors import SqlSyntaxError
from ebbtide.spec.dialect import SparkSql

QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
"""Kinds of tokens whose text is not a keyword."""
_INNER_ENDS = {"IF", "LOOP", "WHILE", "FOR", "REPEAT"}
"""What Spark's scripts have after END where it ends no block."""
_RAW = re.compile(r"(?<!\w)[rR]$")
"""Before a quote: backslashes in the text that follows mean themselves."""
_SHOWN = 40
"""Characters of a statement that an error shows."""


class _Tokenizer(SparkSql.Tokenizer):
    """Spark's, but for SHOW and the like, of which sqlglot takes the rest for one text."""

    COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True)
class Place:
    """Where something stands in what was typed or read.

    Args:
        line: From 1.
        column: From 1.
    """

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


BEGINNING = Place(1, 1)


@dataclass(frozen=True)
class Statement:
    """The text of one statement, without its semicolon.

    Args:
        text: As it was written.
        tokens: Its tokens; their offsets count from where `text` begins.
        place: Where it begins in its script.
    """

    text: str
    tokens: tuple[Token, ...]
    place: Place

    def place_of(self, token: Token) -> Place:
        """Return where one of its tokens stands in the script."""
        return self.place_at(token.start)

    def place_at(self, offset: int) -> Place:
        """Return where the character at an offset of its text stands in the script."""
        before = self.text[:offset]
        n_lines = before.count("\n")
        if n_lines == 0:
            return Place(self.place.line, self.place.column + offset)
        in_line = offset - before.rindex("\n")
        return Place(self.place.line + n_lines, in_line)

    def part(self, tokens: Sequence[Token]) -> Statement:
        """Return some of its tokens that follow each other, one at least, as a statement of their own."""
        start = tokens[0].start
        end = tokens[-1].end + 1
        moved = [
            Token(token.token_type, token.text, token.line, token.col, token.start - start, token.end - start)
            for token in tokens
        ]
        return Statement(self.text[start:end], tuple(moved), self.place_at(start))


def split(script: str, place: Place = BEGINNING) -> list[Statement]:
    r"""Split a script at its semicolons: those in texts, names, comments and blocks (BEGIN .. END) do not count.

    Args:
        script: Any number of statements.
        place: Where it begins, if it is a part of a longer one.

    Raises:
        SqlSyntaxError: a text, a name or a comment is not closed.

    Example:
        >>> [statement.text for statement in split("SELECT ';'; -- two\nSHOW TABLES;")]
        ["SELECT ';'", 'SHOW TABLES']
    """
    whole = Statement(script, tuple(_tokenized(script)), place)
    return [whole.part(tokens) for tokens in _parts(whole.tokens)]


def is_complete(text: str) -> bool:
    """Return whether what was typed so far can be executed: it is empty, or ends with a semicolon outside of any block.

    Example:
        >>> is_complete("SELECT 1"), is_complete("SELECT 1;"), is_complete("BEGIN SELECT 1;"), is_complete("SELECT ';")
        (False, True, False, False)
    """
    try:
        tokens = _tokenized(text)
    except SqlSyntaxError:
        return False
    if not tokens:
        return True
    last = tokens[-1]
    ends_block = all(part[-1] is not last for part in _parts(tokens))
    return last.token_type is TokenType.SEMICOLON and ends_block


def keyword(token: Token) -> str:
    """Return a token's text in upper case; empty if it is quoted."""
    return "" if token.token_type in QUOTED else token.text.upper()


def _tokenized(text: str) -> list[Token]:
    _refuse_unclosed(text)
    try:
        tokens = _Tokenizer(dialect=SparkSql()).tokenize(text)
    except errors.TokenError as error:
        raise SqlSyntaxError.of(
            "The statement cannot be read.",
            got=text[:_SHOWN],
            next_step=str(error),
        ) from error
    return [word for token in tokens for word in _words(token, text)]


def _words(token: Token, text: str) -> Iterator[Token]:
    """Yield a token, or, if it is a phrase such as PRIMARY KEY, each of its words."""
    written = text[token.start : token.end + 1]
    if token.token_type in QUOTED or " " not in token.text:
        yield token
        return
    for word in re.finditer(r"\S+", written):
        start = token.start + word.start()
        end = token.start + word.end() - 1
        yield Token(TokenType.VAR, word[0], token.line, token.col, start, end)


@dataclass
class _Blocks:
    """Counts the blocks, and CASE expressions in them, that are open where the tokens of a statement were read to."""

    depth: int = 0
    is_in_block: bool = False

    @property
    def are_closed(self) -> bool:
        return not self.is_in_block or self.depth <= 0

    def read(self, before: str, word: str, after: str) -> None:
        """Take the next keyword, between its neighbours."""
        opens = word == "BEGIN" and after != "TRANSACTION"
        if opens:
            self.is_in_block = True
        if opens or (word == "CASE" and before != "END"):
            self.depth += 1
        elif word == "END" and after not in _INNER_ENDS:
            self.depth -= 1


def _parts(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the tokens of each statement."""
    parts: list[list[Token]] = [[]]
    blocks = _Blocks()
    words = [keyword(token) for token in tokens]
    neighbours = zip(["", *words], words, [*words[1:], ""], strict=False)
    for token, (before, word, after) in zip(tokens, neighbours, strict=True):
        if token.token_type is TokenType.SEMICOLON and blocks.are_closed:
            parts.append([])
            blocks = _Blocks()
        else:
            parts[-1].append(token)
            blocks.read(before, word, after)
    return [part for part in parts if part]


def _refuse_unclosed(text: str) -> None:
    """Refuse a text, name or comment that does not end: sqlglot says so of some, and not where it began."""
    for start, opener in _openings(text):
        what = {"'": "text", '"': "text", "`": "name", "/*": "comment"}[opener]
        closer = "*/" if opener == "/*" else opener
        raise SqlSyntaxError.of(
            f"The {what} that begins at {Statement(text, (), BEGINNING).place_at(start)} is not closed.",
            got=text[start : start + _SHOWN],
            next_step=f"Close it with {closer}",
        )


def _openings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the quote or comment that is left open at the end of a text, if there is one."""
    at = 0
    while at < len(text):
        rest = text[at : at + 2]
        if rest == "--":
            line_end = text.find("\n", at)
            if line_end < 0:
                return
            at = line_end
        elif rest == "/*":
            end = _comment_end(text, at)
            if end < 0:
                yield at, "/*"
                return
            at = end
        elif rest[0] in "'\"`":
            end = _quote_end(text, at)
            if end < 0:
                yield at, rest[0]
                return
            at = end
        else:
            at += 1


def _comment_end(text: str, start: int) -> int:
    """Return the offset after a comment, -1 if it does not end; comments nest in Spark."""
    depth = 0
    at = start
    while at < len(text):
        pair = text[at : at + 2]
        if pair == "/*":
            depth += 1
            at += 2
        elif pair == "*/":
            depth -= 1
            at += 2
            if depth == 0:
                return at
        else:
            at += 1
    return -1


def _quote_end(text: str, start: int) -> int:
    """Return the offset after a quoted text or name, -1 if it does not end."""
    quote = text[start]
    prefix = text[max(start - 2, 0) : start]
    is_raw = bool(_RAW.search(prefix))
    has_escapes = quote != "`" and not is_raw
    at = start + 1
    while at < len(text):
        if text[at] == "\\" and has_escapes:
            at += 2
        elif text[at] == quote:
            return at + 1  # a doubled quote opens at once again
        else:
            at += 1
    return -1
