"""The expressions of a query as they were written: sqlglot says what a query is made of, and would write some of it otherwise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import Token, TokenType

from ebbtide.sql.tokens import Statement, keyword


@dataclass(frozen=True)
class Projection:
    """`SELECT expressions FROM source [WHERE condition]`.

    Args:
        expressions: Each as text, without its alias.
        where: The condition as text.
    """

    expressions: tuple[str, ...]
    where: str | None = None


def read_projection(query: Statement, has_alias: Sequence[bool], qualifiers: Collection[str]) -> Projection:
    """Read a query over one source that has no other clauses.

    Args:
        query: Such a one; sqlglot can parse it.
        has_alias: Of each expression, whether a name follows it.
        qualifiers: Names of the source, that may stand before its columns; they are left out.
    """
    words = [keyword(token) for token in query.tokens]
    outer = _outer(query.tokens)
    from_ = next(at for at in outer if words[at] == "FROM" and words[at - 1] != "DISTINCT")
    commas = [at for at in outer if words[at] == "," and at < from_]
    texts = []
    starts = [1, *(comma + 1 for comma in commas)]
    ends = [*commas, from_]
    for start, end, is_named in zip(starts, ends, has_alias, strict=True):
        part = query.tokens[start:end]
        own = _without_alias(part) if is_named else part
        texts.append(_text(query, own, qualifiers))
    conditions = [at + 1 for at in outer if words[at] == "WHERE" and at > from_]
    where = None
    if conditions:
        condition = query.tokens[conditions[0] :]
        where = _text(query, condition, qualifiers)
    return Projection(tuple(texts), where)


def _without_alias(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens of an expression without the name that follows it, and its AS."""
    n_alias = 2 if keyword(tokens[-2]) == "AS" else 1
    return tokens[:-n_alias]


def _outer(tokens: Sequence[Token]) -> list[int]:
    """Return the numbers of the tokens that stand in no brackets."""
    depth = 0
    found = []
    for at, token in enumerate(tokens):
        mark = keyword(token)
        if mark in {")", "]"}:
            depth -= 1
        if depth == 0:
            found.append(at)
        if mark in {"(", "["}:
            depth += 1
    return found


def _text(query: Statement, tokens: Sequence[Token], qualifiers: Collection[str]) -> str:
    """Return the text of some tokens, without qualifiers."""
    part = query.part(tokens)
    text = part.text
    pairs = list(pairwise(part.tokens))
    for name, dot in reversed(pairs):  # from the end on, so that offsets stay right
        if dot.text == "." and _is_qualifier(name, qualifiers):
            before = text[: name.start]
            after = text[dot.end + 1 :]
            text = before + after
    return text


def _is_qualifier(token: Token, qualifiers: Collection[str]) -> bool:
    is_name = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    return is_name and token.text.lower() in qualifiers
