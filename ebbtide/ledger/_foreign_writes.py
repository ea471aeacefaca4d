"""Foreign writes: commits of other clients that changed rows of a pipeline's tables.

Each run notes its scan in the ledger: the newest commit it read, and the foreign writes it found. The next scan reads the commits after
that one, that one itself, whose checksum must still be the noted one, and the noted foreign writes. So the cost of idle runs and
`status` does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice, takewhile
from typing import Any, Self

from ebbtide.amounts import amount, named
from ebbtide.delta import Action, Commit, Log, Snapshot
from ebbtide.errors import DeltaLogError, HistoryGoneError
from ebbtide.faults import Fault
from ebbtide.ledger._facts import Looked, StepFacts
from ebbtide.storage import Location

MOST_COMMITS = 200
"""The most commits of each table that a run or `status` reads, the newest ones; the check `foreign_writes` reads all."""
MOST_NAMED = 5
"""The most foreign writes that a message names."""


@dataclass(frozen=True)
class DataCommit:
    """A commit that changed rows; joining files changes none, unless the table has more rows or fewer after it.

    Args:
        table: `sink` or `state`.
        version: Version of the table.
        at_ms: Time in the commit's info, epoch ms.
        operation: Operation in the commit's info; None without one.
        is_own: The pipeline made the commit.
    """

    table: str
    version: int
    at_ms: int
    operation: str | None
    is_own: bool

    @classmethod
    def of_table(cls, pipeline: str, table: str, location: str, versions: Collection[int]) -> Iterator[Self]:
        """Yield the commits of a table that changed rows, the oldest first.

        Args:
            pipeline: Name of the pipeline.
            table: `sink` or `state`.
            location: Location of the table.
            versions: Versions to read.
        """
        for version in Log(location).versions():
            if version not in versions:
                continue
            commit = cls.of_commit(pipeline, table, location, version, Log(location).commit(version))
            if commit is not None:
                yield commit

    @classmethod
    def of_commit(
        cls,
        pipeline: str,
        table: str,
        location: str,
        version: int,
        commit: Commit,
    ) -> Self | None:
        """Return a commit of a table; None if it changed no rows.

        Args:
            pipeline: Name of the pipeline.
            table: `sink` or `state`.
            location: Location of the table.
            version: Version of the commit.
            commit: The commit.
        """
        info = commit.info()
        if not commit.changed_files() and not _changes_rows(location, version, commit, info):
            return None
        return cls(
            table=table,
            version=version,
            at_ms=info.get("timestamp", 0),
            operation=info.get("operation"),
            is_own=_is_own(pipeline, commit),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Return a name for messages."""
        return f"{self.table} version {self.version} ({self.operation or 'unknown operation'})"


@dataclass(frozen=True)
class ForeignWrites:
    """The result of a scan for foreign writes.

    Args:
        writes: Foreign writes that are neither repaired nor acknowledged, of each table the oldest first.
        looked: The scan of each table, from which the next one continues.
    """

    writes: tuple[DataCommit, ...] = ()
    looked: Mapping[str, Looked] = field(default_factory=dict)

    @staticmethod
    def window_end(table: str, judged: int, newest: int, *, accepted_by: tuple[str, int] | None = None) -> int:
        """Return the version of the last step that ends windows, or the one judged last if that is newer.

        Args:
            table: Location of the state or the sink.
            judged: The last version that was judged good; 0 without one.
            newest: Later steps do not count.
            accepted_by: Of a sink, the location of the state and its version at the end of its window: that step may have
                accepted a version of the sink, which counts too.
        """
        accepted = 0 if accepted_by is None else _accepted_sink_version(*accepted_by)
        return max(_end_by_steps(table, judged, newest), accepted)

    @classmethod
    def found(cls, pipeline: str, state: str, sink: str | None, before: Mapping[str, Looked]) -> Self:
        """Scan for foreign writes that are neither repaired nor acknowledged. A pipeline without a step has none.

        Args:
            pipeline: Name of the pipeline.
            state: Location of the state.
            sink: Location of the sink; None for a sink without a Delta log.
            before: The earlier scan of each table; empty without one.
        """
        state_known = _still_true(state, before.get("state"))
        if state_known.version < 0 and not Log(state).last_step():
            return cls()
        of_state, state_looked = _look_at(pipeline, "state", state, state_known)
        if sink is None:
            return cls(tuple(of_state), {"state": state_looked})
        accepted = _accepted_sink_version(state, state_looked.window_end)
        sink_known = _still_true(sink, before.get("sink"))
        of_sink, sink_looked = _look_at(pipeline, "sink", sink, sink_known, accepted)
        looked = {"state": state_looked, "sink": sink_looked}
        return cls((*of_sink, *of_state), looked)

    def text(self) -> str:
        """Return a message on the writes, one or more, with the next step, in one line."""
        texts = [write.text() for write in self.writes]
        commits = amount(len(self.writes), "commit")
        fault = Fault.of("sink", "written by another client", commits=commits, writes=named(texts, MOST_NAMED))
        return str(fault.error)


def _end_by_steps(table: str, judged: int, newest: int) -> int:
    for version, facts in Log(table).own_commits():
        if version <= judged:
            break
        if version > newest:
            continue
        if StepFacts.of_commit(facts, table).ends_window:
            return version
    return judged


def _accepted_sink_version(state: str, state_end: int) -> int:
    """Return the version of the sink that the step which ended the state's window has accepted; 0 if it accepted none.

    Args:
        state: Location of the state.
        state_end: Version of the state at the end of its window.
    """
    stored = Log(state).commit(state_end).facts()
    if stored is None:
        return 0
    facts = StepFacts.of_commit(stored, state)
    return facts.decision.accepts_sink or 0


def _is_own(pipeline: str, commit: Commit) -> bool:
    """Return whether a pipeline made a commit: it has a transaction mark of the pipeline, and facts."""
    prefix = f"{pipeline}/"
    names_pipeline = False
    for action in commit:
        if "txn" in action:
            app_id = action["txn"]["appId"]
            names_pipeline |= app_id.startswith(prefix)
    has_facts = commit.facts() is not None
    return names_pipeline and has_facts


def _look_at(
    pipeline: str, table: str, location: str, known: Looked, accepted: int = 0
) -> tuple[list[DataCommit], Looked]:
    """Return the foreign writes to a table since the last step that ends windows, the oldest first, and the scan to note.

    Args:
        pipeline: Name of the pipeline.
        table: `sink` or `state`.
        location: Its location.
        known: The earlier scan, see `_still_true`.
        accepted: Version up to which a step has accepted all commits.
    """
    newest_first = _newest_first(Log(location), known)
    looked_at = max(known.version, accepted)
    window_end = known.window_end
    found: list[DataCommit] = []
    # From the newest back to the last scan, or to a step that ends windows: the commits before it are settled.
    for version in newest_first:
        if version <= looked_at:
            break
        actions = Log(location).commit(version)
        own = actions.facts()
        if own is not None and StepFacts.of_commit(own, location).ends_window:
            window_end = version
            break
        found += _foreign(
            pipeline,
            table,
            location,
            version,
            actions,
        )
    # Writes that an earlier scan noted are read again for their operation and time, unless they are settled by now.
    for version in reversed(known.foreign):
        if version > max(window_end, accepted):
            actions = Log(location).commit(version)
            found += _foreign(
                pipeline,
                table,
                location,
                version,
                actions,
            )
    found = found[:MOST_COMMITS]
    found.reverse()
    newest = newest_first[0] if newest_first else -1
    checksum = known.checksum
    if newest != known.version:
        checksum = Log(location).checksum(newest)
    foreign = tuple(write.version for write in found)
    return found, Looked(version=newest, checksum=checksum, window_end=window_end, foreign=foreign)


def _newest_first(log: Log, known: Looked) -> list[int]:
    """Return the newest versions of a log, at most `MOST_COMMITS`, or those since an earlier scan and its own."""
    # A log loses its oldest commits first: behind one that is there none is missing. On a disk a few files are asked for faster than all are listed.
    if known.version >= 0 and Location(log.table).is_local:
        behind = range(known.version + 1, known.version + 1 + MOST_COMMITS)
        later = list(takewhile(lambda version: log.commit_file(version).is_file(), behind))
        if len(later) < MOST_COMMITS:
            return [*reversed(later), known.version]
    return list(islice(log.newest_first(), MOST_COMMITS))


def _still_true(location: str, before: Looked | None) -> Looked:
    """Return an earlier scan if the table still has the commits that it read; else an empty scan."""
    # One checksum suffices: a table that was restored from a copy, or made again, differs in its newest noted commit.
    if before is not None:
        checksum = Log(location).checksum(before.version)
        if checksum == before.checksum:
            return before
    return Looked(version=-1, checksum=None, window_end=0, foreign=())


def _foreign(
    pipeline: str,
    table: str,
    location: str,
    version: int,
    actions: Commit,
) -> Iterator[DataCommit]:
    """Yield a commit if it is a foreign write."""
    commit = DataCommit.of_commit(pipeline, table, location, version, actions)
    if commit is not None and not commit.is_own:
        yield commit


def _changes_rows(location: str, version: int, commit: Commit, info: Action) -> bool:
    """Return whether a commit of another client changes the number of a table's rows, though it says that no row changes.

    A sink whose state forgets rows cannot be compared with the state key by key, so the log must show it. Compaction of the state
    leaves rows out, too, but that commit is the pipeline's. Where both tables can be compared, `ebbtide.checks._completeness` does it.

    Args:
        location: Location of the table.
        version: Version of the commit.
        commit: Its actions.
        info: Its `commitInfo`.
    """
    has_files = any("add" in action or "remove" in action for action in commit)
    if not has_files or commit.is_own():
        return False
    try:
        before = Snapshot.read(location, version - 1, any_features=True)
        after = Snapshot.read(location, version, any_features=True)
    except (DeltaLogError, HistoryGoneError):  # the log no longer reaches so far back
        return False
    if before is None or after is None or before.live_rows is None or after.live_rows is None:
        return False
    return before.live_rows != after.live_rows
