"""Stage: workers decode a batch once into separate files, and sum it up.

A small batch is decoded in the driver. A task that Spark ran twice leaves files that no returned summary names; they are never
read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, cast

import pyarrow as pa

from ebbtide.changelog import Intervals
from ebbtide.errors import EbbtideError, QuarantineThresholdError
from ebbtide.model import BatchSummary, ViewPosition
from ebbtide.runtime._finding import Found, Order, nothing_found
from ebbtide.runtime._workers.staging import BAD_ROWS, StagedFile, Staging, from_json
from ebbtide.sources import Records
from ebbtide.storage import ArrowFile, Location, ParquetFile, Together

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.runtime._guests import ViewSource
    from ebbtide.runtime._plan import Plan

Find = Callable[[Sequence[Order]], Found]
"""Finds records by their orders."""


@dataclass(frozen=True)
class Staged:
    """A batch's decoded records.

    Args:
        files: Where they are.
        summary: What they are, in sum.
        replayed: Offsets of those that an earlier step read and set aside, as ranges by `source/partition`.
        find: Finds the records themselves.
    """

    files: tuple[StagedFile, ...]
    summary: BatchSummary
    replayed: Mapping[str, Intervals] = field(default_factory=dict)
    find: Find = nothing_found

    @classmethod
    def of(cls, results: Iterable[str]) -> Self:
        """Put together what tasks returned; see `StagedFile.to_json`."""
        files = []
        summaries = []
        for text in results:
            file, summary = from_json(text)
            files.append(file)
            summaries.append(summary)
        total = BatchSummary.total(summaries)
        return cls(tuple(files), total)

    def bad(self) -> pa.Table:
        """Read the bad rows."""
        tables = [ParquetFile(file.bad).read(BAD_ROWS.names) for file in self.files if file.bad is not None]
        return pa.concat_tables([BAD_ROWS.empty_table(), *tables])


def stage_view(
    plan: Plan,
    executor: Executor,
    last: ViewPosition | None,
    to: ViewPosition,
    folder: str,
    *,
    step: int,
    wall_ms: int,
) -> Staged:
    """Compute the changes of a materialized view.

    Args:
        plan: The view.
        last: What the view was computed from by the step before; None before the first.
        to: The versions to compute it from.
        folder: For the files.
        step: The step's number.
        wall_ms: Its wall time, epoch ms.
    """
    source = cast("ViewSource", plan.source)
    stager = plan.stager(folder, refused=None, n_slices=executor.slices)
    results, reason = source.stage(executor.spark(), plan.sink.path, stager, (last, to), step=step, wall_ms=wall_ms)
    staged = Staged.of(results)
    summary = replace(staged.summary, view=to, recomputed=reason)
    return replace(staged, summary=summary)


def stage(records: Records, staging: Staging) -> Staged:
    """Decode a batch into files.

    Args:
        records: Records of the batch.
        staging: Decodes and writes them.
    """
    return Staged.of(records.run(staging))


def delete_staged(folder: str, *, is_clean: bool) -> None:
    """Delete a step's staged files, if any were put in a store.

    Args:
        folder: Folder of the pipeline's staged files.
        is_clean: It was empty when the step began; otherwise files of a killed run are also deleted.
    """
    ArrowFile.forget(folder)
    step = Together.current()
    is_known = is_clean and Location(folder).is_in_object_store
    if step is None or not is_known or any(location.startswith(folder) for location in step.written):
        Location(folder).delete()


@contextmanager
def deleted_on_failure(staged: str) -> Iterator[None]:
    """Delete the files that a step has staged if it fails, but where too many records are bad: it shows the reasons then."""
    try:
        yield
    except BaseException as error:
        ArrowFile.forget(staged)
        # Spark has wrapped a worker's error.
        raised = EbbtideError.within(error) or error
        if isinstance(raised, QuarantineThresholdError):
            raise
        with contextlib.suppress(OSError):  # of a full disk what failed first is reported
            Location(staged).delete()
        raise
