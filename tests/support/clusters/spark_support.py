"""Small sources, and what the tables hold after a run."""

import gzip
import json
from pathlib import Path
from typing import Any

import operating
from pyspark.sql import SparkSession

from ebbtide import InProcess, Pipeline, UpsertPipeline
from ebbtide.operations import Context, Report
from ebbtide.runtime import system_clock
from ebbtide.sessions import arrow_table, executor_of

PROJECT = Path(__file__).resolve().parents[3]
LOCAL = InProcess()
"""For runs that only make what a test then looks at with Spark."""
PLAIN = {"type": "plain", "position": ["p", "n"]}


def shop_lines(name: str) -> list[str]:
    """The records of one shop pipeline, in order of arrival."""
    folder = "join" if name == "order_balances" else "capture"
    lines = []
    for path in sorted((PROJECT / "data" / "shop" / folder).glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as source:
            lines += list(source)
    return lines if folder == "join" else [line for line in lines if f'"topic": "shop.public.{name}"' in line]


def shop_spec(name: str, source: Path, files: int = 1) -> UpsertPipeline:
    """A shipped spec over another folder."""
    spec = UpsertPipeline.load(PROJECT / "pipelines" / "defs" / "shop" / name)
    return spec.model_copy(
        update={"source": spec.source.model_copy(update={"path": str(source), "max_files_per_step": files})}
    )


def cut(lines: list[str], steps: int) -> list[list[str]]:
    """Cut into equal parts."""
    size = -(-len(lines) // steps)
    return [lines[at : at + size] for at in range(0, len(lines), size)]


def write(folder: Path, *parts: list[str], first: int = 0) -> Path:
    """Write parts as numbered files."""
    folder.mkdir(exist_ok=True, parents=True)
    for number, part in enumerate(parts, start=first):
        (folder / f"{number:04d}.jsonl").write_text(
            "\n".join(line.rstrip("\n") for line in part) + "\n", encoding="utf-8"
        )
    return folder


def plain_spec(source: Path, **more: Any) -> UpsertPipeline:
    """A two-column pipeline in arrival mode; give `order` for sequence mode by `seq`."""
    fields = {
        "name": "plain",
        "source": {"path": str(source), "records": "value", "max_files_per_step": 1},
        "format": PLAIN,
        "schema": "id BIGINT, v STRING, seq BIGINT, at TIMESTAMP_NTZ DEFAULT NULL",
        "key": ["id"],
        "order": "arrival",
    }
    return UpsertPipeline(**{**fields, **more})


def change(kind: str, id_: Any, v: Any, n: int, **more: Any) -> str:
    """One plain changelog line; its place in the source is also its sequence."""
    return json.dumps({"p": 0, "n": n, "kind": kind, "row": {"id": id_, "v": v, "seq": n, **more}})


def table(spark: SparkSession, root: Path, spec: Pipeline, name: str = "sink") -> list[dict[str, Any]]:
    """A table's rows, times as UTC."""
    return arrow_table(spark.read.format("delta").load(str(root / spec.name / name))).to_pylist()


def sink(spark: SparkSession, root: Path, spec: Pipeline) -> list[dict[str, Any]]:
    """The sink's rows without the reserved columns, in order of key."""
    rows = [{f.name: row[f.name] for f in spec.sink_table.columns} for row in table(spark, root, spec)]
    return sorted(rows, key=lambda row: json.dumps([row[k] for k in spec.sink_key], default=str))


def act(
    spark: SparkSession,
    spec: Pipeline,
    root: Path | str,
    name: str,
    action: str = "apply",
    clock_ms: int | None = None,
    **asked: Any,
) -> Report:
    """Plan or apply an operation on Spark as its command does; see `operating.act`.

    Args:
        spark: The session.
        spec: Its pipeline.
        root: Folder of the tables.
        name: Of the operation.
        action: `plan`, `apply`, or a further one of it.
        clock_ms: The time. Default: now.
        asked: Values of its `Params`.
    """
    return operating.act(name, action, context(spark, spec, root, clock_ms), **asked)


def context(spark: SparkSession, spec: Pipeline, root: Path | str, clock_ms: int | None = None) -> Context:
    """Return the means of an operation on Spark; see `act`."""
    clock = system_clock if clock_ms is None else lambda: clock_ms
    return Context(spec, str(root), executor_of(spark), clock=clock)
