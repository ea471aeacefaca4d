"""Finds the tables of the catalog that a statement names, by its tokens: Spark alone parses the statement.

Names beyond Spark's grammar are replaced by names of views: `orders$state`, `orders VERSION AS OF 3`, `orders STEP AS OF 3`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from sqlglot import Token, TokenType

from ebbtide.errors import SqlError
from ebbtide.sql._catalog import Part
from ebbtide.sql._tokens import Place, Statement, keyword


class PinKind(StrEnum):
    """Kind of moment that a table is pinned to."""

    VERSION = "VERSION"
    STEP = "STEP"


@dataclass(frozen=True)
class Pin:
    """`VERSION AS OF number` or `STEP AS OF number`."""

    kind: PinKind
    number: int


@dataclass(frozen=True)
class Reference:
    """A table that a statement names.

    Args:
        table: Name of the pipeline.
        part: Part of the pipeline; None: its rows.
        pin: Moment to be read; None: now.
    """

    table: str
    part: Part | None = None
    pin: Pin | None = None

    @property
    def view(self) -> str:
        """Name of the view for the table."""
        name = self.table if self.part is None else f"{self.table}${self.part}"
        return name if self.pin is None else f"{name}@{self.pin.kind.lower()}{self.pin.number}"


@dataclass(frozen=True)
class Edit:
    """A replacement in a statement, for Spark.

    Args:
        start: Offset of the replaced part.
        end: Offset after the replaced part.
        written: Replacement.
    """

    start: int
    end: int
    written: str


@dataclass(frozen=True)
class Referring:
    """A statement, and the tables that it names.

    Args:
        statement: Statement as it was written.
        references: Tables of the statement.
        edits: Replacements for Spark, in order.
    """

    statement: Statement
    references: frozenset[Reference]
    edits: tuple[Edit, ...] = ()

    @property
    def text(self) -> str:
        """Text of the statement for Spark."""
        text = self.statement.text
        for edit in reversed(self.edits):
            text = text[: edit.start] + edit.written + text[edit.end :]
        return text

    def place(self, line: int, position: int) -> Place:
        """Return the place in the script for a line (from 1) and a position (from 0) in `text`, as errors of Spark have them."""
        # The offset in `text` is moved back over each edit before it; an offset inside an edit becomes the beginning of its part.
        lines = self.text.split("\n")
        before = lines[: line - 1]
        line_start = sum(len(earlier) + 1 for earlier in before)
        offset = line_start + position
        for edit in self.edits:
            if offset < edit.start:
                break
            end_for_spark = edit.start + len(edit.written)
            if offset < end_for_spark:
                offset = edit.start
                break
            offset += edit.end - end_for_spark
        return self.statement.place_at(offset)


def find_references(statement: Statement, names: Collection[str]) -> Referring:
    """Find the tables of a catalog in a statement.

    A column with the name of a table counts as the table, which costs an unused view.

    Args:
        statement: Any statement.
        names: Names of the catalog that a query may read.

    Raises:
        SqlError: there is no such part of a table.
    """
    # Each name is looked up by its first token. A plain name needs no edit, since the view has the name of the table; a part or a pin
    # becomes the quoted name of its view, with the table's name as the alias, so that `orders.id` still works.
    references = set()
    edits = []
    tokens = statement.tokens
    for position, token in enumerate(tokens):
        found = _named(statement, position, names)
        if found is None:
            continue
        name, part, n_tokens = found
        after = position + n_tokens
        pin, n_pin = _pin(tokens, after)
        reference = Reference(name, part, pin)
        references.add(reference)
        if part is None and pin is None:
            continue
        after += n_pin
        written = f"`{reference.view}`"
        if pin is not None and not _has_alias(tokens, after):
            written += f" AS `{name}`"
        last = tokens[after - 1]
        edits.append(Edit(token.start, last.end + 1, written))
    return Referring(statement, frozenset(references), tuple(edits))


def _named(
    statement: Statement,
    position: int,
    names: Collection[str],
) -> tuple[str, Part | None, int] | None:
    """Return the table, the part and the number of tokens of the name that begins at a token; None if there is none."""
    tokens = statement.tokens
    token = tokens[position]
    if token.token_type is TokenType.STRING:
        return None
    is_qualified = position > 0 and tokens[position - 1].text in {".", "$"}
    base, dollar, part = token.text.lower().partition("$")
    if is_qualified:
        return None
    # A name with its part is one token, `orders$state`, or three where the base is quoted: `orders`, $, state.
    n_tokens = 1
    after = [following.text for following in tokens[position + 1 : position + 3]]
    has_part_after = len(after) == 2 and after[0] == "$"
    if has_part_after and not dollar:
        part = after[1].lower()
        n_tokens = 3
    if base not in names:
        if n_tokens > 1 and part in list(Part):
            raise SqlError.of(
                f"There is no table '{base}', at {statement.place_of(token)}.",
                got=f"{base}${part}",
                allowed=", ".join(sorted(names)) or None,
                next_step="SHOW TABLES and SHOW SOURCES list what there is.",
            )
        return None
    if not part:
        return base, None, n_tokens
    if part not in list(Part):
        raise SqlError.of(
            f"'{base}' has no such part, at {statement.place_of(token)}.",
            got=part,
            allowed=", ".join(Part),
        )
    return base, Part(part), n_tokens


def _pin(tokens: tuple[Token, ...], position: int) -> tuple[Pin | None, int]:
    """Return the moment at a token, `[FOR] VERSION AS OF number`, and the number of its tokens; None and 0 if there is none."""
    following = tokens[position : position + 5]
    words = [keyword(token) for token in following]
    n_for = 1 if words[:1] == ["FOR"] else 0
    phrase = words[n_for : n_for + 4]
    if len(phrase) < 4:
        return None, 0
    kind, *as_of, number = phrase
    is_pin = kind in list(PinKind) and as_of == ["AS", "OF"]
    if not is_pin or not number.isdecimal():
        return None, 0
    pin = Pin(PinKind(kind), int(number))
    return pin, n_for + len(phrase)


def _has_alias(tokens: tuple[Token, ...], position: int) -> bool:
    if position >= len(tokens):
        return False
    return tokens[position].token_type in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER)
