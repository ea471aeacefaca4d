"""The turns of a lease: commits of the ledger, each with one `LedgerFacts` and no rows. The greatest (epoch, heartbeat) counts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

import pyarrow as pa

from ebbtide.delta import Commit, Definition, Log, Snapshot
from ebbtide.errors import TableMismatchError, VersionTakenError
from ebbtide.ledger._facts import FREE, Beginning, LedgerFacts
from ebbtide.ledger._upgrade import beginning_of
from ebbtide.ledger._writers import writer_of
from ebbtide.model import StoredDocument
from ebbtide.storage import Location
from ebbtide.users import user_name

COLUMNS = pa.schema([("pipeline", pa.string())])
"""Columns of the ledger, which has no rows."""
TRIES = 5
"""Tries to commit a turn whose version another process took."""
NEWEST = 10
"""Newest commits that are read: after a take-over the loser may have added one heartbeat of its older epoch."""


def create_ledger(ledger: str, pipeline: str) -> None:
    """Create a ledger if it does not exist, in a folder of this user, or of the root's group; its turns so far are on disk then.

    Args:
        ledger: Its location.
        pipeline: Name of the pipeline.

    Raises:
        StoreUnsafeError: the object store overwrites a file that is put if absent.
    """
    home, _, _ = ledger.rpartition("/")
    if Location(home).is_local:
        Location(home).make_home()
    Location(ledger).refuse_overwriting()
    writer_of(ledger).create_if_absent(ledger, Definition(COLUMNS), name=f"{pipeline} ledger")
    if Location(ledger).is_local:
        Log(ledger).folder.sync_names()


def newest_turn(ledger: str, *, is_whole: bool = False) -> tuple[int, LedgerFacts | None]:
    """Return the newest version of a ledger, and the turn that counts in it; -1 and None without one.

    Args:
        ledger: Its location.
        is_whole: Refuse a gap. A ledger that is being deleted has some, and may be asked all the same.

    Raises:
        DeltaLogError: a commit is torn, has other bytes, or is missing.
    """
    log = Log(ledger)
    versions = log.whole_versions() if is_whole else log.versions()
    found = log.each(versions[-NEWEST:], lambda version: _turn_in(log.commit(version)))
    turns = [turn for turn in found if turn is not None]
    older = versions[:-NEWEST]
    # Other clients may have committed too: the same number of turns is read.
    while older and len(turns) < NEWEST:
        turn = _turn_in(log.commit(older.pop()))
        if turn is not None:
            turns.append(turn)
    counting = _counting(turns)
    if counting is not None and counting.format < StoredDocument.FORMAT:
        counting = _upgraded(ledger, counting)
    return max(versions, default=-1), counting


def _upgraded(ledger: str, turn: LedgerFacts) -> LedgerFacts:
    """Return the newest turn of an earlier release with what its checkpoint folder alone said; the next turn stores it."""
    home, _, _ = ledger.rpartition("/")
    beginning = beginning_of(home)
    read = (
        None if beginning is None else StoredDocument("The noted start of the source", home).read(Beginning, beginning)
    )
    return turn.model_copy(update={"format": StoredDocument.FORMAT, "beginning": read})


def _turn_in(commit: Commit) -> LedgerFacts | None:
    """Return the turn in a commit of a ledger; None without one."""
    facts = commit.facts()
    return None if facts is None else LedgerFacts.read(facts, commit.location)


def _counting(turns: Sequence[LedgerFacts]) -> LedgerFacts | None:
    # Not the last commit: a run that lost its lease may commit one heartbeat of its older epoch after the take-over.
    return max(turns, key=lambda turn: (turn.epoch, turn.heartbeat), default=None)


def newest_since(ledger: str, version: int, turn: LedgerFacts) -> LedgerFacts | None:
    """Return the turn that counts, for a reader that knows the ledger up to a version: two requests to a store, made at once.

    Args:
        ledger: Its location.
        version: The version that is known.
        turn: The turn that it holds, and that counts in it.
    """
    log = Log(ledger)
    known, later = log.each([version, version + 1], log.commit)
    # Deleted, or another ledger in its place: nothing is known of that one.
    if _turn_in(known) != turn:
        _, newest = newest_turn(ledger)
        return newest
    turns = [turn]
    while later:
        version += 1
        found = _turn_in(later)
        if found is not None:  # else another client's commit
            turns.append(found)
        later = log.commit(version + 1)
    return _counting(turns)


class OwnTurns:
    """The turns of a ledger for the run that commits them: known turns are not read again.

    Args:
        ledger: Location of the ledger.
    """

    def __init__(self, ledger: str) -> None:
        self._ledger = ledger
        # The version of the last turn that this run has committed, and that turn.
        self._known: tuple[Snapshot, LedgerFacts] | None = None

    def newest(self) -> LedgerFacts | None:
        """Return the turn that counts; None without a ledger."""
        if self._known is None:
            _, newest = newest_turn(self._ledger)
            return newest
        table, turn = self._known
        return newest_since(self._ledger, table.version, turn)

    def take(self, version: int, turn: LedgerFacts) -> None:
        """Commit a turn as a version; errors as `commit_turn`."""
        self._known = commit_turn(self._ledger, version, turn), turn

    def renew(self, turn_after: Callable[[LedgerFacts | None], LedgerFacts]) -> LedgerFacts:
        """Commit the turn after the newest; return it. Arguments and errors as `commit_next`."""
        turn, table = commit_next(self._ledger, turn_after, self._known)
        self._known = table, turn
        return turn


def next_epoch(pipeline: str, seen: LedgerFacts, holder: str, *, makes_way: bool) -> LedgerFacts:
    """Return the turn that takes the lease.

    Args:
        pipeline: Name of the pipeline.
        seen: The newest turn.
        holder: The process that takes it.
        makes_way: The lease is given back for a while on request.
    """
    return LedgerFacts(
        pipeline=pipeline,
        incarnation=seen.incarnation,
        epoch=seen.epoch + 1,
        holder=holder,
        heartbeat=0,
        makes_way=makes_way,
        taken_by=user_name(),
        taken_ms=time.time_ns() // 1_000_000,
        requests=seen.requests,
        paused=seen.paused,
        paused_ms=seen.paused_ms,
        looked=seen.looked,
        beginning=seen.beginning,
    )


def first_turn(pipeline: str) -> LedgerFacts:
    """Return the turn before the first, for a pipeline that no run has held."""
    return LedgerFacts(
        pipeline=pipeline,
        incarnation=uuid.uuid4().hex,
        epoch=0,
        holder=FREE,
        heartbeat=0,
    )


def commit_turn(
    ledger: str,
    version: int,
    turn: LedgerFacts,
    known: Snapshot | None = None,
) -> Snapshot:
    """Commit a turn; it has no rows.

    Args:
        ledger: Location of the ledger.
        version: The version of the commit.
        turn: The turn.
        known: A version of the ledger: only later commits are read. Default: all are read.

    Returns:
        The version that it made.

    Raises:
        VersionTakenError: another process has committed this version.
        DeltaFeatureError: another client has given the ledger a feature that Ebbtide does not write.
    """
    before = _as_of(ledger, version - 1, known)
    text = turn.model_dump_json(by_alias=True)
    info = {"operation": "LEASE", "userMetadata": text}
    made = None
    if before is not None:
        made = writer_of(ledger).commit(before, [], info)
    if made is None:
        raise VersionTakenError.of(f"Version {version} of the ledger '{ledger}' was committed by another process.")
    return made


def commit_next(
    ledger: str,
    turn_after: Callable[[LedgerFacts | None], LedgerFacts],
    known: tuple[Snapshot, LedgerFacts] | None = None,
) -> tuple[LedgerFacts, Snapshot]:
    """Commit a turn that follows the newest one; tried again if another process commits in between.

    Args:
        ledger: Location of the ledger.
        turn_after: Returns the turn to commit, given the newest one.
        known: A version of the ledger, and the turn that counts in it. The ledger is read only if another process has committed
            since, which shows by its version, or has deleted it.

    Returns:
        The turn, and the version that it made.

    Raises:
        VersionTakenError: another process was faster each time.
    """
    newest: LedgerFacts | None
    table, newest = known or (None, None)
    for number in range(TRIES):
        if table is None or number > 0:
            version, newest = newest_turn(ledger)
        else:
            version = table.version
        turn = turn_after(newest)
        try:
            return turn, commit_turn(ledger, version + 1, turn, table)
        except VersionTakenError:
            pass
        except TableMismatchError:  # the known version is gone
            if table is None or number > 0:
                raise
    raise VersionTakenError.of(
        f"The ledger '{ledger}' is written by other processes all the time.", got=f"{TRIES} tries"
    )


def change_turn(ledger: str, pipeline: str, changed: Callable[[LedgerFacts], LedgerFacts]) -> LedgerFacts:
    """Commit a changed copy of the newest turn, of the same epoch and holder, by a process that need not be the holder; return it.

    Args:
        ledger: Location of the ledger.
        pipeline: Name of the pipeline.
        changed: Returns the changed copy.
    """

    def turn_after(newest: LedgerFacts | None) -> LedgerFacts:
        turn = changed(newest or first_turn(pipeline))
        # One heartbeat more: of the turns of an epoch the greatest counts. It is no sign of life of the holder.
        counts = {"heartbeat": turn.heartbeat + 1, "changes": turn.changes + 1}
        return turn.model_copy(update=counts)

    turn, _ = commit_next(ledger, turn_after)
    return turn


def _as_of(ledger: str, version: int, known: Snapshot | None) -> Snapshot | None:
    """Return a version of a ledger, read from a known one if that is not later; None if it no longer exists."""
    if known is not None and known.version <= version:
        found: Snapshot | None = known.advanced(until=version)
    else:
        found = Snapshot.read(ledger, version)
    if found is None or found.version != version:
        return None
    return found
