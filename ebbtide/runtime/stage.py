"""Stage: a batch is decoded once, by the workers, into Parquet files of its own, and summed up on the way.

A task that Spark ran twice leaves files that no returned summary names; they are never read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ebbtide.formats.decoding import Decoding
from ebbtide.formats.summary import from_json, summarize, to_json
from ebbtide.model.step import BatchSummary
from ebbtide.paths import ParquetFile, join
from ebbtide.sources.source import Records
from ebbtide.state_table.columns import spark_schema

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Staged:
    """A batch's decoded records.

    Args:
        files: Where they are.
        schema: Their columns.
        summary: What they are, in sum.
    """

    files: tuple[str, ...]
    schema: pa.Schema
    summary: BatchSummary

    def rows(self, spark: SparkSession) -> DataFrame:
        """Read them."""
        schema = spark_schema(self.schema, nullable=True)
        if not self.files:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*self.files)


def stage(
    frame: DataFrame,
    read: Records,
    decoding: Decoding,
    folder: str,
    *,
    step: int,
    wall_ms: int,
    tracks_offsets: bool,
) -> Staged:
    """Decode a micro-batch into files under `folder`.

    Args:
        frame: Spark's micro-batch.
        read: Turns its rows into raw records.
        decoding: Turns those into staged rows.
        folder: Where the files go.
        step: The step's number.
        wall_ms: Wall time of the step, epoch ms.
        tracks_offsets: Sum up the records' offsets too.
    """

    # One file for each task, under a name of its own, and one row back for each batch in it: the file and the batch's summary.
    def work(batches: Batches) -> Batches:
        location = join(folder, f"{uuid.uuid4().hex}.parquet")
        records = read(batches)
        decoded = decoding.decode(records, step=step, wall_ms=wall_ms)
        with ParquetFile(location, decoding.schema) as file:
            for batch in decoded:
                file.write(batch)
                rows = pa.Table.from_batches([batch])
                part = summarize(rows, decoding, tracks_offsets=tracks_offsets)
                columns = {
                    "file": [location],
                    "part": [to_json(part)],
                }
                yield pa.record_batch(columns)

    done = frame.mapInArrow(work, "file STRING, part STRING").collect()
    files = dict.fromkeys(row["file"] for row in done)
    parts = [from_json(row["part"]) for row in done]
    return Staged(
        files=tuple(files),
        schema=decoding.schema,
        summary=BatchSummary.total(parts),
    )
