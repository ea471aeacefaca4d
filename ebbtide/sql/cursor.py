"""Reads the tokens of a statement one after the other; what does not fit is refused with its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from sqlglot import Token, TokenType

from ebbtide.errors import SqlSyntaxError
from ebbtide.sql.tokens import Place, Statement, keyword

_WORDS = (TokenType.VAR, TokenType.IDENTIFIER)


class Cursor:
    """Stands at a token of a statement.

    Args:
        statement: It.
    """

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self._tokens = statement.tokens
        self._at = 0

    @property
    def token(self) -> Token | None:
        """The token it stands at; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    @property
    def place(self) -> Place:
        """Where that is; at the end, where the statement ends."""
        if self.token is None:
            return self.statement.place_at(len(self.statement.text))
        return self.statement.place_of(self.token)

    def at_end(self) -> bool:
        """Return whether all tokens were read."""
        return self.token is None

    def words(self, n: int) -> tuple[str, ...]:
        """Return the next keywords, in upper case; what is quoted is an empty text."""
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
            SqlSyntaxError: others come next.
        """
        if not self.take(*words):
            self.refuse(" ".join(words))

    def name(self, what: str) -> str:
        """Read a name, quoted or not, `NAME$part` and dotted ones too.

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
        """Read all that is left, as a statement of its own; it may be empty."""
        if self.token is None:
            return Statement("", (), self.place)
        tokens = self._tokens[self._at :]
        self._at = len(self._tokens)
        return self.statement.part(tokens)

    def enclosed(self, what: str) -> Statement:
        """Read what stands between a parenthesis and the one that closes it.

        Raises:
            SqlSyntaxError: no parenthesis comes next, or none closes it.
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
        """Be at the end.

        Raises:
            SqlSyntaxError: more follows.
        """
        if not self.at_end():
            self.refuse("the end of the statement")

    def refuse(self, allowed: str) -> NoReturn:
        """Refuse what comes next.

        Raises:
            SqlSyntaxError: always.
        """
        got = "the end of the statement" if self.token is None else self.token.text
        raise SqlSyntaxError.of(
            f"The statement cannot be read at {self.place}.",
            got=got,
            allowed=allowed,
            next_step="HELP lists the statements.",
        )

    def _is_joined(self, joint: str) -> bool:
        """Return whether a mark and a word follow without a space between."""
        around = self._tokens[self._at - 1 : self._at + 2]
        if len(around) < 3:
            return False
        before, mark, after = around
        adjoins_before = mark.start == before.end + 1
        adjoins_after = after.start == mark.end + 1
        is_joint = mark.text == joint
        return is_joint and adjoins_before and adjoins_after
