"""A source and a sink of another package: each a class and a spec model that makes it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
from clusters.spark_support import LOCAL, change, plain_spec
from deltalake import write_deltalake
from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ebbtide import UpsertPipeline, run
from ebbtide.delta import Log, Snapshot
from ebbtide.entries import DELETE
from ebbtide.formats import RECORDS
from ebbtide.ledger import TableFacts
from ebbtide.runtime import Plan
from ebbtide.sources import Discovery, SourceBatch
from ebbtide.spec._parts import SourcePart, SpecPart
from ebbtide.tables import Sink


class TableSource(SourcePart):
    """A Delta table whose column `value` holds the records."""

    type: Literal["table"] = "table"

    def opened(self, pipeline, *, in_order, has_positions=True):
        return DeltaLines(self.path)


class JsonSink(SpecPart):
    """One JSON document with all rows."""

    type: Literal["json"] = "json"
    options: None = None

    @property
    def kind(self):
        return JsonTable


class TablePipeline(UpsertPipeline):
    """With that source."""

    source: TableSource = Field()


class JsonPipeline(UpsertPipeline):
    """With that sink."""

    sink: JsonSink = Field()


@dataclass(frozen=True)
class Versions:
    """Plans a batch for each version of a table."""

    path: str

    def note(self, found):
        pass

    def after(self, last):
        following = 0 if last is None else last["version"] + 1
        return {"version": following} if following in Log(self.path).versions() else last


@dataclass(frozen=True)
class Rows:
    """The rows that a version has added, read by Spark."""

    frame: DataFrame

    def run(self, work):
        def records(part, batch):
            n = batch.num_rows
            return pa.record_batch([["table"] * n, [part] * n, range(n), batch.column(0)], schema=RECORDS)

        def in_task(batches):
            done = work(records(part, batch) for part, batch in enumerate(batches))
            yield pa.record_batch({"result": [done]})

        return [row["result"] for row in self.frame.mapInArrow(in_task, "result STRING").collect() if row["result"]]


@dataclass(frozen=True)
class DeltaLines:
    """The source."""

    path: str

    def refuse_absent(self):
        assert Path(self.path).exists()

    def discover(self, read, now_ms, since=None):
        return Discovery(streams=True)

    def gone(self, read, span):
        return None

    def planner(self, found, location):
        return Versions(self.path)

    def batch(self, spark, offset, max_record_bytes):
        rows = spark.read.parquet(*Log(self.path).added(offset["version"]))
        return SourceBatch(Rows(rows.select(F.col("value").cast("binary"))))

    def measured(self, batch, n_bytes, location):
        pass


@dataclass(frozen=True)
class JsonTable(Sink):
    """The sink."""

    options: None
    path: str
    columns: pa.Schema
    key: tuple[str, ...]

    @property
    def schema(self):
        return self.columns

    @property
    def stored(self):
        file = Path(self.path + ".json")
        return json.loads(file.read_text()) if file.exists() else {"step": 0, "rows": {}}

    def create(self, spark):
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)

    def facts(self):
        return TableFacts(id="json", step=self.stored["step"])

    def perform(self, action, work):
        rows = self.stored["rows"]
        for row in work.changes.rows(self.columns).to_pylist():
            key = json.dumps([row[name] for name in self.key])
            if row.pop("_change") == DELETE:
                rows.pop(key, None)
            else:
                rows[key] = row
        Path(self.path + ".json").write_text(json.dumps({"step": work.facts.step, "rows": rows}, default=str))


def fields(spec, **more):
    return spec.model_dump(by_alias=True, exclude_unset=True) | more


def test_source_and_sink_of_ones_own_run_like_ours(spark, tmp_path):
    lines = [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("-D", 1, "a", 3)]
    records = str(tmp_path / "records")
    given = plain_spec(tmp_path / "in", order={"sequence": ["seq"]})
    from_table = TablePipeline(**fields(given, source={"type": "table", "path": records, "records": "value"}))
    write_deltalake(records, pa.table({"value": lines}))
    assert run(spark, from_table, str(tmp_path)).totals["records"] == 3
    sink = Snapshot.read(Plan.under(str(tmp_path), from_table).at("sink"))
    assert sink.rows(from_table.sink_table.columns)["v"].to_pylist() == ["b"]
    write_deltalake(records, pa.table({"value": [change("+I", 3, "c", 4)]}), mode="append")
    assert run(spark, from_table, str(tmp_path)).totals["records"] == 1, "what was read is not read again"

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text("\n".join(lines) + "\n")
    to_json = JsonPipeline(**fields(given, name="document", sink={"type": "json"}))
    run(LOCAL, to_json, str(tmp_path))
    rows = Plan.under(str(tmp_path), to_json).sink.stored["rows"]
    assert [row["v"] for row in rows.values()] == ["b"]
