"""What the word that is being typed may become, by the catalog's files alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from sqlglot import exp

from ebbtide.errors import EbbtideError
from ebbtide.sql.catalog import Catalog, Entry, Filled, Part
from ebbtide.sql.listing import describe
from ebbtide.sql.reference import KEYWORDS
from ebbtide.sql.session import Completion, CompletionKind
from ebbtide.sql.settings import SETTINGS

_WORD = re.compile(r"[\w$.-]*$")
_SET = re.compile(r"^\s*(SET|RESET)\s+[\w.-]*$", re.IGNORECASE)
_TABLE_COMES = re.compile(r"\b(FROM|JOIN|INTO|TABLE|DESCRIBE|DESC|STEPS\s+IN|VIEW|SOURCE)\s+[\w$]*$", re.IGNORECASE)
_NAMED = re.compile(r"\b(?:FROM|JOIN)\s+([\w$]+)", re.IGNORECASE)


def completions(catalog: Catalog, text: str, offset: int) -> list[Completion]:
    """Return what the word before an offset may become, each once, the likeliest first.

    Args:
        catalog: What names stand for; where it cannot be read, only keywords and functions are offered.
        text: What was typed.
        offset: Where the cursor is.
    """
    before = text[:offset]
    found = _WORD.search(before)
    word = found[0] if found else ""
    start = offset - len(word)
    typed = word.lower()
    candidates = dict(_candidates(catalog, text, before))
    candidates.pop(word, None)
    fitting = []
    for name, kind in candidates.items():
        if name.lower().startswith(typed):
            fitting.append(Completion(name, start, kind))
    return fitting


def _candidates(catalog: Catalog, text: str, before: str) -> Iterator[tuple[str, CompletionKind]]:
    if _SET.search(before):
        yield from _of(SETTINGS, CompletionKind.SETTING)
        return
    try:
        entries = catalog.entries()
        tables = list(_tables(entries))
        columns = list(_columns(entries, text))
    except EbbtideError:
        tables, columns = [], []
    yield from _of(columns, CompletionKind.COLUMN)
    yield from _of(tables, CompletionKind.TABLE)
    if _TABLE_COMES.search(before):
        return
    yield from _of(KEYWORDS, CompletionKind.KEYWORD)
    yield from _of(sorted(exp.FUNCTION_BY_NAME), CompletionKind.FUNCTION)


def _of(names: Iterable[str], kind: CompletionKind) -> Iterator[tuple[str, CompletionKind]]:
    for name in names:
        yield name, kind


def _tables(entries: Mapping[str, Entry]) -> Iterator[str]:
    for name, entry in entries.items():
        yield name
        if isinstance(entry, Filled):
            yield from (f"{name}${part}" for part in Part)


def _columns(entries: Mapping[str, Entry], text: str) -> Iterator[str]:
    """Yield the columns of the tables that FROM and JOIN name."""
    for name in _NAMED.findall(text):
        described = describe(entries, name.lower())
        if described is not None:
            _, rows = described
            yield from (str(row[0]) for row in rows)
