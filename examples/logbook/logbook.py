"""A source of a project's own: a folder with a file `0.log`, `1.log`, ... for each partition, which only grows.

A record is a line; its offset is the line's number. The file `id` names the logbook: another one in its place has another id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from ebbtide.extend import PLACED_RECORDS, Available, PositionedSource, SourceReadError, SourceSettings, Span

LINES_AT_ONCE = 10_000
"""Records in one batch."""


class Options(BaseModel):
    """Fields beside `type: logbook` in a spec's `source`."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(description="The logbook's folder. Required.")


class Logbook(PositionedSource):
    """The source.

    Args:
        options: What the spec says of it.
        settings: What the spec says of any source that is read by position.
    """

    Options = Options

    def __init__(self, options: Options, settings: SourceSettings) -> None:
        self.folder = options.folder
        self.settings = settings

    def available(self) -> Available:
        """Return what the files have now."""
        try:
            identity = {"logbook": Path(self.folder, "id").read_text().strip()}
        except OSError as error:
            raise SourceReadError.of(
                f"There is no logbook in '{self.folder}'.", next_step="Correct source.folder."
            ) from error
        latest = {int(file.stem): _n_lines(file) for file in sorted(Path(self.folder).glob("*.log"))}
        return Available(f"logbook '{self.folder}'", identity, dict.fromkeys(latest, 0), latest)

    def reader(self, max_record_bytes: int) -> ReadLines:
        """Return what reads lines."""
        return ReadLines(self.folder, max_record_bytes)


@dataclass(frozen=True)
class ReadLines:
    """Reads the lines of a span; it goes to Spark's workers.

    Args:
        folder: The logbook's.
        max_record_bytes: Of a longer line one byte more than that is given.
    """

    folder: str
    max_record_bytes: int

    def __call__(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yield the records of each partition."""
        for partition, start in span.start.items():
            with Path(self.folder, f"{partition}.log").open("rb") as lines:
                wanted = enumerate(islice(lines, start, span.end[partition]), start)
                while some := list(islice(wanted, LINES_AT_ONCE)):
                    yield self._batch(partition, some)

    def _batch(self, partition: int, lines: list[tuple[int, bytes]]) -> pa.RecordBatch:
        """Return lines as records: they are ordered by partition and offset, and have no keys."""
        records = [
            {
                "file": "logbook",
                "part": partition,
                "line": offset,
                "value": line.rstrip(b"\n")[: self.max_record_bytes + 1],
                "partition": partition,
                "offset": offset,
            }
            for offset, line in lines
        ]
        return pa.RecordBatch.from_pylist(records, PLACED_RECORDS)


def _n_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(line.endswith(b"\n") for line in lines)  # what is still being written has no end
