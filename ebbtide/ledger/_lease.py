"""One writer per pipeline: the ledger, a Delta table whose commits are the turns of a lease.

Each commit of the ledger holds, in its `userMetadata`, one `LedgerFacts` and no rows. The greatest (epoch, heartbeat) counts. A run
takes the lease by committing the next epoch as the version after the newest it has read. A version is put only if absent, so that of
two takers one succeeds.

The fence: `check` reads the newest turn before each commit of a step, so that a run that lost its lease stops there. A take-over
between the check and the commit is caught by the transaction marks: if two runs make the same step, one commits it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self

from ebbtide.errors import LeaseHeldError, LeaseLostError, StoreUnavailableError, TableMismatchError, VersionTakenError
from ebbtide.ledger._facts import FREE, Beginning, LedgerFacts, Looked
from ebbtide.ledger._requests import POLL_S, Requests
from ebbtide.ledger._settling import settle
from ebbtide.ledger._turns import TRIES, OwnTurns, create_ledger, first_turn, newest_turn, next_epoch
from ebbtide.ledger._writers import writer_of
from ebbtide.processes import Process
from ebbtide.storage import Location

ASKED_EVERY_S = 5.0
"""Seconds from one look of an idle run for requests to the next, in an object store."""
TURNS_KEPT = 1000
"""Newest commits of the ledger that are kept; only the last few are read."""
TRIM_EVERY = 100
"""Heartbeats between two trims of the ledger's log."""
BEAT_ENDS_WITHIN_S = 240
"""Seconds that a run waits in its end for the heartbeat under way: longer than a store is retried."""
SAYS_AFTER_S = 10
"""Seconds until a message names the process that is waited for."""
_log = logging.getLogger(__name__)
_ended: set[str] = set()
"""Holders of this process that have ended without giving their lease back."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a pipeline's lease.

    Args:
        host: Its host.
        process: Its process number there.
        user: Its user; None if an older release took the lease.
        since_ms: Time at which it took the lease, epoch ms of its clock; None as for `user`.
    """

    host: str
    process: str
    user: str | None
    since_ms: int | None

    @classmethod
    def of(cls, turn: LedgerFacts) -> Self | None:
        """Return the holder of the lease; None if it is free, or its holder is known to have ended.

        Args:
            turn: The newest turn of the ledger.
        """
        if has_ended(turn.holder):
            return None
        process = _process(turn.holder)
        user = turn.taken_by or None
        return cls(process.host, process.pid, user, turn.taken_ms)


class Lease:
    """Holds a pipeline while it runs; a context manager.

    Args:
        path: The ledger table's location.
        pipeline: Name of the pipeline.
        ttl_s: Seconds for which a silent holder on another host keeps the lease.
        makes_way: This run gives the lease back for a while on request.
        asks: Request the lease from a run that makes way, and wait for the end of its step.

    Attributes:
        taken_by: The process that is known to have taken it over, by a heartbeat or a check; None: none is.
        before: The turn that it has taken over.

    Raises:
        LeaseHeldError: another run holds it.
    """

    def __init__(
        self,
        path: str,
        pipeline: str,
        ttl_s: float,
        *,
        makes_way: bool = False,
        asks: bool = False,
    ) -> None:
        self.path = path
        self.pipeline = pipeline
        self.ttl_s = ttl_s
        self._me = f"{Process.this()}/{uuid.uuid4().hex[:8]}"
        self._makes_way = makes_way
        self._asks = asks
        self._requests = Requests(path, pipeline)
        self._looks_s = 0.0
        self._is_over = False
        self.facts = self.seen = self.before = first_turn(pipeline)
        self._request = self._me.replace("/", "-")
        self.taken_by: str | None = None
        self.turns = OwnTurns(path)
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._beat = threading.Thread(
            target=self._keep,
            name=f"lease-{pipeline}",
            daemon=True,
        )

    def __enter__(self) -> Self:
        try:
            return self._enter()
        except BaseException:
            self._withdraw()
            raise

    def _enter(self) -> Self:
        create_ledger(self.path, self.pipeline)
        self._ask()
        version, newest = newest_turn(self.path)
        seen = newest or first_turn(self.pipeline)
        self._wait_until_free(seen)
        try:
            self._take(version, seen)
        except StoreUnavailableError:
            # The store may have taken the turn and lost the answer: a later run of this process then knows that it is free.
            _ended.add(self._me)
            raise
        self._beat.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._is_over = True
        if isinstance(error, StoreUnavailableError):
            _ended.add(self._me)
            return  # the store was retried for long enough: another call would wait as long again
        self._beat.join(BEAT_ENDS_WITHIN_S)
        if self._beat.is_alive():
            _ended.add(self._me)
            _log.warning(
                "A heartbeat of '%s' has not ended within %d s: its storage does not answer. The lease ends by itself.",
                self.pipeline,
                BEAT_ENDS_WITHIN_S,
            )
            return
        try:
            if self.taken_by is None and self._is_mine():
                if self.facts.epoch % TRIM_EVERY == 0:
                    self._trim()  # many short runs commit as many turns as a long one
                self._renew(holder=FREE)
            else:
                self._withdraw()
        except Exception as failure:
            _ended.add(self._me)
            if error is None:
                raise
            # The error that ended the run is reported, not its consequence.
            _log.warning("The lease of '%s' was not given back: %s", self.pipeline, failure)

    def check(self) -> None:
        """Refuse to continue after another run has taken over.

        Raises:
            LeaseLostError: another run has the lease.
        """
        if self.taken_by is None and not self._is_mine():
            self.taken_by = _process(self._newest().holder)
        if self.taken_by is not None:
            raise LeaseLostError.of(
                f"Another run has taken '{self.pipeline}' over.",
                got=self.taken_by,
                next_step="This run stopped before its next commit; nothing is lost.",
            )

    def make_way(self, *, looks: bool = False) -> None:
        """Refuse to begin a step while another process asks for the lease, if this run makes way.

        Args:
            looks: Read the newest turn, of a store now and then; else the one that `check` has read counts.

        Raises:
            LeaseAskedError: another process has asked.
            LeaseLostError: another run has taken the lease.
        """
        is_due = looks and self._makes_way and time.monotonic() >= self._looks_s
        if self.taken_by is not None or is_due:
            self.check()
        if self._makes_way:
            self.seen.refuse_asked()

    def settle(self, *, is_fresh: bool = False) -> None:
        """Put the commits of earlier processes to all tables on disk, before steps rely on them; or note that nothing is synced.

        Args:
            is_fresh: All tables are made again.

        Raises:
            DamagedFileError: tables were written without syncs, in another boot.
            ConfigError: this system does not identify its boots, and syncing is off.
        """
        home, _, _ = self.path.rpartition("/")
        settle(home, is_fresh=is_fresh)

    def renew_incarnation(self) -> str:
        """Make a new incarnation, for a rewind, a refresh or a swap: versions noted under an older one are of other tables.

        Where the source was read first is forgotten with the older one.
        """
        self.check()
        self._renew(incarnation=uuid.uuid4().hex, beginning=None)
        return self.facts.incarnation

    def note_beginning(self, beginning: Beginning) -> None:
        """Note where the source is read first, before a record is read: until the first batch is decided, no step's facts say it.

        Raises:
            LeaseLostError: another run has taken over.
        """
        self._renew(beginning=beginning)

    def note(self, looked: Mapping[str, Looked]) -> None:
        """Note the result of a scan for foreign writes; the next commit of the lease stores it, and each later turn repeats it.

        Args:
            looked: The result for each table.
        """
        with self._lock:
            self.facts = self.facts.model_copy(update={"looked": looked})

    def _newest(self) -> LedgerFacts:
        """Return the newest turn; this run has committed at least one.

        Raises:
            TableMismatchError: the ledger was deleted meanwhile.
        """
        return self.turns.newest() or self._refuse_deleted()

    def _refuse_deleted(self) -> NoReturn:
        raise TableMismatchError.of(
            f"The ledger of '{self.pipeline}' was deleted during this run.",
            got=f"no turn at '{self.path}'",
            allowed=f"a turn of epoch {self.facts.epoch} or a later one",
            next_step="This run stopped before its next commit; nothing else is lost. Start it again: it names the way out.",
        )

    def _is_mine(self) -> bool:
        self.seen = self._newest()
        if Location(self.path).is_in_object_store:
            self._looks_s = time.monotonic() + ASKED_EVERY_S
        return self.seen.epoch == self.facts.epoch and self.seen.holder == self._me

    def _ask(self) -> None:
        """Request the lease from a live holder that makes way, and wait until it is free."""
        # No limit while heartbeats come: the step under way may take long.
        if not self._asks:
            return
        _, seen = newest_turn(self.path)
        began = time.monotonic()
        end = began + self.ttl_s
        has_said = False
        while seen is not None and seen.makes_way and not has_ended(seen.holder):
            if not has_said and time.monotonic() > began + SAYS_AFTER_S:
                has_said = True
                _log.warning("Waiting for the run of '%s' by %s to end the step under way.", self.pipeline, seen.holder)
            if self._request not in seen.requests:
                self._requests.leave(self._request)
            if self._done.wait(POLL_S) or time.monotonic() > end:
                return  # no heartbeat: the holder is treated as one that was not asked
            _, newest = newest_turn(self.path)
            if newest is None or newest.sign_of_life != seen.sign_of_life:
                end = time.monotonic() + self.ttl_s
            seen = newest

    def _withdraw(self) -> None:
        if self._asks:
            self._requests.withdraw(self._request)

    def _take(self, version: int, seen: LedgerFacts) -> None:
        """Commit the first turn of an epoch as the version after the newest that was read.

        Args:
            version: The newest version that was read.
            seen: The turn that counts in it.
        """
        # Put if absent. A version that has gone to a pause or to a request is tried again behind that. Not if it has gone to another
        # taker, or to a heartbeat of a holder that was believed dead: then another run lives.
        for _ in range(TRIES):
            self.facts = self.seen = next_epoch(self.pipeline, seen, self._me, makes_way=self._makes_way)
            try:
                self.turns.take(version + 1, self.facts)
            except VersionTakenError as error:
                version, newest = newest_turn(self.path)
                if newest is None or newest.sign_of_life != seen.sign_of_life:
                    raise _held(self.pipeline, newest or seen) from error
                seen = newest
            else:
                self.before = seen
                return
        raise _held(self.pipeline, seen)

    def _renew(self, **changes: str | Beginning | None) -> None:
        """Commit the next heartbeat of this epoch, with changes to its facts.

        Raises:
            LeaseLostError: another run has taken over.
        """
        with self._lock:
            facts = self.facts.model_copy(update=changes)
            self.facts = self._committed_next(facts)

    def _committed_next(self, facts: LedgerFacts) -> LedgerFacts:
        """Commit a turn of this epoch as the next version, unless another epoch has begun; return it."""

        def turn_after(newest: LedgerFacts | None) -> LedgerFacts:
            if newest is None:
                self._refuse_deleted()
            if newest.epoch != facts.epoch:
                self.taken_by = _process(newest.holder)
                self.check()
            # Pauses and requests are committed by processes without the lease: the holder repeats those of the newest turn.
            left = [name for name in newest.requests if name != self._request]
            carried_on = {
                "heartbeat": max(newest.heartbeat, facts.heartbeat) + 1,
                "changes": newest.changes,
                "requests": tuple(left) if self._is_over else newest.requests,
                "paused": newest.paused,
                "paused_ms": newest.paused_ms,
            }
            return facts.model_copy(update=carried_on)

        return self.turns.renew(turn_after)

    def _wait_until_free(self, seen: LedgerFacts) -> None:
        """Refuse to take the lease from a live holder.

        A process of this machine is looked up. One of another machine counts as dead after `ttl_s` without a heartbeat.
        """
        if has_ended(seen.holder):
            return
        holder = _process(seen.holder)
        if holder.is_here:
            raise _held(self.pipeline, seen)
        # Only the count is compared, and only this process's monotonic clock is read: clocks of two machines may differ.
        pause_s = min(1.0, self.ttl_s / 10)
        end = time.monotonic() + self.ttl_s
        while time.monotonic() < end:
            self._done.wait(pause_s)
            _, newest = newest_turn(self.path)
            if newest is not None and newest.sign_of_life != seen.sign_of_life:
                raise _held(self.pipeline, newest)

    def _keep(self) -> None:
        """Commit heartbeats while the run lives. A failure is logged, and the next heartbeat comes sooner."""
        # Three per `ttl_s`: one may be lost before another machine believes the run dead.
        beat_s = self.ttl_s / 3
        pause_s = beat_s
        n_beats = 0
        while not self._done.wait(pause_s):
            try:
                self._renew()
                pause_s = beat_s
                n_beats += 1
                if n_beats % TRIM_EVERY == 0:
                    self._trim()  # a run of weeks commits a hundred thousand turns
            except LeaseLostError:
                return
            except Exception as error:  # noqa: BLE001 - a failed heartbeat does not mean that the lease is lost
                pause_s = beat_s / 4
                _log.warning(
                    "A heartbeat of '%s' failed, the next follows in %.1f s: %s", self.pipeline, pause_s, error
                )

    def _trim(self) -> None:
        """Delete all turns but the newest ones; a failure is logged."""
        try:
            writer_of(self.path).trim_log(self.path, commits_kept=TURNS_KEPT)
        except Exception as error:  # noqa: BLE001 - the lease is as good with many turns
            _log.warning("Old turns of '%s' were not deleted: %s", self.pipeline, error)


def _held(pipeline: str, turn: LedgerFacts) -> LeaseHeldError:
    """Return the error of a lease that another run holds.

    Args:
        pipeline: Name of the pipeline.
        turn: The newest turn of its ledger.
    """
    if turn.is_free:
        host = "another host"
        pid = "that has ended"
    else:
        process = _process(turn.holder)
        host = process.host
        pid = process.pid
    return LeaseHeldError.of(
        f"Pipeline '{pipeline}' is being run by process {pid} on '{host}'.",
        allowed="one run at a time",
        next_step="Wait for it to end, or stop it, and start again.",
    )


def has_ended(holder: str) -> bool:
    """Return whether the lease is free, as far as this process can know."""
    return holder == FREE or holder in _ended or _process(holder).is_gone


def _process(holder: str) -> Process:
    name, _, _ = holder.partition("/")
    return Process(name)
