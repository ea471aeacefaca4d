"""Tokens of SQL with their places: scripts are split into statements by them, and our statements are parsed from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from sqlglot import Token, TokenType, errors

from ebbtide.ddl import SparkSql
from ebbtide.errors import SqlSyntaxError

QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
"""Kinds of tokens whose text is not a keyword."""
_INNER_ENDS = {"IF", "LOOP", "WHILE", "FOR", "REPEAT"}
"""Words after an END of Spark's scripts that does not end a BEGIN."""
_PIECE = re.compile(
    r"""--[^\n]*+|/\*"""
    r"""|(?<!\w)[rR](?:'[^']*+'|"[^"]*+")"""  # a raw text: its backslashes mean themselves
    r"""|'(?:\\.|[^\\']++)*+'|"(?:\\.|[^\\"]++)*+"|`[^`]*+`"""
    r"""|(?:(?<!\w)[rR](?=['"]))?(?P<open>['"`])""",
    re.DOTALL,
)
"""A comment of one line, the beginning of a longer one, a closed text or name, or the quote of one that is not closed."""
_COMMENT_MARK = re.compile(r"/\*|\*/")
_SHOWN = 40
"""Maximum number of characters of a statement that an error shows."""


class _Tokenizer(SparkSql.Tokenizer):
    """Spark's tokenizer, but with tokens for SHOW and the like, which sqlglot keeps as one text."""

    COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True)
class Place:
    """A place in a script.

    Args:
        line: Line from 1.
        column: Column from 1.
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
        text: Text as it was written.
        tokens: Tokens, with offsets from the beginning of `text`.
        place: Place of its beginning in the script.
    """

    text: str
    tokens: tuple[Token, ...]
    place: Place

    def place_of(self, token: Token) -> Place:
        """Return the place of a token in the script."""
        return self.place_at(token.start)

    def place_at(self, offset: int) -> Place:
        """Return the place in the script of the character at an offset of the text."""
        before = self.text[:offset]
        n_lines = before.count("\n")
        if n_lines == 0:
            return Place(self.place.line, self.place.column + offset)
        in_line = offset - before.rindex("\n")
        return Place(self.place.line + n_lines, in_line)

    def part(self, tokens: Sequence[Token]) -> Statement:
        """Return consecutive tokens, at least one, as a statement."""
        start = tokens[0].start
        end = tokens[-1].end + 1
        text = self.text[start:end]
        moved = [_moved(token, -start) for token in tokens]
        place = self.place_at(start)
        return Statement(text, tuple(moved), place)


def _moved(token: Token, by: int) -> Token:
    return Token(
        token.token_type,
        token.text,
        token.line,
        token.col,
        token.start + by,
        token.end + by,
    )


def split(script: str, place: Place = BEGINNING) -> list[Statement]:
    r"""Split a script at the semicolons outside of texts, names, comments and blocks (BEGIN .. END).

    Args:
        script: Any number of statements.
        place: Place of the beginning, for a part of a longer script.

    Raises:
        SqlSyntaxError: a text, a name or a comment is not closed.

    Example:
        >>> [statement.text for statement in split("SELECT ';'; -- two\nSHOW TABLES;")]
        ["SELECT ';'", 'SHOW TABLES']
    """
    whole = Statement(script, tuple(_tokenized(script)), place)
    return [whole.part(tokens) for tokens in _parts(whole.tokens)]


def is_complete(text: str) -> bool:
    """Return whether a text can be executed: it is empty, or ends with a semicolon outside of any block.

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
    """Yield a token, or each word of a phrase such as PRIMARY KEY."""
    is_phrase = token.token_type not in QUOTED and " " in token.text
    if not is_phrase:
        yield token
        return
    written = text[token.start : token.end + 1]
    for word in re.finditer(r"\S+", written):
        yield Token(
            TokenType.VAR,
            word[0],
            token.line,
            token.col,
            token.start + word.start(),
            token.start + word.end() - 1,
        )


@dataclass
class _Blocks:
    """Counts the open blocks, and CASE expressions in them, while the tokens of a statement are read."""

    depth: int = 0
    is_in_block: bool = False

    @property
    def are_closed(self) -> bool:
        return not self.is_in_block or self.depth <= 0

    def read(self, before: str, word: str, after: str) -> None:
        """Read the next keyword, given its neighbours."""
        # A CASE ends by END, or END CASE, as a block does by END. IF, LOOP and the like are not counted, nor is the END that closes them.
        opens = word == "BEGIN" and after != "TRANSACTION"
        if opens:
            self.is_in_block = True
        if opens or (word == "CASE" and before != "END"):
            self.depth += 1
        elif word == "END" and after not in _INNER_ENDS:
            self.depth -= 1


def _parts(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the tokens of each statement."""
    # A semicolon ends a statement unless a block is open. Whether BEGIN, CASE and END open or close one depends on their neighbours:
    # BEGIN TRANSACTION opens none, END IF closes none, and the CASE of END CASE opens none.
    parts: list[list[Token]] = [[]]
    blocks = _Blocks()
    words = ["", *map(keyword, tokens), ""]
    for position, token in enumerate(tokens, start=1):
        is_semicolon = token.token_type is TokenType.SEMICOLON
        if is_semicolon and blocks.are_closed:
            parts.append([])
            blocks = _Blocks()
        else:
            parts[-1].append(token)
            blocks.read(*words[position - 1 : position + 2])
    return [part for part in parts if part]


def _refuse_unclosed(text: str) -> None:
    """Refuse a text, name or comment that is not closed, with its place: sqlglot finds some of these, without the place."""
    found = _left_open(text)
    if found is None:
        return
    start, opener = found
    what = {"`": "name", "/*": "comment"}.get(opener, "text")
    place = Statement(text, (), BEGINNING).place_at(start)
    closer = "*/" if opener == "/*" else opener
    raise SqlSyntaxError.of(
        f"The {what} that begins at {place} is not closed.",
        got=text[start : start + _SHOWN],
        next_step=f"Close it with {closer}",
    )


def _left_open(text: str) -> tuple[int, str] | None:
    """Return the offset and the mark of a quote or comment that is not closed; None if all are. Comments nest in Spark."""
    # One pass over the quotes and comments; everything between two pieces is skipped. The pattern has possessive quantifiers, so that
    # a long text without an end takes linear time.
    at = 0
    while (piece := _PIECE.search(text, at)) is not None:
        at = piece.end()
        if piece["open"]:
            return piece.start("open"), piece["open"]
        depth = int(piece[0] == "/*")
        while depth:
            mark = _COMMENT_MARK.search(text, at)
            if mark is None:
                return piece.start(), "/*"
            depth += 1 if mark[0] == "/*" else -1
            at = mark.end()
    return None


_WORDS = (TokenType.VAR, TokenType.IDENTIFIER)


class Cursor:
    """Reads a statement token by token.

    Args:
        statement: Statement to be read.
    """

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self._tokens = statement.tokens
        self._at = 0

    @property
    def token(self) -> Token | None:
        """The next token; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    @property
    def place(self) -> Place:
        """Place of the next token; at the end, the end of the statement."""
        if self.token is None:
            return self.statement.place_at(len(self.statement.text))
        return self.statement.place_of(self.token)

    def at_end(self) -> bool:
        """Return whether all tokens were read."""
        return self.token is None

    def words(self, n: int) -> tuple[str, ...]:
        """Return the next keywords in upper case; a quoted token is an empty text."""
        return tuple(keyword(token) for token in self._tokens[self._at : self._at + n])

    def take(self, *words: str) -> bool:
        """Read some keywords if they all come next."""
        if self.words(len(words)) != words:
            return False
        self._at += len(words)
        return True

    def take_one(self, choices: Iterable[str]) -> str | None:
        """Read one of several phrases, such as `MATERIALIZED VIEW`; None if none of them comes next."""
        for choice in choices:
            if self.take(*choice.split()):
                return choice
        return None

    def expect(self, *words: str) -> None:
        """Read some keywords.

        Raises:
            SqlSyntaxError: other words come next.
        """
        if not self.take(*words):
            self.refuse(" ".join(words))

    def name(self, what: str) -> str:
        """Read a name, quoted or not, also `NAME$part` and dotted names.

        Raises:
            SqlSyntaxError: something else comes next.
        """
        token = self.token
        is_word = token is not None and (token.token_type in _WORDS or keyword(token).isidentifier())
        if token is None or not is_word:
            self.refuse(what)
        self._at += 1
        text = token.text
        while self._is_joined("$") or self._is_joined("."):
            joint, part = self._tokens[self._at], self._tokens[self._at + 1]
            text += joint.text + part.text
            self._at += 2
        return text

    def is_at_text(self) -> bool:
        """Return whether a quoted text comes next."""
        return self.token is not None and self.token.token_type is TokenType.STRING

    def text(self, what: str) -> str:
        """Read a quoted text.

        Raises:
            SqlSyntaxError: something else comes next.
        """
        token = self.token
        if token is None or not self.is_at_text():
            self.refuse(what)
        self._at += 1
        return token.text

    def literal(self, what: str) -> str:
        """Read a quoted text, a number, or one bare word.

        Raises:
            SqlSyntaxError: something else comes next.
        """
        sign = "-" if self.take("-") else ""
        token = self.token
        if token is None or keyword(token) in {"(", ")", ",", "=", ";"}:
            self.refuse(what)
        self._at += 1
        return sign + token.text

    def rest(self) -> Statement:
        """Read the rest, as a statement that may be empty."""
        if self.token is None:
            return Statement("", (), self.place)
        tokens = self._tokens[self._at :]
        self._at = len(self._tokens)
        return self.statement.part(tokens)

    def enclosed(self, what: str) -> Statement:
        """Read the content of parentheses.

        Raises:
            SqlSyntaxError: no parenthesis comes next, it is empty, or none closes it.
        """
        if not self.take("("):
            self.refuse(f"({what})")
        first = self._at
        depth = 1
        while depth:
            token = self.token
            if token is None:
                self.refuse(")")
            depth += {"(": 1, ")": -1}.get(keyword(token), 0)
            self._at += 1
        inner = self._tokens[first : self._at - 1]
        if not inner:
            self._at = first
            self.refuse(what)
        return self.statement.part(inner)

    def end(self) -> None:
        """Refuse further tokens.

        Raises:
            SqlSyntaxError: there are some.
        """
        if not self.at_end():
            self.refuse("the end of the statement")

    def refuse(self, allowed: str, next_step: str | None = None) -> NoReturn:
        """Refuse the next token.

        Args:
            allowed: What may stand there.
            next_step: What to do. Default: look at HELP.

        Raises:
            SqlSyntaxError: always.
        """
        got = "the end of the statement" if self.token is None else self.token.text
        raise SqlSyntaxError.of(
            f"The statement cannot be read at {self.place}.",
            got=got,
            allowed=allowed,
            next_step=next_step or "HELP lists the statements.",
        )

    def _is_joined(self, joint: str) -> bool:
        """Return whether a mark and a word come next, without a space before or between."""
        around = self._tokens[self._at - 1 : self._at + 2]
        if len(around) < 3:
            return False
        before, mark, after = around
        adjoins_before = mark.start == before.end + 1
        adjoins_after = after.start == mark.end + 1
        return mark.text == joint and adjoins_before and adjoins_after
