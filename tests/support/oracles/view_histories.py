"""Random histories of views: their inputs change, go back, are put back, repaired and migrated; views read views."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from local.local_pipeline import repair_here
from local.local_run import SPARK
from operating import act
from oracles.random_plans import TABLES, Query, RandomQueries
from oracles.view_inputs import LATER, Followed, Input, Inputs, Oracle, texts
from pyspark.sql import SparkSession

from ebbtide import MaterializedView, run
from ebbtide.delta import Snapshot
from ebbtide.errors import HistoryGoneError, SpecChangedError, TableMismatchError, ViewQueryError
from ebbtide.operations import Context
from ebbtide.runtime import Plan
from ebbtide.sessions import executor_of
from ebbtide.spec import Pipeline
from ebbtide.views.cutting import PinnedTable
from ebbtide.views.inputs import ViewTables
from ebbtide.views.lineage import Lineage
from ebbtide.views.query import analyse, new_session

KEYS = {"a": ["id"], "b": ["id"], "c": ["id", "k"]}


def last_step(spec: Pipeline, root: str) -> int:
    """Return the number of a pipeline's last step; 0 before the first."""
    found = Plan.under(root, spec).state.last()
    return 0 if found is None else found[1].step


class Copies:
    """Copies of a pipeline's tables, as somebody keeps them."""

    def __init__(self, home: Path, kept: Path) -> None:
        self.home = home
        self.kept = kept
        self._n = 0

    def take(self) -> None:
        """Take one."""
        shutil.copytree(self.home, self.kept / str(self._n))
        self._n += 1

    def put_back(self, draw: random.Random, part: str = "") -> bool:
        """Put a copy in the place of all tables, or of one; return whether there is one."""
        if not self._n:
            return False
        copy = self.kept / str(draw.randrange(self._n)) / part
        shutil.rmtree(self.home / part)
        shutil.copytree(copy, self.home / part)
        return True


class PastInput:
    """An input with what it had read after each of its steps, and older copies.

    Args:
        table: The input.
        draw: Draws.
    """

    def __init__(self, table: Input, draw: random.Random) -> None:
        self.table = table
        self.draw = draw
        name = table.spec.name
        root = Path(table.root)
        self.copies = Copies(root / name, root.parent / "copies" / name)
        self._files: dict[int, set[str]] = {}
        self.note()

    @property
    def _last(self) -> int:
        return last_step(self.table.spec, self.table.root)

    def note(self) -> None:
        """Note that all files are read now."""
        self._files[self._last] = {path.name for path in self.table.folder.iterdir()}

    def _read_at(self, step: int) -> set[str]:
        noted = max(number for number in self._files if number <= step)
        return self._files[noted]

    def go_back(self) -> None:
        """Rewind, to any step that can be gone back to."""
        to_step = self.draw.randint(1, self._last)
        try:
            act("rewind", "apply", Context(self.table.spec, self.table.root, SPARK), to_step=to_step)
        except (HistoryGoneError, SpecChangedError):
            return
        self._files[self._last] = self._read_at(to_step)
        self._mend_files()

    def put_all_back(self) -> None:
        """Put a copy of all tables in their place."""
        if not self.copies.put_back(self.draw):
            return
        last = self._last
        self._files = {step: files for step, files in self._files.items() if step <= last}
        self._mend_files()
        self.table.do("migrate")

    def repair(self) -> None:
        """Put a copy of the sink in its place, and repair it; one with other columns is rebuilt."""
        spec, root = self.table.spec, self.table.root
        sink = Plan.under(root, spec).sink
        before = Snapshot.read(sink.path)
        assert before is not None
        rows = before.rows(sink.schema)
        if not self.copies.put_back(self.draw, "sink"):
            return
        try:
            repair_here(spec, root, rows)
        except TableMismatchError:
            self.table.do("refresh")
            self.note()

    def _mend_files(self) -> None:
        """Take lines out of files that are to be read again, so that another history follows."""
        read = self._read_at(self._last)
        for path in sorted(self.table.folder.iterdir()):
            if path.name in read:
                continue
            lines = path.read_text().splitlines(keepends=True)
            left = [line for line in lines if self.draw.random() < 0.6]
            path.write_text("".join(left))


@dataclass
class Kept:
    """A view that is kept as a table.

    Args:
        oracle: What its whole query gives.
        view: The view.
        query: Its first query.
        copies: Of its tables.
    """

    oracle: Oracle
    view: MaterializedView
    query: str
    copies: Copies

    @property
    def root(self) -> str:
        """Folder of all tables."""
        return str(self.oracle.root)

    def step(self) -> None:
        """Run, and hold the table against the whole query: a row that has null in its key is in the quarantine."""
        summary = run(self.oracle.spark, self.view, self.root, clock=lambda: LATER)
        self.oracle.show(ViewTables(self.view, self.root).pinned().inputs)
        given = self.oracle.rows(self.view.query)
        wanted = [row for row in given if None not in [row[name] for name in self.view.key]]
        found = Snapshot.read(Plan.under(self.root, self.view).sink.path)
        assert found is not None
        rows = found.rows(self.view.sink_table.columns).select(self.view.table.columns.names)
        assert texts(rows.to_pylist()) == texts(wanted), f"{self.view.query}: {summary}"

    @property
    def _context(self) -> Context:
        return Context(self.view, self.root, executor_of(self.oracle.spark))

    def go_back(self, draw: random.Random) -> None:
        """Rewind to any step."""
        to_step = draw.randint(1, last_step(self.view, self.root))
        try:
            act("rewind", "apply", self._context, to_step=to_step)
        except (HistoryGoneError, SpecChangedError):
            return

    def repair(self, draw: random.Random) -> None:
        """Put a copy of the table in its place, and repair it."""
        if self.copies.put_back(draw, "sink"):
            act("repair", "apply", self._context)


UNFIT = "SUBQUERY|CORRELATED|NUM_COLUMNS_MISMATCH"
"""What Spark says of random queries that it does not take."""
OF_INPUTS = [
    *["change"] * 5,
    *["copy"] * 2,
    *["rewind", "put back", "repair"] * 2,
    "add a column",
    "drop a column",
    "fold",
    "vacuum",
    "refresh",
]
"""What comes to an input, each as often as it stands here."""
OF_VIEWS = [
    *["copy it"] * 2,
    "rewind it",
    "put it back",
    "repair it",
    "change its query",
    "drop it",
]
"""What comes to a view that is kept."""


class History:
    """Inputs and views, and what becomes of them.

    Args:
        spark: The session.
        home: A folder.
        seed: Of all that is drawn.
        kept: Names of views that are kept; each may read those before it.
        n_followed: Further views, see `Followed`.
        is_read_by_spark: See `Oracle`.
    """

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        seed: int,
        kept: tuple[str, ...] = ("m1", "m2"),
        n_followed: int = 4,
        *,
        is_read_by_spark: bool = True,
    ) -> None:
        self.draw = random.Random(seed)
        self.home = home
        self.inputs = Inputs(home, seed)
        self.oracle = Oracle(spark, self.inputs.root, is_read_by_spark=is_read_by_spark)
        self.pasts = {name: PastInput(table, self.draw) for name, table in self.inputs.tables.items()}
        for past in self.pasts.values():
            past.copies.take()
            self._change()
        self.columns = {name: dict(columns) for name, columns in TABLES.items()}
        self.n_partial = 0
        self.events: list[str] = []
        self._n_columns = 0
        self._n_queries = 0
        self.kept: dict[str, Kept] = {}
        for name in kept:
            self.kept[name] = self._kept(name)
        self.followed = [self._followed() for _ in range(n_followed)]

    def _kept(self, name: str) -> Kept:
        """Declare a view whose rows are known to be one a key."""
        known = dict(self.columns)
        self.columns = {other: columns for other, columns in known.items() if other < name or other in TABLES}
        key = None
        while key is None:
            query, key = self._query()
        view = self.oracle.view(query.sql, key)
        self.columns = {**known, name: query.columns}
        root = self.oracle.root
        copies = Copies(root / name, root.parent / "copies" / name)
        kept = Kept(self.oracle, view.model_copy(update={"name": name}), query.sql, copies)
        kept.step()
        return kept

    def _followed(self) -> Followed:
        drawn, _ = self._query()
        view = self.oracle.view(drawn.sql, [next(iter(drawn.columns))])
        followed = Followed(self.oracle, view, self.home)
        followed.step()
        return followed

    def _query(self) -> tuple[Query, list[str] | None]:
        """Draw a query that Spark takes, and its key if that is known."""
        while True:
            self._n_queries += 1
            drawn = RandomQueries(self.draw.randrange(10**9), self.columns, first=1_000 * self._n_queries)
            query = drawn.query(depth=2)
            try:
                found = self._analysis(query.sql)
            except ViewQueryError as error:
                if not re.search(UNFIT, str(error)):
                    raise
                continue
            return query, found.key

    def _analysis(self, query: str) -> Lineage:
        schemas = {}
        for name in self.columns:
            newest = Snapshot.read(str(self.oracle.root / name / "sink"))
            assert newest is not None
            schemas[name] = PinnedTable(newest.table, newest.version).schema
        keys = KEYS | {name: kept.view.key for name, kept in self.kept.items()}
        return analyse(new_session(self.oracle.spark), query, schemas, keys=keys)

    def go_on(self, event: str = "") -> None:
        """Let something come to pass, and inputs change; most views then see it."""
        event = event or self.draw.choice(OF_INPUTS + OF_VIEWS)
        self.events.append(event)
        try:
            self._do(event)
        except Exception as error:
            error.add_note(f"The history: {', '.join(self.events)}")
            raise

    def _do(self, event: str) -> None:
        if event in OF_VIEWS:
            name = self.draw.choice(sorted(self.kept))
            self._change_view(event, self.kept[name])
        else:
            name = self.draw.choice(sorted(self.pasts))
            self._change_input(event, self.pasts[name])
        for _ in range(self.draw.choice([0, 1, 1, 3])):
            self._change()
        for name in sorted(self.kept):
            if self.draw.random() < 0.8:
                self._step_kept(name)
        for number in range(len(self.followed)):
            if self.draw.random() < 0.8:
                self._step_followed(number)

    def _change_input(self, event: str, past: PastInput) -> None:
        match event:
            case "change":
                self._change()
            case "copy":
                past.copies.take()
            case "rewind":
                past.go_back()
            case "put back":
                past.put_all_back()
            case "repair":
                past.repair()
            case "add a column":
                self._n_columns += 1
                self._add_column(past, f"n{self._n_columns}")
            case "drop a column":
                self._drop_column(past)
            case "fold":
                past.table.do("compaction")
            case "vacuum":
                for path in (past.copies.home / "sink" / "_change_data").glob("*"):
                    path.unlink()
            case "refresh":
                past.table.do("refresh")
                past.note()

    def _change_view(self, event: str, view: Kept) -> None:
        match event:
            case "copy it":
                view.copies.take()
            case "rewind it":
                view.go_back(self.draw)
            case "put it back":
                view.copies.put_back(self.draw)
            case "repair it":
                view.repair(self.draw)
            case "change its query":
                self._change_query(view)
            case "drop it":
                self._declare_again(view.view.name)

    def _change(self) -> None:
        for name in self.inputs.change_any():
            self.pasts[name].note()

    def _add_column(self, past: PastInput, name: str) -> None:
        past.table.add_column(name)
        self.columns[past.table.spec.name][name] = "n"

    def _drop_column(self, past: PastInput) -> None:
        if past.table.further:
            name = self.draw.choice(past.table.further)
            past.table.drop_column(name)
            del self.columns[past.table.spec.name][name]

    def _change_query(self, kept: Kept) -> None:
        """Give a view another query of the same columns; the next one brings all rows back."""
        text_of_key = f"CAST({kept.view.key[0]} AS STRING)"
        some = f"SELECT * FROM ({kept.query}) WHERE crc32({text_of_key}) % 2 = 0"
        query = some if kept.view.query == kept.query else kept.query
        kept.view = kept.view.model_copy(update={"query": query})

    def _declare_again(self, name: str) -> None:
        """Drop a view, and declare another one of its name."""
        copies = self.kept.pop(name).copies
        del self.columns[name]
        shutil.rmtree(copies.home)
        shutil.rmtree(copies.kept, ignore_errors=True)
        self.kept[name] = self._kept(name)

    def _step_kept(self, name: str) -> None:
        kept = self.kept[name]
        if self.oracle.gives_columns(kept.view):
            kept.step()
            return
        with pytest.raises(ViewQueryError):
            kept.step()
        self._declare_again(name)

    def _step_followed(self, number: int) -> None:
        followed = self.followed[number]
        if self.oracle.gives_columns(followed.view):
            extent = followed.step()
            self.n_partial += bool(extent.changed)
        else:
            self.followed[number] = self._followed()
