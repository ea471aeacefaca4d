"""The calls to a bucket: read, list, put, put if absent, delete. Each is retried while the store's fault is transient."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import IO, Any, TypedDict

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from ebbtide.errors import ConfigError, StoreUnsafeError
from ebbtide.redaction import hide
from ebbtide.storage._faults import Answer, ConflictError, is_empty, refused, retried
from ebbtide.storage._together import Memory, Together, never_changes

ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "s3a": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "abfs": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "abfss": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Environment variables that name an endpoint, by scheme; the first that is set counts."""
SETTINGS_OF = ("AWS_", "AZURE_", "GOOGLE_")
"""Prefixes of the environment variables with a store's settings."""
SECRETS = ("KEY", "SECRET", "TOKEN", "PASSWORD")
"""Words in the names of those that have a credential."""
QUICK_RETRIES = {"max_retries": 3, "retry_timeout": timedelta(seconds=5)}
"""Retries of the library itself, within one call, which are not logged."""
LISTED_AT_ONCE = 1000
PROBE = ".put_if_absent"
"""Name of the empty file that tests whether a store puts a file only if it is absent."""


class Found(TypedDict):
    """The metadata of a file."""

    path: str
    size: int
    last_modified: datetime


class Listed(TypedDict):
    """The direct content of a folder."""

    objects: Sequence[Found]
    common_prefixes: Sequence[str]


def parted(location: str) -> tuple[str, str]:
    """Return the bucket and the key of a location.

    Example:
        >>> parted("s3://tables/shop/sink"), parted("s3a://tables")
        (('s3://tables', 'shop/sink'), ('s3a://tables', ''))
    """
    scheme, _, place = location.partition("://")
    name, _, path = place.partition("/")
    root = f"{scheme}://{name}"
    key = path.strip("/")
    return root, key


def bucket_of(location: str) -> Bucket:
    """Return the bucket of a location; one client for each bucket and endpoint."""
    root, _ = parted(location)
    endpoint = _endpoint(root)
    return _bucket(root, endpoint)


@cache
def _bucket(root: str, endpoint: str | None) -> Bucket:
    return Bucket(root, endpoint)


def client_options(location: str) -> dict[str, str]:
    """Return the options that a client needs in addition to the environment: plain HTTP only for an endpoint that names it."""
    endpoint = _endpoint(location) or ""
    is_plain = endpoint.startswith("http://")
    if not is_plain:
        return {}
    return {"allow_http": "true"}


def _endpoint(location: str) -> str | None:
    """Return the endpoint in the environment; None without one."""
    scheme, _, _ = location.partition("://")
    for name in ENDPOINTS[scheme]:
        endpoint = os.environ.get(name)
        if endpoint:
            return endpoint
    return None


def _hide_secrets() -> None:
    """Register the credentials in the environment, so that no message shows them."""
    for name, value in os.environ.items():
        is_setting = name.startswith(SETTINGS_OF)
        is_file = name.endswith("_FILE")
        is_secret = any(word in name for word in SECRETS)
        if is_setting and is_secret and not is_file:
            hide(value)


class Bucket:
    """A bucket or container of an object store.

    Args:
        root: Its URI, without a key.
        endpoint: The endpoint in the environment; None: the provider's.

    Raises:
        ConfigError: the environment's settings are not usable.
    """

    def __init__(self, root: str, endpoint: str | None) -> None:
        self.root = root
        self.endpoint = endpoint
        self.memory = Memory(root)
        _hide_secrets()
        try:
            options = client_options(root)
            self._store: Any = from_url(root, client_options=options, retry_config=QUICK_RETRIES)  # type: ignore[call-overload]
        except (BaseError, ValueError) as error:
            raise _unusable(root, error) from None

    def uri(self, key: str) -> str:
        """Return the location of a key."""
        return f"{self.root}/{key}"

    def found(self, key: str) -> Found | None:
        """Return the metadata of a file; None if it is absent."""

        def call() -> Found | None:
            try:
                found: Found = self._store.head(key)
            except FileNotFoundError:
                return None
            return found

        return retried(self.uri(key), call)

    def opened(self, key: str, most_bytes: int) -> tuple[bytes, int]:
        """Return the first bytes of a file, and its size, by one request; none if it is in memory.

        Args:
            most_bytes: How many.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        known = self.memory.known(key)
        if known is not None:
            return known, len(known)

        def call() -> tuple[bytes, int]:
            try:
                answer = self._store.get(key, options={"range": (0, most_bytes)})
            except BaseError as error:
                if is_empty(error):
                    return b"", 0
                raise
            return bytes(answer.bytes()), answer.meta["size"]

        data, size = retried(self.uri(key), call)
        if len(data) == size:
            self.memory.remember(key, data)
        return data, size

    def read(self, key: str) -> bytes | None:
        """Return a file's bytes; None if it is absent."""
        held = self.memory.held(key)
        if held is not None:
            return held

        def call() -> bytes | None:
            try:
                answer = self._store.get(key)
            except FileNotFoundError:
                return None
            return bytes(answer.bytes())

        return retried(self.uri(key), call)

    def read_range(
        self,
        key: str,
        start: int,
        length: int,
    ) -> bytes:
        """Return a range of a file's bytes, shorter at its end.

        Raises:
            FileNotFoundError: the file does not exist.
        """

        def call() -> bytes:
            data = self._store.get_range(key, start=start, length=length)
            return bytes(data)

        return retried(self.uri(key), call)

    def listed(self, prefix: str) -> Listed:
        """Return the files and folders directly in a folder."""

        def call() -> Listed:
            listed: Listed = self._store.list_with_delimiter(prefix or None)
            return listed

        return retried(self.uri(prefix), call)

    def listed_deep(self, prefix: str) -> list[Found]:
        """Return the files in a folder and all folders below it."""

        def call() -> list[Found]:
            found: list[Found] = []
            for part in self._store.list(prefix or None, chunk_size=LISTED_AT_ONCE):
                found += part
            return found

        return retried(self.uri(prefix), call)

    def has_below(self, prefix: str) -> bool:
        """Return whether a file is in a folder, at any depth."""

        def call() -> bool:
            parts = iter(self._store.list(prefix or None, chunk_size=1))
            first = next(parts, None)
            return bool(first)

        return retried(self.uri(prefix), call)

    def put(self, key: str, file: IO[bytes]) -> None:
        """Write a file atomically, replacing an existing one; a large one by a multipart upload.

        Args:
            file: Its content, from the beginning.
        """

        def call() -> None:
            file.seek(0)  # a retry begins again
            self._store.put(key, file)

        self._writing(key, call)

    def put_small(self, key: str, data: bytes) -> None:
        """Write a small file, replacing an existing one; within a step in the background, see `ebbtide.storage._together`."""

        def put() -> None:
            self._writing(key, lambda: self._store.put(key, data))

        step = Together.current()
        location = self.uri(key)
        is_taken = step is not None and step.put(location, data, put)
        if not is_taken:
            put()
        if never_changes(key):
            self.memory.keep(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write a file if it is absent; return whether this writer's file is there.

        Args:
            data: Its content, unique to this writer.
        """
        # The store may put the file and lose the answer, or answer 503: the retry is then refused because of the first try. So a
        # refusal compares the stored bytes; they are this writer's own only if this writer put them.

        def call() -> bool:
            if self._put_new(key, data):
                return True
            stored = self.read(key)
            if stored is None:
                raise ConflictError("Conflict: the file is refused, and not there")
            return stored == data

        step = Together.current()
        if step is not None:
            step.settle()  # a commit comes after the files that it names
        is_ours = self._writing(key, call)
        if is_ours and step is not None:
            step.hold(self.uri(key), data)
        return is_ours

    def refuse_overwriting(self, key: str) -> None:
        """Refuse a store that ignores the condition of a put, as some older ones do: two writers would both succeed.

        Args:
            key: Folder of the empty test file.

        Raises:
            StoreUnsafeError: the store put a file that existed.
        """
        probe = f"{key}/{PROBE}"

        def call() -> bool:
            return self._put_new(probe, b"")

        # The file stays: later runs make one request, which must be refused. Only the run that wrote it tries a second time.
        is_new = self._writing(probe, call)
        if is_new and self._writing(probe, call):
            raise StoreUnsafeError.of(
                f"The object store of '{self.root}' overwrites files that are put only if absent.",
                got=f"'{self.uri(probe)}' was put twice",
                allowed="stores that heed 'If-None-Match: *'",
                next_step="Use another store, or a newer version of this one (docs/how-to/object-stores.md).",
            )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files; absent ones are ignored."""

        def call() -> None:
            try:
                self._store.delete(keys)
            except FileNotFoundError:
                for key in keys:
                    self._delete_one(key)

        step = Together.current()
        if step is not None:
            step.wait()  # a file is not put after it is deleted
        if keys:
            retried(self.uri(keys[0]), call)
        for key in keys:
            self.memory.forget(key)
            if step is not None:
                step.forget(self.uri(key))

    def _delete_one(self, key: str) -> None:
        try:
            self._store.delete(key)
        except FileNotFoundError:
            return

    def _put_new(self, key: str, data: bytes) -> bool:
        """Send one conditional put; return whether the store accepted it."""
        try:
            self._store.put(key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def _writing(self, key: str, call: Callable[[], Answer]) -> Answer:
        step = Together.current()
        if step is not None:
            step.written.add(self.uri(key))
            step.forget(self.uri(key))
        try:
            return retried(self.uri(key), call)
        except FileNotFoundError as error:  # of a write it can only mean the bucket
            raise refused(self.uri(key), error) from None


def _unusable(root: str, error: Exception) -> ConfigError:
    return ConfigError.of(
        f"The object store of '{root}' cannot be used with these settings.",
        got=error,
        next_step="Look at the variables of the environment that begin with AWS_, AZURE_ or GOOGLE_ (docs/how-to/object-stores.md).",
    )
