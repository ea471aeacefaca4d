"""Stage: a batch is decoded once, by the workers, into files of its own, and summed up on the way.

A task that Spark ran twice leaves files that no returned summary names; they are never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from ebbtide.formats.decoding import Decoding
from ebbtide.formats.summary import from_json, summarize, to_json
from ebbtide.model.step import BatchSummary
from ebbtide.paths import read_parquet
from ebbtide.sources.source import Records
from ebbtide.state_table.staged import BAD_ROWS, StagedFile, Stager

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Staged:
    """A batch's decoded records.

    Args:
        files: Where they are.
        summary: What they are, in sum.
    """

    files: tuple[StagedFile, ...]
    summary: BatchSummary

    def bad(self) -> pa.Table:
        """Read the bad rows."""
        tables = [read_parquet(file.bad, BAD_ROWS.names) for file in self.files if file.bad is not None]
        return pa.concat_tables([BAD_ROWS.empty_table(), *tables])


def stage(
    frame: DataFrame,
    read: Records,
    decoding: Decoding,
    stager: Stager,
    *,
    step: int,
    wall_ms: int,
    tracks_offsets: bool,
) -> Staged:
    """Decode a micro-batch into files.

    Args:
        frame: Spark's micro-batch.
        read: Turns its rows into raw records.
        decoding: Turns those into staged rows.
        stager: Writes these.
        step: The step's number.
        wall_ms: Wall time of the step, epoch ms.
        tracks_offsets: Sum up the records' offsets too.
    """

    def work(batches: Batches) -> Batches:
        parts: list[BatchSummary] = []

        def decoded() -> Iterator[pa.Table]:
            for batch in decoding.decode(read(batches), step=step, wall_ms=wall_ms):
                rows = pa.Table.from_batches([batch])
                parts.append(summarize(rows, decoding, tracks_offsets=tracks_offsets))
                yield rows

        file = stager.stage(decoded())
        if parts:
            summary = to_json(BatchSummary.total(parts))
            yield pa.record_batch({"file": [json.dumps(file.as_dict())], "summary": [summary]})

    done = frame.mapInArrow(work, "file STRING, summary STRING").collect()
    files = [StagedFile.of(json.loads(row["file"])) for row in done]
    summary = BatchSummary.total([from_json(row["summary"]) for row in done])
    return Staged(tuple(files), summary)
