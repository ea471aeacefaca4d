"""Foreign writes: commits of other clients that changed rows of a pipeline's tables. What counts as one is decided here alone.

Each run notes in the ledger what it has found up to which commit. A look reads the commits after that, the newest of those before, which
must still be the one that was noted, and the foreign writes that were noted: idle runs and `status` cost the same however long the log is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from ebbtide.amounts import amount, named
from ebbtide.delta import log
from ebbtide.ledger.facts import Looked, StepFacts
from ebbtide.ledger.windows import accepted_sink_version, ends_window, is_own

MOST_COMMITS = 200
"""Commits of each table that a run or `status` reads at most, the newest ones; the check `foreign_writes` reads all."""
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


@dataclass(frozen=True)
class Look:
    """What a look for foreign writes has found.

    Args:
        writes: Those that are neither repaired nor acknowledged, of each table the oldest first.
        looked: What the next look goes on from, by table.
    """

    writes: tuple[DataCommit, ...] = ()
    looked: Mapping[str, Looked] = field(default_factory=dict)


def look_for_foreign_writes(pipeline: str, state: str, sink: str | None, before: Mapping[str, Looked]) -> Look:
    """Look for the foreign writes that are neither repaired nor acknowledged. A pipeline without a step has none.

    Args:
        pipeline: Name of the pipeline.
        state: Location of the state.
        sink: Location of the sink; None: it has no log to look through.
        before: What an earlier look has found, by table; empty: none is known.
    """
    if not log.last_step(state):
        return Look()
    of_state, state_looked = _look_at(pipeline, "state", state, before.get("state"))
    if sink is None:
        return Look(tuple(of_state), {"state": state_looked})
    accepted = accepted_sink_version(state, state_looked.window_end)
    of_sink, sink_looked = _look_at(pipeline, "sink", sink, before.get("sink"), accepted)
    return Look((*of_sink, *of_state), {"state": state_looked, "sink": sink_looked})


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


def _look_at(
    pipeline: str, table: str, location: str, before: Looked | None, accepted: int = 0
) -> tuple[list[DataCommit], Looked]:
    """Return the foreign writes to a table since the last step that ends windows, the oldest first, and what the next look goes on from.

    Args:
        pipeline: Name of the pipeline.
        table: `sink` or `state`.
        location: The table's.
        before: What an earlier look has found; None: nothing is known.
        accepted: Version up to which a step has accepted all.
    """
    versions = log.versions(location)
    known = _still_true(location, before)
    looked_at = max(known.version, accepted)
    window_end = known.window_end
    found: list[DataCommit] = []
    for version in islice(reversed(versions), MOST_COMMITS):
        if version <= looked_at:
            break
        actions = log.actions(location, version)
        own = log.facts_in(actions)
        if own is not None and ends_window(StepFacts.of_commit(own, location)):
            window_end = version
            break
        found += _foreign(pipeline, table, version, actions)
    for version in reversed(known.foreign):
        if version > max(window_end, accepted):
            found += _foreign(pipeline, table, version, log.actions(location, version))
    found = found[:MOST_COMMITS]
    found.reverse()
    newest = versions[-1] if versions else -1
    checksum = known.checksum if newest == known.version else log.checksum(location, newest)
    foreign = tuple(write.version for write in found)
    return found, Looked(version=newest, checksum=checksum, window_end=window_end, foreign=foreign)


def _still_true(location: str, before: Looked | None) -> Looked:
    """Return what an earlier look has found, if the table still has the commits that it looked at; else that nothing is known."""
    nothing = Looked(version=-1, checksum=None, window_end=0, foreign=())
    if before is None or log.checksum(location, before.version) != before.checksum:
        return nothing
    return before


def _foreign(pipeline: str, table: str, version: int, actions: Iterable[log.Action]) -> Iterator[DataCommit]:
    """Yield a commit if it is a foreign write."""
    commit = _data_commit(pipeline, table, version, actions)
    if commit is not None and not commit.is_own:
        yield commit


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
