"""What was typed, as it may be kept: the values of credentials in WITH, SET and the like masked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType

from ebbtide.errors import SqlSyntaxError
from ebbtide.redaction import MASK, is_credential, redacted
from ebbtide.sql.tokens import QUOTED, Statement, keyword, split


def masked(text: str) -> str | None:
    """Return what was typed with the values of credentials masked; None: it cannot be read, and may have some.

    Example:
        >>> masked("SET s3.secret.key = a b"), masked("CREATE SOURCE s (..) WITH ('password' = 'it''s')")
        ('SET s3.secret.key = ***', "CREATE SOURCE s (..) WITH ('password' = ***)")
    """
    try:
        statements = split(text)
    except SqlSyntaxError:
        return None if is_credential(text) else redacted(text)
    tokens_at = [(statement, _offset(text, statement)) for statement in statements]
    for statement, offset in reversed(tokens_at):
        for start, end in sorted(_secrets(statement), reverse=True):
            text = text[: offset + start] + MASK + text[offset + end :]
    return redacted(text)


def _offset(text: str, statement: Statement) -> int:
    """Return where a statement begins in the text that it was split from."""
    lines = text.split("\n")
    before = lines[: statement.place.line - 1]
    return sum(len(line) + 1 for line in before) + statement.place.column - 1


def _secrets(statement: Statement) -> Iterator[tuple[int, int]]:
    """Yield where values of credentials stand: behind a name like theirs and `=`, or right behind it, as texts in OPTIONS may."""
    tokens = statement.tokens
    sets = keyword(tokens[0]) == "SET"
    for position, after in enumerate(tokens[1:]):
        value = position + 1
        if keyword(after) == "=":
            value += 1
        elif after.token_type is not TokenType.STRING:
            continue
        if value >= len(tokens) or not is_credential(_name(statement, position)):
            continue
        last = len(tokens) - 1 if sets else _value_end(tokens, value)
        yield tokens[value].start, tokens[last].end + 1
        if sets:
            return


def _name(statement: Statement, position: int) -> str:
    """Return the name that ends with a token: a quoted one, or words and marks without a space between."""
    tokens = statement.tokens
    first = position
    if tokens[position].token_type not in QUOTED:
        while (
            first and tokens[first - 1].end + 1 == tokens[first].start and keyword(tokens[first - 1]) not in {"(", ","}
        ):
            first -= 1
    return statement.text[tokens[first].start : tokens[position].end + 1]


def _value_end(tokens: Sequence[Token], first: int) -> int:
    """Return the last token of a value: a text, or all up to a comma or what closes the list."""
    if tokens[first].token_type in QUOTED:
        return first
    last = first
    while last + 1 < len(tokens) and keyword(tokens[last + 1]) not in {",", ")"}:
        if tokens[last].end + 1 != tokens[last + 1].start:
            break
        last += 1
    return last
