"""A session over tables in memory: queries of them, slow ones, failing ones, changes without end. It needs no JVM."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from ebbtide.errors import EbbtideError, OperationCanceledError, SqlError
from ebbtide.sql import ResultKind, parse_text
from ebbtide.sql import _statements as ast
from ebbtide.sql._results import Completion, CompletionKind, OperationStatus, Page, Result, ResultColumn, Row

FROM = re.compile(r"SELECT\s+(.+?)(?:\s+FROM\s+(\w+))?(?:\s+LIMIT\s+(\d+))?", re.IGNORECASE | re.DOTALL)
STUBBORN = "SELECT stubborn()"
"""Does not end when it is cancelled, until its session is closed."""
SLEEP = re.compile(r"SELECT sleep\(\)", re.IGNORECASE)
WORDS = ("SELECT", "SHOW", "SET", "DESCRIBE")
CHANGE_COLUMNS = (ResultColumn("op"), ResultColumn("step", "bigint"))
Answer = tuple[Result, Iterator[list[Row]]]
Work = Callable[[threading.Event], Answer]
"""Gives an answer, on a thread of its own; the event is set when it is cancelled."""


class MemorySession:
    """Holds tables.

    Args:
        tables: By name.
        page_rows: Rows of a page.
    """

    id = "memory"
    catalog_name = "memory"

    def __init__(self, tables: Mapping[str, pa.Table], page_rows: int = 100) -> None:
        self.tables = dict(tables)
        self.page_rows = page_rows
        self.settings: dict[str, str] = {}
        self.executed: list[str] = []
        self.is_closed = threading.Event()
        self._numbers = itertools.count(1)

    def execute(self, statement: str) -> MemoryOperation:
        self.executed.append(statement)
        ends = self.is_closed if STUBBORN in statement else None
        name = f"operation-{next(self._numbers)}"
        return MemoryOperation(name, lambda cancelled: self._answer(statement, cancelled), ends)

    def complete(self, text: str, offset: int) -> list[Completion]:
        word = re.search(r"[\w-]*$", text[:offset])[0]
        start = offset - len(word)
        columns = {name for table in self.tables.values() for name in table.column_names}
        kinds = {
            CompletionKind.KEYWORD: WORDS,
            CompletionKind.TABLE: sorted(self.tables),
            CompletionKind.COLUMN: sorted(columns),
        }
        return [
            Completion(name, start, kind)
            for kind, names in kinds.items()
            for name in names
            if name.lower().startswith(word.lower())
        ]

    def close(self) -> None:
        self.is_closed.set()

    def _answer(self, statement: str, cancelled: threading.Event) -> Answer:
        match parse_text(statement):
            case ast.Select(query, emits_changes, _):
                return self._select(query.text, cancelled, emits_changes=emits_changes)
            case ast.SetOption(str(key), str(value)):
                self.settings[key] = value
                return Result.done(f"{key} is {value}."), iter([])
            case ast.SetOption():
                columns = (ResultColumn("key"), ResultColumn("value"))
                return Result(ResultKind.ROWS, columns), iter([[list(item) for item in self.settings.items()]])
            case ast.Reset():
                self.settings.clear()
                return Result.done("Done."), iter([])
            case ast.Show():
                return Result(ResultKind.ROWS, (ResultColumn("name"),)), iter([[[name] for name in self.tables]])
            case _:
                raise SqlError.of("A session in memory cannot do this.", got=statement.strip())

    def _select(self, query: str, cancelled: threading.Event, *, emits_changes: bool) -> Answer:
        if query == STUBBORN or SLEEP.fullmatch(query):
            cancelled.wait()
            raise OperationCanceledError.of("The statement was cancelled.")
        wanted = FROM.fullmatch(query)
        name = wanted[2] or "one"
        if name not in self.tables:
            raise SqlError.of(f"There is no table '{name}'.", allowed=", ".join(self.tables))
        table = self.tables[name]
        if wanted[3]:
            table = table.slice(0, int(wanted[3]))
        columns = tuple(ResultColumn(field.name, str(field.type).replace("int64", "bigint")) for field in table.schema)
        rows = [list(row.values()) for row in table.to_pylist()]
        if emits_changes:
            return Result(ResultKind.CHANGES, CHANGE_COLUMNS + columns), _changes(rows, cancelled)
        parts = [rows[start : start + self.page_rows] for start in range(0, len(rows), self.page_rows)]
        return Result(ResultKind.ROWS, columns), iter(parts)


def _changes(rows: list[Row], cancelled: threading.Event) -> Iterator[list[Row]]:
    """Yield the rows, then changes of them, without end."""
    yield [["+I", 0, *row] for row in rows]
    for step in itertools.count(1):
        if cancelled.wait(0.01):
            raise OperationCanceledError.of("The statement was cancelled.")
        row = rows[step % len(rows)]
        yield [["-U", step, *row], ["+U", step, *row]]


class MemoryOperation:
    """One statement, on a thread of its own."""

    def __init__(self, name: str, work: Work, ends: threading.Event | None = None) -> None:
        self.id = name
        self._ends = ends
        self.status = OperationStatus.RUNNING
        self.is_closed = False
        self._answer: Result | None = None
        self._error: EbbtideError | None = None
        self._pages: list[Page] = []
        self._wanted = 0
        self._cancelled = threading.Event()
        self._changed = threading.Condition()
        threading.Thread(target=self._work, args=(work,), daemon=True).start()

    def result(self, timeout_s: float | None = None) -> Result | None:
        with self._changed:
            self._changed.wait_for(lambda: self._answer or self._error, timeout_s)
            self._raise()
            return self._answer

    def page(self, token: int = 0, timeout_s: float | None = None) -> Page | None:
        with self._changed:
            self._wanted = max(self._wanted, token + 1)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: len(self._pages) > token or self._error or self.status is not OperationStatus.RUNNING, timeout_s
            )
            self._raise()
            if len(self._pages) > token:
                return self._pages[token]
            return Page() if self.status is not OperationStatus.RUNNING else None

    def cancel(self) -> None:
        if self._ends is not None:
            self._ends.wait()
        with self._changed:
            self._cancelled.set()
            if not self.status is not OperationStatus.RUNNING:
                self._error = OperationCanceledError.of("The statement was cancelled.")
                self.status = OperationStatus.CANCELED
            self._changed.notify_all()

    def close(self) -> None:
        self.cancel()
        self.is_closed = True

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self, work: Work) -> None:
        try:
            answer, parts = work(self._cancelled)
            with self._changed:
                self._answer = answer
                self._changed.notify_all()
            self._store(answer, parts)
        except EbbtideError as error:
            self._end(OperationStatus.FAILED, error)
        else:
            self._end(OperationStatus.FINISHED)

    def _store(self, answer: Result, parts: Iterator[list[Row]]) -> None:
        """Make pages, one ahead of those that are asked for."""
        has_positions = answer.kind is ResultKind.CHANGES
        part = next(parts, None)
        for number in itertools.count():
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > number or self._cancelled.is_set())  # noqa: B023
            following = next(parts, None)
            position = f"step-{number}" if has_positions else None
            token = None if following is None else number + 1
            with self._changed:
                self._pages.append(Page(part or [], token, position))
                self._changed.notify_all()
            if following is None:
                return
            part = following

    def _end(self, status: OperationStatus, error: EbbtideError | None = None) -> None:
        with self._changed:
            if not self.status is not OperationStatus.RUNNING:
                self.status = status
                self._error = error
            self._changed.notify_all()
