"""What a task does with a batch's records: decode them, write them down, sum them up. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebbtide.formats import summary as summaries
from ebbtide.formats.decoding import Decoding
from ebbtide.model.step import BatchSummary
from ebbtide.tables.state.staged import StagedFile, Stager


@dataclass(frozen=True)
class Staging:
    """Decodes a task's records into a file.

    Args:
        decoding: Turns records into staged rows.
        stager: Writes these.
        step: The step's number.
        wall_ms: Wall time of the step, epoch ms.
        tracks_offsets: Sum up the records' offsets too.
    """

    decoding: Decoding
    stager: Stager
    step: int
    wall_ms: int
    tracks_offsets: bool

    def __call__(self, records: Iterable[pa.RecordBatch]) -> str | None:
        """Return the file and the summary as JSON, for the way to the driver; None if there was no record.

        Args:
            records: Batches of `ebbtide.formats.records.RECORDS`.
        """
        parts: list[BatchSummary] = []
        sizes: list[int] = []
        file = self.stager.stage(self._decoded(_measured(records, sizes), parts))
        if not parts:
            return None
        parts.append(BatchSummary(bytes=sum(sizes)))
        return to_json(file, parts)

    def _decoded(
        self,
        records: Iterable[pa.RecordBatch],
        parts: list[BatchSummary],
    ) -> Iterator[pa.Table]:
        """Yield staged rows; add the summary of each batch of them to `parts`."""
        batches = self.decoding.decode(records, step=self.step, wall_ms=self.wall_ms)
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            part = summaries.summarize(rows, self.decoding, tracks_offsets=self.tracks_offsets)
            parts.append(part)
            yield rows


def _measured(records: Iterable[pa.RecordBatch], sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield records; add how many bytes their values have to `sizes`."""
    for batch in records:
        n_bytes = batch.column("value").nbytes
        sizes.append(n_bytes)
        yield batch


def to_json(file: StagedFile, parts: Sequence[BatchSummary]) -> str:
    """Write a staged file and the summaries of what is in it as JSON, for the way to the driver."""
    summary = BatchSummary.total(parts)
    result = {
        "file": file.as_dict(),
        "summary": summaries.to_json(summary),
    }
    return json.dumps(result)


def from_json(text: str) -> tuple[StagedFile, BatchSummary]:
    """Read what `to_json` wrote."""
    result = json.loads(text)
    file = StagedFile.of(result["file"])
    summary = summaries.from_json(result["summary"])
    return file, summary
