"""Foreign writes: commits of other clients that changed rows of a pipeline's tables. What counts as one is decided here alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from ebbtide.amounts import amount, named
from ebbtide.delta import log
from ebbtide.ledger.windows import accepted_sink_version, ends_window, is_own

MOST_COMMITS = 200
"""Newest commits of each table that runs and `status` read; the check `foreign_writes` reads all."""
MOST_NAMED = 5
"""Foreign writes that a message names."""


@dataclass(frozen=True)
class DataCommit:
    """A commit that changed rows; joining files changes none.

    Args:
        table: `sink` or `state`.
        version: The table's.
        at_ms: When, epoch ms, as the commit says.
        operation: What the commit says that it did; None if it does not say.
        is_own: The pipeline made it.
    """

    table: str
    version: int
    at_ms: int
    operation: str | None
    is_own: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Name it."""
        return f"{self.table} version {self.version} ({self.operation or 'unknown operation'})"


def data_commits(pipeline: str, table: str, location: str, versions: Collection[int]) -> Iterator[DataCommit]:
    """Yield the commits of a table that changed rows, the oldest first.

    Args:
        pipeline: Name of the pipeline.
        table: `sink` or `state`.
        location: The table's.
        versions: Those to look at.
    """
    for version in log.versions(location):
        if version not in versions:
            continue
        commit = _data_commit(pipeline, table, version, log.actions(location, version))
        if commit is not None:
            yield commit


def foreign_writes(pipeline: str, state: str, sink: str) -> tuple[DataCommit, ...]:
    """Return the foreign writes that are neither repaired nor acknowledged, of each table the oldest first.

    Reads at most `MOST_COMMITS` commits of each table, the newest ones. A pipeline without a step has none.

    Args:
        pipeline: Name of the pipeline.
        state: Location of the state.
        sink: Location of the sink.
    """
    if not log.last_step(state):
        return ()
    of_state, state_end = _newest_foreign(pipeline, "state", state, 0)
    accepted = accepted_sink_version(state, state_end)
    of_sink, _ = _newest_foreign(pipeline, "sink", sink, accepted)
    return (*of_sink, *of_state)


def foreign_writes_text(writes: Collection[DataCommit]) -> str:
    """Write foreign writes, and what to do about them, in one line.

    Args:
        writes: One or more.
    """
    texts = [write.text() for write in writes]
    commits = amount(len(writes), "commit")
    return (
        f"{commits} of other clients changed rows: {named(texts, MOST_NAMED)}. "
        "Run 'ebbtide repair' to put them right, or 'ebbtide acknowledge' to accept them."
    )


def _newest_foreign(pipeline: str, table: str, location: str, judged: int) -> tuple[list[DataCommit], int]:
    """Return the foreign writes since the last step that ends windows, and the version of that step.

    Args:
        pipeline: Name of the pipeline.
        table: `sink` or `state`.
        location: The table's.
        judged: Version up to which all was accepted.
    """
    found: list[DataCommit] = []
    newest_first = reversed(log.versions(location))
    for version in islice(newest_first, MOST_COMMITS):
        if version <= judged:
            break
        actions = log.actions(location, version)
        own = log.facts_in(actions)
        if own is not None and ends_window(own):
            judged = version
            break
        commit = _data_commit(pipeline, table, version, actions)
        if commit is not None and not commit.is_own:
            found.insert(0, commit)
    return found, judged


def _data_commit(pipeline: str, table: str, version: int, actions: Iterable[log.Action]) -> DataCommit | None:
    commit = list(actions)
    if not log.changed_files(commit):
        return None
    info = log.commit_info(commit)
    return DataCommit(
        table=table,
        version=version,
        at_ms=info.get("timestamp", 0),
        operation=info.get("operation"),
        is_own=is_own(pipeline, commit),
    )
