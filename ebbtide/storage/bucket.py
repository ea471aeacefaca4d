"""A bucket's calls: read, list, put, put if absent, delete. Each is tried again while the store fails by itself."""

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
from ebbtide.storage.faults import Answer, ConflictError, refused, retried

ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "s3a": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "abfs": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "abfss": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables of the environment that name an endpoint, by scheme, the first that is set counts."""
SETTINGS_OF = ("AWS_", "AZURE_", "GOOGLE_")
"""How variables begin that settings of a store come from."""
SECRETS = ("KEY", "SECRET", "TOKEN", "PASSWORD")
"""In the names of those that hold a credential."""
QUICK_RETRIES = {"max_retries": 3, "retry_timeout": timedelta(seconds=5)}
"""Of the library itself, within one call: a hiccup is not worth a word."""
LISTED_AT_ONCE = 1000
PROBE = ".put_if_absent"
"""Name of the empty file that shows that a store puts a file only if it is absent."""


class Found(TypedDict):
    """What a store says of a file."""

    path: str
    size: int
    last_modified: datetime


class Listed(TypedDict):
    """What is directly in a folder."""

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
    """Return the bucket that a location is in."""
    root, _ = parted(location)
    return _bucket(root, _endpoint(root))


@cache
def _bucket(root: str, endpoint: str | None) -> Bucket:
    return Bucket(root, endpoint)


def client_options(location: str) -> dict[str, str]:
    """Return what a client needs beside the environment: plain HTTP is for an endpoint that says so, and no other."""
    endpoint = _endpoint(location) or ""
    is_plain = endpoint.startswith("http://")
    if not is_plain:
        return {}
    return {"allow_http": "true"}


def _endpoint(location: str) -> str | None:
    """Return the endpoint that the environment names; None if it names none."""
    scheme, _, _ = location.partition("://")
    for name in ENDPOINTS[scheme]:
        endpoint = os.environ.get(name)
        if endpoint:
            return endpoint
    return None


def _hide_secrets() -> None:
    """Have the credentials in the environment shown nowhere, whatever writes them."""
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
        endpoint: Where it is, as the environment says; None: where its provider has it.

    Raises:
        ConfigError: the environment's settings are not usable.
    """

    def __init__(self, root: str, endpoint: str | None) -> None:
        self.root = root
        self.endpoint = endpoint
        _hide_secrets()
        try:
            self._store: Any = from_url(root, client_options=client_options(root), retry_config=QUICK_RETRIES)  # type: ignore[call-overload]
        except (BaseError, ValueError) as error:
            raise _unusable(root, error) from None

    def uri(self, key: str) -> str:
        """Return the location of a key."""
        return f"{self.root}/{key}"

    def found(self, key: str) -> Found | None:
        """Return what is said of a file; None if there is none."""

        def call() -> Found | None:
            try:
                found: Found = self._store.head(key)
            except FileNotFoundError:
                return None
            return found

        return retried(self.uri(key), call)

    def read(self, key: str) -> bytes | None:
        """Return a file's bytes; None if there is none."""

        def call() -> bytes | None:
            try:
                return bytes(self._store.get(key).bytes())
            except FileNotFoundError:
                return None

        return retried(self.uri(key), call)

    def read_range(
        self,
        key: str,
        start: int,
        length: int,
    ) -> bytes:
        """Return some bytes of a file, fewer where it ends.

        Raises:
            FileNotFoundError: there is none.
        """

        def call() -> bytes:
            data = self._store.get_range(key, start=start, length=length)
            return bytes(data)

        return retried(self.uri(key), call)

    def listed(self, prefix: str) -> Listed:
        """Return the files and folders directly in a folder."""
        listed: Listed = retried(self.uri(prefix), lambda: self._store.list_with_delimiter(prefix or None))
        return listed

    def listed_deep(self, prefix: str) -> list[Found]:
        """Return the files in a folder and all folders below it."""

        def call() -> list[Found]:
            found: list[Found] = []
            for part in self._store.list(prefix or None, chunk_size=LISTED_AT_ONCE):
                found += part
            return found

        return retried(self.uri(prefix), call)

    def has_below(self, prefix: str) -> bool:
        """Return whether anything is in a folder, at any depth."""

        def call() -> bool:
            parts = self._store.list(prefix or None, chunk_size=1)
            first = next(iter(parts), None)
            return bool(first)

        return retried(self.uri(prefix), call)

    def put(self, key: str, file: IO[bytes]) -> None:
        """Write a file whole, over the one that is there; a large one in parts that count together.

        Args:
            key: Its key.
            file: What goes in, from its beginning.
        """

        def call() -> None:
            file.seek(0)
            self._store.put(key, file)

        self._writing(key, call)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write a file, or leave the one that is there; return whether it is ours.

        An answer may be lost, or say 503 after the file was put; another try is then refused because of ourselves. So
        what is there is compared: no two writers put the same bytes.

        Args:
            key: Its key.
            data: What goes in; no other writer puts the same.
        """

        def call() -> bool:
            if self._put_new(key, data):
                return True
            there = self.read(key)
            if there is None:
                raise ConflictError("Conflict: the file is refused, and not there")
            return there == data

        return self._writing(key, call)

    def refuse_overwriting(self, key: str) -> None:
        """Refuse a store that does not heed the condition of a put, as older ones that speak S3: two writers would both win.

        Args:
            key: Folder to leave an empty file in.

        Raises:
            StoreUnsafeError: a file was put where there was one.
        """
        probe = f"{key}/{PROBE}"

        def call() -> bool:
            return self._put_new(probe, b"")

        # Once it is there, one put a run is refused, and that is all there is to see.
        is_new = self._writing(probe, call)
        if is_new and self._writing(probe, call):
            raise StoreUnsafeError.of(
                f"The object store of '{self.root}' overwrites files that are to be put only if they are absent.",
                got=f"'{self.uri(probe)}' was put twice",
                allowed="stores that heed 'If-None-Match: *'",
                next_step="Use another store, or a newer version of this one (docs/how-to/object-stores.md).",
            )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files; one that is gone already is fine."""

        def call() -> None:
            try:
                self._store.delete(keys)
            except FileNotFoundError:
                for key in keys:
                    self._delete_one(key)

        if keys:
            retried(self.uri(keys[0]), call)

    def _delete_one(self, key: str) -> None:
        try:
            self._store.delete(key)
        except FileNotFoundError:
            return

    def _put_new(self, key: str, data: bytes) -> bool:
        """Ask the store once; return whether it says that the file is put."""
        try:
            self._store.put(key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def _writing(self, key: str, call: Callable[[], Answer]) -> Answer:
        try:
            return retried(self.uri(key), call)
        except FileNotFoundError as error:  # of what is written, that can only be the bucket
            raise refused(self.uri(key), error) from None


def _unusable(root: str, error: Exception) -> ConfigError:
    return ConfigError.of(
        f"The object store of '{root}' cannot be used with these settings.",
        got=error,
        next_step="Look at the variables of the environment that begin with AWS_, AZURE_ or GOOGLE_ (docs/how-to/object-stores.md).",
    )
