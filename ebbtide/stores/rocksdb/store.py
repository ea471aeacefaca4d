"""States in one RocksDB, by name. The byte format is that of `ebbtide.stores.rocksdb.codec`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from ebbtide.errors import ConfigError
from ebbtide.model.state.raw import Entry
from ebbtide.model.ttl import IncrementalCleanup
from ebbtide.stores.rocksdb import codec

try:
    import rocksdict
except ImportError as error:
    raise ConfigError.of(
        "RocksDB is not installed.", next_step="Install it: pip install 'ebbtide[rocksdb]'; or take the store heap."
    ) from error

AFTER = b"\xff"
"""Sorts after whatever follows a prefix: tags of values and lengths begin with smaller bytes."""


class RocksDbState:
    """One state in RocksDB."""

    def __init__(self, db: rocksdict.Rdict, name: str) -> None:
        self._db, self._name = db, name

    def get(self, key: Hashable, sub: Hashable) -> Entry | None:
        """See `RawState`."""
        raw = self._db.get(self._address(key, sub))
        return None if raw is None else codec.decode_entry(raw)

    def put(self, key: Hashable, sub: Hashable, entry: Entry) -> None:
        """See `RawState`."""
        self._db[self._address(key, sub)] = codec.encode_entry(entry)

    def remove(self, key: Hashable, sub: Hashable) -> None:
        """See `RawState`."""
        self._db.delete(self._address(key, sub))

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
            sub = codec.decode_sub(address[len(prefix) :])
            yield sub, codec.decode_entry(raw)

    def last(self, key: Hashable) -> Any:
        """See `RawState`."""
        prefix = codec.prefix(self._name, key)
        cursor = self._db.iter()
        cursor.seek_for_prev(prefix + AFTER)
        if not _is_under(prefix, cursor):
            return None
        _, sub = codec.decode_key(cursor.key())
        return sub

    def all_keys(self) -> Iterator[Any]:
        """See `RawState`."""
        prefix = codec.prefix(self._name)
        cursor = self._db.iter()
        cursor.seek(prefix)
        while _is_under(prefix, cursor):
            key, _ = codec.decode_key(cursor.key())
            yield key
            cursor.seek(codec.prefix(self._name, key) + AFTER)  # skips the key's other entries

    def _address(self, key: Hashable, sub: Hashable) -> bytes:
        return codec.prefix(self._name, key) + codec.encode_sub(sub)

    def _under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (address, entry) of all that begins with a prefix, in order."""
        cursor = self._db.iter()
        cursor.seek(prefix)
        while _is_under(prefix, cursor):
            yield cursor.key(), cursor.value()
            cursor.next()


def _is_under(prefix: bytes, cursor: rocksdict.RdictIter) -> bool:
    return bool(cursor.valid() and cursor.key().startswith(prefix))


class RocksDbStore:
    """States in one RocksDB.

    Args:
        path: Its folder, made if it is not there.
    """

    background: IncrementalCleanup | None = None
    thresholds = (10, 6)

    def __init__(self, path: str | Path) -> None:
        self._db = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))

    def state(self, name: str) -> RocksDbState:
        """See `Store`."""
        return RocksDbState(self._db, name)

    def compact(self) -> None:
        """Compact all files: what was removed leaves the disk."""
        self._db.compact_range(None, None)

    def close(self) -> None:
        """Write what is in memory and release the folder."""
        self._db.close()
