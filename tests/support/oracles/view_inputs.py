"""Tables of pipelines that views read, made without Spark; and a view's steps, each held against its whole query in Spark."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frame.limits import limits
from frame.stored_names import RESERVED
from local.local_run import START, perform
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from ebbtide import MaterializedView, UpsertPipeline
from ebbtide.model import TableVersion, ViewPosition
from ebbtide.sessions import Frames, arrow_schema, arrow_table
from ebbtide.views.cutting import PinnedTable
from ebbtide.views.inputs import ViewTables
from ebbtide.views.query import new_session
from ebbtide.views.recompute import Extent, Recomputing

LATER = START + 3_600_000
ITEMS = "id BIGINT NOT NULL, x INT, y STRING, seq BIGINT"
PARTS = "id BIGINT NOT NULL, k INT NOT NULL, w STRING, sc BIGINT"
Row = dict[str, Any]


class Input:
    """A pipeline by sequence."""

    def __init__(self, home: Path, name: str, schema: str, key: Sequence[str], sequence: str) -> None:
        self.folder = home / "in" / name
        self.folder.mkdir(parents=True)
        self.root = str(home / "root")
        self.sequence = sequence
        self.further: list[str] = []
        self.spec = UpsertPipeline(
            name=name,
            schema=schema,
            key=list(key),
            order={"sequence": [sequence]},
            format={"type": "plain"},
            source={"path": str(self.folder), "records": "value"},
        )

    def change(self, number: int, changes: Iterable[tuple[str, Row]]) -> None:
        """Change rows, as the number of a sequence."""
        beside = {self.sequence: number, **dict.fromkeys(self.further, number % 3)}
        lines = [json.dumps({"kind": kind, "row": {**row, **beside}}) for kind, row in changes]
        path = self.folder / f"{number:05}.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
        self.do("run")

    def do(self, work: str) -> Any:
        """See `local_run.perform`."""
        with limits():
            return perform(work, self.spec, self.root, LATER, {"width": 100})

    def add_column(self, name: str) -> None:
        """Migrate to one column of numbers more."""
        self.further.append(name)
        self._migrate(f"{self.spec.schema_}, {name} INT DEFAULT NULL")

    def drop_column(self, name: str) -> None:
        """Migrate to a column less, one of those added."""
        self.further.remove(name)
        self._migrate(self.spec.schema_.replace(f", {name} INT DEFAULT NULL", ""))

    def _migrate(self, schema: str) -> None:
        given = self.spec.model_dump(by_alias=True, exclude_unset=True)
        self.spec = UpsertPipeline(**{**given, "schema": schema})
        self.do("migrate")


class Inputs:
    """Three of them, whose rows often meet: `a` and `b` are alike, `c` has several rows of an id.

    Args:
        home: A folder.
        seed: Of what changes.
    """

    def __init__(self, home: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = home / "root"
        self.number = 0
        self.tables = {
            "a": Input(home, "a", ITEMS, ["id"], "seq"),
            "b": Input(home, "b", ITEMS, ["id"], "seq"),
            "c": Input(home, "c", PARTS, ["id", "k"], "sc"),
        }
        self.change(*self.tables, most=12)

    def change(self, *names: str, most: int = 3) -> None:
        """Change some rows of some tables: the same ones of `a` and `b`, or others."""
        self.number += 1
        same = self._items(most)
        for name in names:
            is_same = self.random.random() < 0.4
            changes = self._parts(most) if name == "c" else (same if is_same else self._items(most))
            self.tables[name].change(self.number, changes)

    def change_any(self) -> list[str]:
        """Change one table, or several; return which."""
        n = self.random.choice([1, 1, 2, 3])
        names = self.random.sample(sorted(self.tables), n)
        self.change(*names)
        return names

    def _items(self, most: int) -> list[tuple[str, Row]]:
        draw = self.random
        rows = []
        for id_ in draw.sample(range(9), draw.randint(1, min(most, 9))):
            row = {"id": id_, "x": draw.choice([None, 0, 1, 2]), "y": draw.choice([None, "p", "q"])}
            rows.append((self._kind(), row))
        return rows

    def _parts(self, most: int) -> list[tuple[str, Row]]:
        draw = self.random
        keys = draw.sample([(id_, k) for id_ in range(9) for k in range(2)], draw.randint(1, most))
        return [(self._kind(), {"id": id_, "k": k, "w": draw.choice([None, "p", "q"])}) for id_, k in keys]

    def _kind(self) -> str:
        return self.random.choice(["+U", "+U", "+U", "-D"])


class Oracle:
    """What whole queries give over inputs, each version of which is read once.

    Args:
        spark: The session.
        root: Where the inputs are.
        is_read_by_spark: Spark reads the inputs too; otherwise they are read without it, which costs less.
    """

    def __init__(self, spark: SparkSession, root: Path, *, is_read_by_spark: bool = True) -> None:
        self.spark = spark
        self.root = root
        self.is_read_by_spark = is_read_by_spark
        self.session = new_session(spark)
        self._shown: dict[str, TableVersion] = {}

    def show(self, inputs: Mapping[str, TableVersion]) -> None:
        """Show versions of inputs to the queries."""
        for name, table in inputs.items():
            if self._shown.get(name) == table:
                continue
            rows = self._rows_of(str(self.root / name / "sink"), table.version)
            rows.coalesce(1).createOrReplaceTempView(f"`{name}`")
            self._shown[name] = table

    def _rows_of(self, location: str, version: int) -> DataFrame:
        if not self.is_read_by_spark:
            pinned = PinnedTable(location, version)
            rows = pinned.snapshot.rows(arrow_schema(pinned.schema))
            return self.session.createDataFrame(rows, pinned.schema)
        reader = self.session.read.format("delta").option("versionAsOf", version)
        read = reader.load(location).drop(*RESERVED)
        return Frames(self.session).of_arrow(arrow_table(read), read.schema)

    def rows(self, query: str) -> list[Row]:
        """Return what a query gives."""
        found: list[Row] = arrow_table(self.session.sql(query)).to_pylist()
        return found

    def view(self, query: str, key: Sequence[str]) -> MaterializedView:
        """Return a view over the inputs that its query names, with the columns that Spark gives it."""
        inputs = [path.name for path in sorted(self.root.iterdir()) if re.search(rf"\b{path.name}\b", query)]
        undeclared = MaterializedView(name="v", query=query, key=["k"], schema="k INT", inputs=inputs)
        return MaterializedView(name="v", query=query, key=list(key), schema=self._columns(undeclared), inputs=inputs)

    def gives_columns(self, view: MaterializedView) -> bool:
        """Return whether Spark takes a view's query over the inputs as they are now, and gives the columns of its schema."""
        try:
            return self._columns(view) == view.schema_
        except AnalysisException:
            return False

    def _columns(self, view: MaterializedView) -> str:
        """Return the columns that Spark gives a query, as DDL."""
        self.show(ViewTables(view, str(self.root)).pinned().inputs)
        schema = self.session.sql(view.query).schema
        return ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in schema)


def text(row: Mapping[str, Any]) -> str:
    """Return a row in a form that is the same for equal ones: -0.0 is 0.0, NaN is NaN."""
    plain = {name: value + 0.0 if isinstance(value, float) else value for name, value in row.items()}
    return json.dumps(plain, default=str)


def texts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return rows in a form that is the same for equal ones, in order."""
    return sorted(map(text, rows))


@dataclass
class Followed:
    """A view's query, followed from step to step; no row is written.

    Args:
        oracle: What its whole query gives.
        view: The view.
        folder: For files.
    """

    oracle: Oracle
    view: MaterializedView
    folder: Path
    last: ViewPosition | None = None
    rows: list[Row] = field(default_factory=list)

    def step(self) -> Extent:
        """Compute what has changed, and hold it against the whole query: rows with touched values are right, the others as they were."""
        tables = ViewTables(self.view, str(self.oracle.root))
        to = tables.pinned()
        step = Recomputing(self.oracle.spark, tables, "", self.last, to)
        extent = step.extent
        self.oracle.show(to.inputs)
        now = self.oracle.rows(self.view.query)
        if extent.changed:
            self._compare(step, extent, now)
        elif not extent.reason:
            assert texts(self.rows) == texts(now), f"{self.view.query}: {extent}"
        self.last, self.rows = to, now
        return extent

    def _compare(self, step: Recomputing, extent: Extent, now: list[Row]) -> None:
        touched = step.touched()
        values = {text(row) for row in touched.to_pylist()}

        def is_touched(row: Row) -> bool:
            return text({name: row[name] for name in extent.columns}) in values

        computed = arrow_table(step.computed(touched)).to_pylist()
        said = f"{self.view.query}: {extent}, touched {sorted(values)}"
        assert texts(computed) == texts(filter(is_touched, now)), said
        left = [row for row in self.rows if not is_touched(row)]
        assert texts(left) == texts(row for row in now if not is_touched(row)), said
        assert not step.is_unique or _are_unique(now, self.view.key), said


def _are_unique(rows: Sequence[Row], key: Sequence[str]) -> bool:
    keys = [text({name: row[name] for name in key}) for row in rows]
    return len(keys) == len(set(keys))
