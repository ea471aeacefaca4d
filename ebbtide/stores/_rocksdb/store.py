"""States in one RocksDB, by name. The byte format is that of `ebbtide.stores._rocksdb.codec`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from ebbtide.errors import ConfigError
from ebbtide.keyed_state import Entry, IncrementalCleanup
from ebbtide.stores._rocksdb import codec

try:
    import rocksdict
except ImportError as error:
    raise ConfigError.of(
        "RocksDB is not installed.",
        next_step="Install it: pip install 'ebbtide[rocksdb]'; or take the store heap.",
    ) from error

AFTER = b"\xff"
"""Sorts after everything that follows a prefix: tags of values and lengths begin with smaller bytes."""
KEYS_AT_ONCE = 100
"""Keys that `all_keys` reads with one cursor."""


class RocksDbState:
    """One state in RocksDB."""

    def __init__(self, db: rocksdict.Rdict, name: str) -> None:
        self._db = db
        self._name = name

    def get(self, key: Hashable, sub: Hashable) -> Entry | None:
        """See `RawState`."""
        address = self._address(key, sub)
        raw = self._db.get(address)
        if raw is None:
            return None
        return codec.decode_entry(raw)

    def put(self, key: Hashable, sub: Hashable, entry: Entry) -> None:
        """See `RawState`."""
        address = self._address(key, sub)
        raw = codec.encode_entry(entry)
        self._db[address] = raw

    def remove(self, key: Hashable, sub: Hashable) -> None:
        """See `RawState`."""
        address = self._address(key, sub)
        self._db.delete(address)

    def clear(self, key: Hashable) -> None:
        """See `RawState`."""
        prefix = codec.prefix(self._name, key)
        addresses = [address for address, _ in self._under(prefix)]
        for address in addresses:
            self._db.delete(address)

    def entries(self, key: Hashable) -> Iterator[tuple[Any, Entry]]:
        """See `RawState`."""
        prefix = codec.prefix(self._name, key)
        for address, raw in self._under(prefix):
            encoded_sub = address.removeprefix(prefix)
            sub = codec.decode_sub(encoded_sub)
            entry = codec.decode_entry(raw)
            yield sub, entry

    def last(self, key: Hashable) -> Any:
        """See `RawState`."""
        prefix = codec.prefix(self._name, key)
        cursor = self._db.iter()
        cursor.seek_for_prev(prefix + AFTER)
        if not _is_under(prefix, cursor):
            return None
        address = cursor.key()
        _, sub = codec.decode_key(address)
        return sub

    def all_keys(self) -> Iterator[Any]:
        """See `RawState`."""
        start: bytes | None = codec.prefix(self._name)
        while start is not None:
            keys, start = self._keys_from(start)
            yield from keys

    def _keys_from(self, start: bytes) -> tuple[list[Any], bytes | None]:
        """Return some keys from an address on, and the address of those that follow; None: none do.

        A cursor keeps the database open, and what was deleted since on disk. A round of incremental cleanup takes long: none
        outlives this call.
        """
        prefix = codec.prefix(self._name)
        cursor = self._db.iter()
        cursor.seek(start)
        keys: list[Any] = []
        while _is_under(prefix, cursor):
            if len(keys) == KEYS_AT_ONCE:
                return keys, start
            address = cursor.key()
            key, _ = codec.decode_key(address)
            keys.append(key)
            # The key's other entries are skipped.
            start = codec.prefix(self._name, key) + AFTER
            cursor.seek(start)
        return keys, None

    def _address(self, key: Hashable, sub: Hashable) -> bytes:
        prefix = codec.prefix(self._name, key)
        encoded_sub = codec.encode_sub(sub)
        return prefix + encoded_sub

    def _under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (address, entry) of all that begins with a prefix, in order."""
        cursor = self._db.iter()
        cursor.seek(prefix)
        while _is_under(prefix, cursor):
            address = cursor.key()
            raw = cursor.value()
            yield address, raw
            cursor.next()


def _is_under(prefix: bytes, cursor: rocksdict.RdictIter) -> bool:
    if not cursor.valid():
        return False
    address: bytes = cursor.key()
    return address.startswith(prefix)


class RocksDbStore:
    """States in one RocksDB.

    Args:
        path: Its folder, made if it is not there.
    """

    background: IncrementalCleanup | None = None
    thresholds = (10, 6)

    def __init__(self, path: str | Path) -> None:
        options = rocksdict.Options(raw_mode=True)
        self._db = rocksdict.Rdict(str(path), options)

    def state(self, name: str) -> RocksDbState:
        """See `Store`."""
        return RocksDbState(self._db, name)

    def compact(self) -> None:
        """Compact all files: what was removed leaves the disk."""
        self._db.compact_range(None, None)

    def close(self) -> None:
        """Write what is in memory and release the folder."""
        self._db.close()
