"""The sessions of a gateway's clients, with their operations and pages, and the limits of all these."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from ebbtide.amounts import amount
from ebbtide.errors import (
    ConfigError,
    EbbtideError,
    GatewayBusyError,
    GatewayGoneError,
    OperationGoneError,
    SessionGoneError,
    SqlError,
)
from ebbtide.sql._gateway.clients import Client, Role
from ebbtide.sql._results import Operation, OperationStatus, Page, Session


@dataclass(frozen=True)
class Limits:
    """Limits of a gateway's clients.

    Args:
        sessions: Maximum number of open sessions, of all clients together.
        client_sessions: Maximum number of open sessions of one client, with any tokens.
        operations: Maximum number of a session's operations that run or are not closed yet.
        statement_bytes: Maximum size of a statement, as UTF-8.
        page_rows: Maximum number of rows in a page; a longer page of the session is cut.
        wait_s: Maximum wait of a request for a result or a page.
        idle_timeout_s: Time after which a session without a request or a heartbeat is closed.

    Raises:
        ConfigError: a limit is not above 0.
    """

    sessions: int = 20
    client_sessions: int = 10
    operations: int = 10
    statement_bytes: int = 256 * 1024
    page_rows: int = 1000
    wait_s: float = 20
    idle_timeout_s: float = 600

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise ConfigError.of(
                    f"The limit '{limit.name}' of the gateway is not usable.",
                    got=value,
                    allowed="above 0",
                )


KEPT = 2
"""Number of pages that can be repeated, by the protocol."""


class Pages:
    """The pages of an operation, cut where they are too long. Tokens are their numbers from 0. For one caller at a time.

    Args:
        operation: Operation with the rows.
        most_rows: Maximum number of rows in a page.
    """

    def __init__(self, operation: Operation, most_rows: int) -> None:
        self._operation = operation
        self._most_rows = most_rows
        self._handed_out: dict[int, Page] = {}
        self._next: int | None = 0
        self._source_token = 0
        self._source: Page | None = None
        self._n_cut = 0

    def page(self, token: int, timeout_s: float) -> Page | None:
        """Return a page; None if the time is up.

        Raises:
            SqlError: the page is neither the next one nor one of the last two.
            EbbtideError: see `Operation.page`.
        """
        if token in self._handed_out:
            return self._handed_out[token]
        if token != self._next:
            known = [*self._handed_out, *([] if self._next is None else [self._next])]
            raise SqlError.of(
                "This page is not available.",
                got=token,
                allowed=" or ".join(map(str, known)),
                next_step="Ask for the page that 'next' of the last one names.",
            )
        if self._source is None:
            self._source = self._operation.page(self._source_token, timeout_s)
        if self._source is None:
            return None
        page = self._cut(token, self._source)
        self._next = page.next
        self._handed_out[token] = page
        self._handed_out.pop(token - KEPT, None)
        return page

    def _cut(self, token: int, source: Page) -> Page:
        """Cut the next rows off the session's page; its position and notice belong to the last of them."""
        end = self._n_cut + self._most_rows
        rows = source.rows[self._n_cut : end]
        if end < len(source.rows):
            self._n_cut = end
            return Page(rows, next=token + 1)
        self._n_cut = 0
        self._source = None
        self._source_token = source.next or 0
        following = None if source.next is None else token + 1
        return replace(source, rows=rows, next=following)


class LocalOperation(Operation, Protocol):
    """An operation of this process."""

    def when_over(self, call: Callable[[], None]) -> None:
        """Register a function to be called when the operation ends; calls it now if it has ended."""


class LocalSession(Session, Protocol):
    """A session of this process."""

    def execute(self, statement: str) -> LocalOperation:
        """Begin to execute one statement."""

    def drop_old_results(self) -> None:
        """Drop the results that were not read for the session's maximum age."""


OpenSession = Callable[[Mapping[str, str], Client], LocalSession]
"""Opens a session with settings, for a client."""
ID_BYTES = 16
"""Random bytes of a session's id: it cannot be guessed."""
SHOWN = 8
"""Characters of a session's id that other clients see."""
Clock = Callable[[], float]


@dataclass(frozen=True)
class HostedOperation:
    """An operation of a client.

    Args:
        id: Id of the operation for the client.
        operation: Operation of the session.
        pages: Pages of its rows.
        turn: Held by the request that waits for the operation, so that one thread waits at most.
    """

    id: str
    operation: LocalOperation
    pages: Pages
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def outcome(self) -> str:
        """Outcome for the audit: `done`, `cancelled`, or `failed: CLASS`."""
        status = self.operation.status
        if status is OperationStatus.CANCELED:
            return "cancelled"
        if status is not OperationStatus.FAILED:
            return "done"
        try:
            self.operation.result(0)
        except Exception as error:  # noqa: BLE001 - the audit names its class
            return f"failed: {type(error).__name__}"
        return "failed"


class HostedSession:
    """A client's session.

    Args:
        session: Session of this process.
        client: Client of the session.
        limits: Limits of the session.
        clock: Clock in seconds.
    """

    def __init__(
        self,
        session: LocalSession,
        client: Client,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.session = session
        self.client = client
        self.operations: dict[str, HostedOperation] = {}
        self._limits = limits
        self._clock = clock
        self._places = threading.BoundedSemaphore(limits.operations)
        self._lock = threading.Lock()
        self._n_requests = 0
        self._used_at = clock()

    @property
    def shown_id(self) -> str:
        """Beginning of the id, which other clients may see."""
        return self.id[:SHOWN]

    @property
    def idle_s(self) -> float:
        """Time since the last use; 0 while a request is being answered."""
        with self._lock:
            return 0 if self._n_requests else self._clock() - self._used_at

    @contextmanager
    def used(self) -> Iterator[None]:
        """Mark the session as used while a request is answered."""
        with self._lock:
            self._n_requests += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_requests -= 1
                self._used_at = self._clock()

    def execute(self, statement: str, operation_id: str) -> HostedOperation:
        """Begin to execute a statement.

        Args:
            statement: Its text.
            operation_id: The client's id of the operation.

        Raises:
            GatewayBusyError: the session has as many operations as it may have.
        """
        most = self._limits.operations
        next_step = "Close finished operations, then execute again."
        with _place(self._places, "The session", "operation", f"{most} that are not closed", most, next_step):
            operation = self.session.execute(statement)
        hosted = HostedOperation(operation_id, operation, Pages(operation, self._limits.page_rows))
        self.operations[hosted.id] = hosted
        return hosted

    def operation(self, operation_id: str) -> HostedOperation:
        """Return an operation.

        Raises:
            OperationGoneError: there is none of this id.
        """
        found = self.operations.get(operation_id)
        if found is None:
            raise OperationGoneError.of(
                "The session has no such operation.",
                got=operation_id,
                allowed="the id of one that is not closed",
                next_step="Execute the statement again.",
            )
        return found

    def close_operation(self, operation_id: str) -> None:
        """Forget an operation; cancels it if it runs.

        Raises:
            OperationGoneError: there is none of this id.
        """
        hosted = self.operation(operation_id)
        if self.operations.pop(operation_id, None) is None:
            return  # another request has closed it
        try:
            hosted.operation.close()
        finally:
            self._places.release()


class Sessions:
    """All sessions of a gateway.

    Args:
        open_session: Opens a session.
        limits: Limits of the clients.
        say: Takes a line for each session that begins or ends.
        clock: Clock in seconds.
    """

    def __init__(
        self,
        open_session: OpenSession,
        limits: Limits,
        say: Callable[[str], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._open_session = open_session
        self._limits = limits
        self._say = say
        self._clock = clock
        self._places = threading.BoundedSemaphore(limits.sessions)
        self._places_of: dict[str, threading.BoundedSemaphore] = {}
        self._hosted: dict[str, HostedSession] = {}
        self._lock = threading.Lock()
        self._saying = threading.Lock()
        self._is_ending = False

    def __len__(self) -> int:
        return len(self._hosted)

    def open(self, settings: Mapping[str, str], client: Client) -> HostedSession:
        """Open a session for a client.

        Raises:
            GatewayBusyError: the client, or all clients, have as many sessions as allowed.
            GatewayGoneError: the gateway is ending.
        """
        self.refuse_if_ending()
        most, most_of_client = self._limits.sessions, self._limits.client_sessions
        next_step = "Close one, wait until an idle one ends, or start the gateway with a greater --max-"
        of_client = self._client_places(client)
        got = amount(most_of_client, "session")
        with (
            _place(
                of_client, f"The client '{client.name}'", "session", got, most_of_client, f"{next_step}client-sessions."
            ),
            _place(self._places, "The gateway", "session", amount(most, "session"), most, f"{next_step}sessions."),
        ):
            session = self._open_session(settings, client)
        hosted = HostedSession(session, client, self._limits, self._clock)
        with self._lock:
            self._hosted[hosted.id] = hosted
        self._report(hosted, "opened")
        if self._is_ending:  # the end began while this session was being opened
            self.close(hosted)
            self.refuse_if_ending()
        return hosted

    def get(self, session_id: str, client: Client) -> HostedSession:
        """Return a session of a client.

        Raises:
            SessionGoneError: the client has none of this id; a session of another client is not disclosed.
        """
        hosted = self._hosted.get(session_id)
        if hosted is None or hosted.client.name != client.name:
            raise SessionGoneError.of(
                "There is no such session: it was closed, it was idle for too long, or the gateway was restarted.",
                allowed=f"a session that was used within the last {self._limits.idle_timeout_s:g} s",
                next_step="Open a new one. Jobs of the old one continue: SHOW JOBS lists them.",
            )
        return hosted

    def seen_by(self, client: Client) -> list[HostedSession]:
        """Return a client's sessions, the oldest first; an owner sees those of all clients."""
        sees_all = client.role is Role.OWNER
        return [hosted for hosted in list(self._hosted.values()) if sees_all or hosted.client.name == client.name]

    def close(self, hosted: HostedSession, why: str = "closed") -> None:
        """End a session: its queries are cancelled, its jobs continue. Does nothing if it has ended."""
        with self._lock:
            is_first = self._hosted.pop(hosted.id, None) is not None
        if not is_first:
            return
        try:
            for operation_id in list(hosted.operations):
                hosted.close_operation(operation_id)
        finally:
            hosted.session.close()
            self._places.release()
            self._client_places(hosted.client).release()
            self._report(hosted, why)

    def close_idle(self) -> None:
        """End the sessions that were idle for too long; drop the old results of those that stay."""
        timeout_s = self._limits.idle_timeout_s
        for hosted in list(self._hosted.values()):
            if hosted.idle_s >= timeout_s:
                self._close_all_the_same(hosted, f"closed: idle for {timeout_s:g} s")
            else:
                hosted.session.drop_old_results()

    def end(self, timeout_s: float) -> None:
        """Refuse new sessions and statements from now on; end all sessions, each on its own thread.

        Args:
            timeout_s: How long to wait for them; a session that hangs ends with the process.
        """
        self._is_ending = True
        ends_at = time.monotonic() + timeout_s
        why = "closed: the gateway ends"
        threads = [
            threading.Thread(target=self._close_all_the_same, args=(hosted, why), daemon=True)
            for hosted in list(self._hosted.values())
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            left_s = ends_at - time.monotonic()
            thread.join(max(left_s, 0))

    def refuse_if_ending(self) -> None:
        """Refuse a request that begins something.

        Raises:
            GatewayGoneError: the gateway is ending.
        """
        if self._is_ending:
            raise GatewayGoneError.of("The gateway is ending.", next_step="Try again after its restart.")

    def _client_places(self, client: Client) -> threading.BoundedSemaphore:
        """Return the places for the sessions of a client's name."""
        with self._lock:
            return self._places_of.setdefault(client.name, threading.BoundedSemaphore(self._limits.client_sessions))

    def _close_all_the_same(self, hosted: HostedSession, why: str) -> None:
        """End a session; an error is reported, not raised."""
        try:
            self.close(hosted, why)
        except EbbtideError as error:
            self._report(hosted, f"did not end well: {error}")

    def _report(self, hosted: HostedSession, what: str) -> None:
        how_many = f"{len(self)} of {self._limits.sessions}"
        line = f"Session {hosted.shown_id} {what} ({how_many})."
        with self._saying:  # two threads would mix their lines
            self._say(line)


@contextmanager
def _place(places: threading.Semaphore, owner: str, kind: str, got: str, most: int, next_step: str) -> Iterator[None]:
    """Take a place; give it back if the block fails.

    Args:
        places: Free places.
        owner: Owner of the places, for the error.
        kind: Kind of the object that takes a place.
        got: Number of objects, in words.
        most: Maximum number of objects.
        next_step: Advice for the client.

    Raises:
        GatewayBusyError: no place is free.
    """
    if not places.acquire(blocking=False):
        what = f"{owner} has no place for one more {kind}."
        raise GatewayBusyError.of(what, got=got, allowed=most, next_step=next_step)
    try:
        yield
    except BaseException:
        places.release()
        raise
