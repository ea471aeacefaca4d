"""One writer per pipeline: the ledger, a Delta table whose commits are the turns of a lease.

Each commit of the ledger holds, in its `userMetadata`, one `LedgerFacts` and no rows. The greatest (epoch, heartbeat)
counts. To take the lease is to commit the next epoch under the transaction identity (`<pipeline>/lease`, epoch): of two
takers Delta lets one through, on any store, and a taker reads back whether it was the one.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ebbtide.delta import log
from ebbtide.errors import LeaseHeldError, LeaseLostError
from ebbtide.ledger.facts import FREE, LedgerFacts

NEWEST = 10
"""Commits looked at: after a take-over the loser may have added a heartbeat of its older epoch, once."""


def this_process() -> str:
    """Name this process so that a later process with the same number has another name."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid)}"


def is_gone(holder: str) -> bool:
    """Return whether a holder was a process of this host that has ended."""
    host, pid_text, started = holder.rsplit(":", 2)
    if host != socket.gethostname():
        return False
    pid = int(pid_text)
    try:
        os.kill(pid, 0)  # signals nothing, only looks for the process
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _started(pid) != started


def _started(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty where the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        # The second field, the program's name in parentheses, may itself hold blanks and parentheses; the start is the twentieth after it.
        after_name = stat.rsplit(")", 1)[1]
        return after_name.split()[19]
    except (OSError, IndexError):
        return ""


class Lease:
    """Holds a pipeline while it runs; a context manager.

    Args:
        spark: The session.
        path: The ledger table's location.
        pipeline: Name of the pipeline.
        ttl_s: Seconds for which a silent holder on another host keeps the lease.

    Raises:
        LeaseHeldError: another run holds it.
    """

    def __init__(self, spark: SparkSession, path: str, pipeline: str, ttl_s: float) -> None:
        self.spark = spark
        self.path = path
        self.pipeline = pipeline
        self.ttl_s = ttl_s
        self._me = f"{this_process()}/{uuid.uuid4().hex[:8]}"
        self._lost: str | None = None
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._beat = threading.Thread(
            target=self._keep,
            name=f"lease-{pipeline}",
            daemon=True,
        )

    def __enter__(self) -> Self:
        seen = self._read()
        if seen is None:
            incarnation = uuid.uuid4().hex
            epoch = 1
        else:
            self._wait_until_free(seen)
            incarnation = seen.incarnation
            epoch = seen.epoch + 1
        self.facts = LedgerFacts(
            pipeline=self.pipeline,
            incarnation=incarnation,
            epoch=epoch,
            holder=self._me,
            heartbeat=0,
        )
        self._take()
        self._beat.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._beat.join()
        if self._lost is None and self._is_mine():
            self._renew(holder=FREE)

    def check(self) -> None:
        """Refuse to go on once another run has taken over.

        Raises:
            LeaseLostError: it has.
        """
        if self._lost is None and not self._is_mine():
            self._lost = _process(self._newest().holder)
        if self._lost is not None:
            raise LeaseLostError.of(
                f"Another run has taken '{self.pipeline}' over.",
                got=self._lost,
                next_step="This run stopped before its next commit; nothing is lost.",
            )

    def renew_incarnation(self) -> str:
        """Mint a new incarnation, after which no older transaction mark counts."""
        self.check()
        self._renew(incarnation=uuid.uuid4().hex)
        return self.facts.incarnation

    def _read(self) -> LedgerFacts | None:
        commits = islice(log.own_commits(self.path), NEWEST)
        turns = [LedgerFacts.model_validate(facts) for _, facts in commits]
        return max(
            turns,
            key=lambda turn: (turn.epoch, turn.heartbeat),
            default=None,
        )

    def _newest(self) -> LedgerFacts:
        return self._read() or self.facts

    def _is_mine(self) -> bool:
        newest = self._newest()
        return newest.epoch == self.facts.epoch and newest.holder == self._me

    def _take(self) -> None:
        try:
            self._commit(self.facts, f"{self.pipeline}/lease", self.facts.epoch)
        except (PySparkException, Py4JJavaError) as error:
            message = str(error)
            is_conflict = "Concurrent" in message or "ProtocolChanged" in message
            if not is_conflict:
                raise
        if not self._is_mine():
            raise self._held(self._newest())

    def _renew(self, **changes: str) -> None:
        """Commit the next heartbeat of this epoch, with changes to its facts."""
        with self._lock:
            heartbeat = self.facts.heartbeat + 1
            facts = self.facts.model_copy(update={"heartbeat": heartbeat, **changes})
            self._commit(facts, f"{self.pipeline}/lease/{facts.epoch}", heartbeat)
            self.facts = facts

    def _commit(self, facts: LedgerFacts, app_id: str, number: int) -> None:
        """Commit without rows; Delta leaves out a commit that has neither rows nor a transaction's identity."""
        no_rows = self.spark.createDataFrame([], "pipeline STRING")
        writer = no_rows.write.format("delta").mode("append")
        options: dict[str, str | int] = {
            "txnAppId": app_id,
            "txnVersion": number,
            "userMetadata": facts.model_dump_json(by_alias=True),
        }
        writer.options(**options).save(self.path)

    def _wait_until_free(self, seen: LedgerFacts) -> None:
        """Refuse to take the lease from a live holder.

        A process of this host is looked up. One of another host counts as dead once its heartbeat has stood still for
        `ttl_s` on our own clock.
        """
        if seen.holder == FREE:
            return
        holder = _process(seen.holder)
        if is_gone(holder):
            return
        host, _, _ = holder.rsplit(":", 2)
        if host == socket.gethostname():
            raise self._held(seen)
        pause_s = min(1.0, self.ttl_s / 10)
        end = time.monotonic() + self.ttl_s
        while time.monotonic() < end:
            self._done.wait(pause_s)
            newest = self._read()
            if newest != seen:
                raise self._held(newest or seen)

    def _held(self, facts: LedgerFacts) -> LeaseHeldError:
        if facts.holder == FREE:
            host = "another host"
            pid = "that has ended"
        else:
            host, pid, _ = _process(facts.holder).rsplit(":", 2)
        return LeaseHeldError.of(
            f"Pipeline '{self.pipeline}' is being run by process {pid} on '{host}'.",
            allowed="one run at a time",
            next_step="Wait for it to end, or stop it, and start again.",
        )

    def _keep(self) -> None:
        """Count up while the run lives, so that others can see it."""
        while not self._done.wait(self.ttl_s / 3):
            if not self._is_mine():
                self._lost = _process(self._newest().holder)
                return
            try:
                self._renew()
            except (PySparkException, Py4JJavaError):
                continue  # the store did not answer; the next beat tries again


def _process(holder: str) -> str:
    return holder.partition("/")[0]
