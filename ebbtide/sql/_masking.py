"""Masks the values of credentials in statements, so that a history or an audit may keep them. Loads the tokenizer alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType

from ebbtide.errors import SqlSyntaxError
from ebbtide.redaction import MASK, is_credential, redacted
from ebbtide.sql._tokens import QUOTED, Statement, keyword, split

_MARKS = frozenset("(),=")


def masked(text: str) -> str | None:
    """Return a text with the values of credentials masked; None if it cannot be read and may have some.

    Example:
        >>> masked("SET s3.secret.key = a b"), masked("CREATE SOURCE s (..) WITH ('password' = 'it''s')")
        ('SET s3.secret.key = ***', "CREATE SOURCE s (..) WITH ('password' = ***)")
    """
    try:
        statements = split(text)
    except SqlSyntaxError:
        return None if is_credential(text) else redacted(text)
    line_starts = [0]
    line_starts += [end.end() for end in re.finditer("\n", text)]
    # Masked from the end on, so that the offsets before a mask stay valid.
    for statement in reversed(statements):
        line_start = line_starts[statement.place.line - 1]
        offset = line_start + statement.place.column - 1
        secrets = sorted(_secrets(statement), reverse=True)
        for start, end in secrets:
            before = text[: offset + start]
            after = text[offset + end :]
            text = f"{before}'{MASK}'{after}"
    return redacted(text)


def _secrets(statement: Statement) -> Iterator[tuple[int, int]]:
    """Yield the offsets of credentials' values: after the name of one and `=`, or right after it, as in OPTIONS."""
    # Every token may end a name. The name includes all words and marks that adjoin it, as in `s3.secret.key`; of a name like that of a
    # credential the value is masked, and its tokens are not read as names.
    tokens = statement.tokens
    is_setting = bool(tokens) and keyword(tokens[0]) == "SET"
    last = -1
    for position in range(len(tokens) - 1):
        value = _value_of(tokens, position)
        is_masked_already = position <= last
        if value is None or is_masked_already:
            continue
        name = _name_before(statement, position)
        if not is_credential(name):
            continue
        # A value of SET extends to the end of the statement.
        last = len(tokens) - 1 if is_setting else _value_end(tokens, value)
        start = tokens[value].start
        end = tokens[last].end + 1
        yield start, end


def _value_of(tokens: Sequence[Token], name: int) -> int | None:
    """Return the position of the value after a name; None if there is none."""
    following = name + 1
    after = tokens[following]
    if after.token_type is TokenType.STRING:
        return following
    has_value = keyword(after) == "=" and following + 1 < len(tokens)
    return following + 1 if has_value else None


def _name_before(statement: Statement, last: int) -> str:
    """Return the name that ends with a token: a quoted one, or words and marks without spaces."""
    tokens = statement.tokens
    first = last
    while first and _adjoins(tokens[first - 1], tokens[first]):
        first -= 1
    start = tokens[first].start
    end = tokens[last].end + 1
    return statement.text[start:end]


def _value_end(tokens: Sequence[Token], first: int) -> int:
    """Return the last token of a value: adjacent texts (`'it''s'`), or words and marks without spaces, are one value."""
    last = first
    while last + 1 < len(tokens) and _goes_on(tokens[last], tokens[last + 1]):
        last += 1
    return last


def _goes_on(token: Token, after: Token) -> bool:
    """Return whether two tokens belong to one value."""
    if token.token_type in QUOTED:
        return after.token_type in QUOTED
    return _adjoins(token, after)


def _adjoins(token: Token, after: Token) -> bool:
    """Return whether two tokens are words or marks without a space between."""
    if token.end + 1 != after.start:
        return False
    return not _stands_alone(token) and not _stands_alone(after)


def _stands_alone(token: Token) -> bool:
    """Return whether a token is quoted, or a mark of a list."""
    return token.token_type in QUOTED or keyword(token) in _MARKS
