"""A session in memory: a few tables, queries that are slow, that fail, that never end. Real threads, no Spark."""

from __future__ import annotations

import itertools
import re
import threading
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa

from ebbtide.errors import OperationCanceledError, SqlError, SqlSyntaxError
from ebbtide.redaction import MASK, is_credential
from ebbtide.sql import ResultKind, parse_text
from ebbtide.sql import _statements as ast
from ebbtide.sql._results import Completion, CompletionKind, OperationStatus, Page, Result, ResultColumn

PAGE_ROWS = 100
N_ORDERS = 2500
SPARK_TYPES = {"null": "string", "int64": "bigint", "double": "double", "string": "string", "bool": "boolean"}
SHAPE = re.compile(
    r"SELECT\s+(?P<columns>.+?)\s+FROM\s+(?P<table>\S+)(?:\s+LIMIT\s+(?P<limit>\d+))?$", re.IGNORECASE | re.DOTALL
)
LITERAL = re.compile(r"SELECT\s+'(?P<text>[^']*)'$", re.IGNORECASE)


def orders(n=N_ORDERS):
    return pa.table(
        {
            "id": pa.array(range(n), pa.int64()),
            "name": pa.array([None if i % 7 == 0 else f"käufer {i}" for i in range(n)], pa.string()),
            "amount": pa.array([i / 4 for i in range(n)], pa.float64()),
            "is_paid": pa.array([i % 2 == 0 for i in range(n)], pa.bool_()),
        }
    )


TABLES = {
    "orders": orders(),
    "empty": orders(0),
    "wide": orders(3).append_column("text", pa.array(["x" * 200_000] * 3)),
}


class MemoryOperation:
    """Runs on a thread of its own; rows are fetched one page ahead of who asks."""

    def __init__(
        self,
        begin: Callable[[MemoryOperation], tuple[Result, Iterator[Page]]],
        after: threading.Lock,
        ends: threading.Event | None = None,
    ) -> None:
        self.id = str(uuid.uuid4())
        self.canceled = threading.Event()
        self._changed = threading.Condition()
        self._result: Result | None = None
        self._pages: dict[int, Page] = {}
        self._asked = 0
        self._error: BaseException | None = None
        self._is_over = False
        self._when_over = []
        self._begin = begin
        self._after = after
        self._ends = ends
        self.is_closed = False
        self.n_waits = 0
        self.n_pages_waited_for = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            with self._after:  # one statement of a session at a time
                self._refuse_canceled()
                result, pages = self._begin(self)
                with self._changed:
                    self._result = result
                    self._changed.notify_all()
                for token, page in enumerate(pages):
                    with self._changed:
                        while not self.canceled.is_set() and self._asked < token - 1:
                            self._changed.wait()
                        self._refuse_canceled()
                        self._pages[token] = page
                        self._pages.pop(token - 4, None)
                        self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            self._error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for call in self._when_over:
            call()

    def when_over(self, call) -> None:
        with self._changed:
            if not self._is_over:
                self._when_over.append(call)
                return
        call()

    def _refuse_canceled(self) -> None:
        if self.canceled.is_set():
            raise OperationCanceledError.of("The statement was cancelled.")

    @property
    def status(self):
        with self._changed:
            if not self._is_over:
                return OperationStatus.RUNNING
            if isinstance(self._error, OperationCanceledError):
                return OperationStatus.CANCELED
            return OperationStatus.FAILED if self._error else OperationStatus.FINISHED

    def result(self, timeout_s=None):
        with self._changed:
            self.n_waits += 1
            self._changed.wait_for(lambda: self._result or self._is_over, timeout_s)
            if self._result is None and self._error is not None:
                raise self._error
            return self._result

    def page(self, token=0, timeout_s=None):
        with self._changed:
            self._asked = max(self._asked, token)
            self.n_pages_waited_for += token not in self._pages
            self._changed.notify_all()
            self._changed.wait_for(lambda: token in self._pages or self._is_over, timeout_s)
            if token in self._pages:
                return self._pages[token]
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise SqlError.of("There is no such page.", got=token)
            return None

    def cancel(self):
        if self._ends is not None:
            self._ends.wait()
        with self._changed:
            if not self._is_over:
                self.canceled.set()
                self._changed.notify_all()

    def close(self):
        self.cancel()
        self.is_closed = True


class MemorySession:
    """What a statement does is written in `_plan`.

    Args:
        settings: Key to value, as they are at first.
        tables: By name; beside them are `never`, which does not end, `stubborn`, which does not end when it is cancelled until the
            session is closed, `paused` and `broken`.
    """

    def __init__(self, settings=(), tables=TABLES):
        self.id = str(uuid.uuid4())
        self.catalog_name = "memory"
        self._first = dict(settings)
        self._settings = dict(settings)
        self._tables = dict(tables)
        self._turn = threading.Lock()
        self._has_ended = threading.Event()
        self.executed = []
        self.operations = []
        self.jobs = {"job-1": "RUNNING"}

    @property
    def settings(self):
        return {name: MASK if is_credential(name) else value for name, value in self._settings.items()}

    @property
    def is_closed(self):
        return self._has_ended.is_set()

    def execute(self, statement):
        self.executed.append(statement)
        ends = self._has_ended if "FROM stubborn" in statement else None
        operation = MemoryOperation(lambda operation: self._plan(statement, operation), self._turn, ends)
        self.operations.append(operation)
        return operation

    def drop_old_results(self):
        """Drop nothing: rows in memory have no age."""

    def complete(self, text, offset):
        word = re.search(r"[\w-]*$", text[:offset])[0]
        start = len(text[:offset]) - len(word)
        columns = {name for table in self._tables.values() for name in table.column_names}
        kinds = {
            CompletionKind.KEYWORD: ("SELECT", "SHOW", "SET", "DESCRIBE"),
            CompletionKind.TABLE: sorted(self._tables),
            CompletionKind.COLUMN: sorted(columns),
        }
        return [
            Completion(name, start, kind)
            for kind, names in kinds.items()
            for name in names
            if name.lower().startswith(word.lower())
        ]

    def close(self):
        self._has_ended.set()
        for operation in self.operations:
            operation.cancel()

    def _plan(self, statement, operation):
        match parse_text(statement):
            case ast.Select(query, True, position):
                return self._changes(query.text, position, operation)
            case ast.Select(query):
                return self._rows(query.text, operation)
            case ast.Show(ast.Shown.TABLES):
                return rows_of(pa.table({"name": sorted(self._tables)}))
            case ast.Show(ast.Shown.JOBS):
                names = [job.removeprefix("job-") for job in self.jobs]
                return rows_of(
                    pa.table({"id": list(self.jobs), "pipelines": names, "status": list(self.jobs.values())})
                )
            case ast.Describe(name):
                schema = self._table(name).schema
                return rows_of(pa.table({"column": schema.names, "type": list(map(type_of, schema.types))}))
            case ast.StopJob(job) if job in self.jobs:
                self.jobs[job] = "STOPPING"
                return done(f"Job '{job}' ends after its step.")
            case ast.StopJob(job):
                raise SqlError.of("There is no such job.", got=job, allowed=", ".join(self.jobs))
            case ast.SetOption(None):
                return rows_of(pa.table({"key": list(self.settings), "value": list(self.settings.values())}))
            case ast.SetOption(key, None):
                return rows_of(pa.table({"key": [key], "value": [self.settings.get(key)]}))
            case ast.SetOption(key, value):
                self._settings[key] = value
                return done(f"{key} is {value}.")
            case ast.Reset(None):
                self._settings = dict(self._first)
                return done("All settings are as they were.")
            case ast.Reset(key):
                self._settings.pop(key, None)
                return done(f"{key} is as it was.")
            case ast.Use(catalog):
                self.catalog_name = catalog
                return done(f"The catalog is {catalog}.")
            case ast.Insert(table):
                self.jobs[f"job-{table}"] = "RUNNING"
                return done(f"Job 'job-{table}' fills '{table}'.")
            case other:
                raise SqlError.of("This session does not do that.", got=type(other).__name__)

    def _rows(self, query, operation):
        literal = LITERAL.match(query)
        if literal:
            return rows_of(pa.table({"text": [literal["text"]]}))
        shape = SHAPE.match(query)
        if shape is None:
            raise SqlSyntaxError.of("The statement cannot be read.", got=query[:40], allowed="SELECT .. FROM ..")
        if shape["table"] in ("never", "stubborn"):
            operation.canceled.wait()
            raise OperationCanceledError.of("The statement was cancelled.")
        if shape["table"] == "paused":
            return Result(ResultKind.ROWS, (ResultColumn("id"),)), paused(operation)
        if shape["table"] == "broken":
            raise ValueError("what is not ours: password=hunter2")
        table = self._table(shape["table"]).slice(0, int(shape["limit"] or N_ORDERS))
        if shape["columns"].lower() == "count(*)":
            return rows_of(pa.table({"count(1)": pa.array([table.num_rows], pa.int64())}))
        if shape["columns"] != "*":
            names = [name.strip() for name in shape["columns"].split(",")]
            unknown = [name for name in names if name not in table.column_names]
            if unknown:
                raise SqlError.of("There is no such column.", got=unknown[0], allowed=", ".join(table.column_names))
            table = table.select(names)
        return rows_of(table)

    def _changes(self, query, position, operation):
        table = self._table(SHAPE.match(query)["table"])
        columns = (ResultColumn("op"), ResultColumn("step", "bigint"), *columns_of(table))
        first = int(position or 0)

        def pages():
            for step in itertools.count(first):
                if step > first:
                    operation.canceled.wait(0.01)
                row = list(table.slice(step % table.num_rows, 1).to_pylist()[0].values())
                rows = [["+I", step, *row]] if step == first else [["-U", step, *row], ["+U", step, *row]]
                yield Page(rows, next=step - first + 1, position=str(step + 1))

        return Result(ResultKind.CHANGES, columns), pages()

    def _table(self, name):
        if name not in self._tables:
            raise SqlError.of(f"There is no table '{name}'.", allowed=", ".join(self._tables))
        return self._tables[name]


def paused(operation):
    """One page, and the next never."""
    yield Page([["1"]], 1)
    operation.canceled.wait()


def type_of(arrow):
    return SPARK_TYPES[str(arrow)]


def columns_of(table):
    return tuple(ResultColumn(field.name, type_of(field.type)) for field in table.schema)


def done(message):
    return Result.done(message), iter([Page()])


def rows_of(table):
    return Result(ResultKind.ROWS, columns_of(table)), pages_of([list(row.values()) for row in table.to_pylist()])


def pages_of(rows):
    starts = range(0, max(len(rows), 1), PAGE_ROWS)
    for token, start in enumerate(starts):
        is_last = token == len(starts) - 1
        yield Page(
            rows[start : start + PAGE_ROWS], None if is_last else token + 1, notice="all" if is_last and token else ""
        )


def all_of(operation):
    """Everything that comes of a statement, the error's class and message in place of what it raises."""
    try:
        result = operation.result()
        rows, notices, token = [], [], 0
        while token is not None and result.kind is not ResultKind.CHANGES:
            page = operation.page(token)
            rows += map(list, page.rows)
            notices += [page.notice] if page.notice else []
            token = page.next
    except Exception as error:  # noqa: BLE001 - what it is, is told
        return type(error).__name__, str(error), operation.status
    return result, rows, notices
