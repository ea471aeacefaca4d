"""The requests of one step to an object store: puts that wait for each other only at the next commit, and bytes that are needed again.

A step writes files that no reader knows before a commit names them. Within `Together.step` a separate thread puts each, and
a conditional put, which may be the commit, first waits for all of them. Data that was put or read stays in memory until
the end, so the step does not request it again. Outside of it, and on other file systems, a file exists when its writer is closed.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, RLock
from typing import TypeVar

AT_ONCE = 8
"""Requests that are made at the same time."""
HELD_BYTES = 16 << 20
"""Bytes that one step holds; a file beyond that is put before its writer is closed, and read again."""
KEPT_BYTES = 32 << 20
"""Bytes of files that never change which are kept of one bucket, beyond a step."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NEVER_CHANGES = re.compile(rf"(?:^|/)(?:part-|notes-|cdc-|deletion_vector_)[^/]*{_UUID}[^/]*\.(?:parquet|bin)$")
_SCRATCH = re.compile(r"(?:^|/)[0-9a-f]{32}\.arrow$")
Answer = TypeVar("Answer")


def never_changes(key: str) -> bool:
    """Return whether a file is a table's file that is written once, with a unique name."""
    found = _NEVER_CHANGES.search(key)
    return found is not None


def is_scratch(key: str) -> bool:
    """Return whether a file passes rows from one part of a step to the next: only the process that makes the step reads it."""
    found = _SCRATCH.search(key)
    return found is not None


class Memory:
    """The bytes of files of one bucket: recently used immutable files, and the files of a step.

    Args:
        root: URI of the bucket.
        most_bytes: Bytes that it keeps beyond a step.
    """

    def __init__(self, root: str, most_bytes: int = KEPT_BYTES) -> None:
        self._root = root
        self._most_bytes = most_bytes
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._n_bytes = 0
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """Return a file's bytes; None if they are not kept."""
        with self._lock:
            if key not in self._files:
                return None
            self._files.move_to_end(key)
            return self._files[key]

    def known(self, key: str) -> bytes | None:
        """Return a file's bytes, also of one that only the step under way holds; None if the store has to be asked."""
        held = self.held(key)
        if held is not None:
            return held
        return self.get(key)

    def held(self, key: str) -> bytes | None:
        """Return the bytes of a file that the step under way holds; None if it does not."""
        step = Together.current()
        if step is None:
            return None
        location = f"{self._root}/{key}"
        return step.held(location)

    def remember(self, key: str, data: bytes) -> None:
        """Keep a whole file that was read, if it never changes; another one is held until the end of the step, which has read just this."""
        step = Together.current()
        if never_changes(key):
            self.keep(key, data)
        elif step is not None:
            location = f"{self._root}/{key}"
            step.hold(location, data)

    def keep(self, key: str, data: bytes) -> None:
        """Keep a file's bytes, in place of those that were not used for longest."""
        self.forget(key)
        with self._lock:
            self._files[key] = data
            self._n_bytes += len(data)
            while self._n_bytes > self._most_bytes:
                _, oldest = self._files.popitem(last=False)
                self._n_bytes -= len(oldest)

    def forget(self, key: str) -> None:
        """Forget a file that is deleted."""
        with self._lock:
            data = self._files.pop(key, b"")
            self._n_bytes -= len(data)


class Together:
    """The puts under way and the held bytes of one step."""

    @staticmethod
    def current() -> Together | None:
        """Return those of the step under way in this thread; None outside of one."""
        return _current.get()

    @classmethod
    @contextmanager
    def step(cls) -> Iterator[None]:
        """Make the requests inside those of one step, which this process alone makes: no other one reads its scratch files."""
        step = cls()
        token = _current.set(step)
        try:
            yield
            step.settle()
        finally:
            _current.reset(token)
            step.end()

    @classmethod
    def before_commit(cls, call: Callable[[], None]) -> None:
        """Make a call, within a step parallel to its puts: its errors prevent the next conditional put, which is the commit."""
        step = cls.current()
        if step is None:
            call()
        else:
            step.begin(call)

    def __init__(self) -> None:
        self.written: set[str] = set()
        """Locations of the files that were put, not only held."""
        self._held: dict[str, bytes] = {}
        self._n_bytes = 0
        self._under_way: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._lock = RLock()
        """Held for moments: several threads do the work of a step."""

    def held(self, location: str) -> bytes | None:
        """Return the bytes of a file; None if they are not held."""
        return self._held.get(location)

    def hold(self, location: str, data: bytes) -> bool:
        """Hold a file's bytes; return whether there is room."""
        with self._lock:
            self.forget(location)
            n_bytes = self._n_bytes + len(data)
            if n_bytes > HELD_BYTES:
                return False
            self._held[location] = data
            self._n_bytes = n_bytes
            return True

    def forget(self, location: str) -> None:
        """Hold a file no more that is deleted, or written again."""
        with self._lock:
            forgotten = self._held.pop(location, b"")
            self._n_bytes -= len(forgotten)

    def put(self, location: str, data: bytes, put: Callable[[], None]) -> bool:
        """Put a file while the step continues.

        Args:
            location: Its location.
            data: Its content.
            put: Puts it.

        Returns:
            Whether this is done; False: the caller has to put it.
        """
        scratch = is_scratch(location)
        # Under another name an older file may be read meanwhile.
        has_own_name = scratch or never_changes(location)
        if not has_own_name or not self.hold(location, data):
            return False
        if not scratch:
            self.written.add(location)
            self.begin(put)
        return True

    def begin(self, call: Callable[[], None]) -> None:
        """Make a call in another thread; its errors are raised before the next commit."""
        future = self._submit(call)
        self._under_way.append(future)

    @staticmethod
    def at_once(*calls: Callable[[], Answer]) -> list[Answer]:
        """Return the answers of independent requests, made at the same time."""
        n_threads = min(AT_ONCE, len(calls))
        with ThreadPoolExecutor(n_threads, thread_name_prefix="store") as pool:
            answers = pool.map(lambda call: call(), calls)
            return list(answers)

    def _submit(self, call: Callable[[], Answer]) -> Future[Answer]:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store")
            return self._pool.submit(call)

    def wait(self) -> None:
        """Wait for all calls under way."""
        wait(self._under_way)

    def settle(self) -> None:
        """Wait for all calls under way, and raise the first error among them."""
        self.wait()
        ended = self._under_way
        self._under_way = []
        for future in ended:
            future.result()

    def end(self) -> None:
        """Wait for pending puts of a failed step, so that none happens later."""
        if self._pool is not None:
            self._pool.shutdown()


_current: ContextVar[Together | None] = ContextVar("together", default=None)
