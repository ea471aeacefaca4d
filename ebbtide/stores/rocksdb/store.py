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


class RocksDbState:
    """One state in RocksDB."""

    def __init__(self, db: rocksdict.Rdict, name: str) -> None:
        self._db, self._name = db, name

    def get(self, key: Hashable, sub: Hashable) -> Entry | None:
        """See `RawState`."""
        raw = self._db.get(codec.prefix(self._name, key) + codec.encode_sub(sub))
        return None if raw is None else codec.decode_entry(raw)

    def put(self, key: Hashable, sub: Hashable, entry: Entry) -> None:
        """See `RawState`."""
        self._db[codec.prefix(self._name, key) + codec.encode_sub(sub)] = codec.encode_entry(entry)

    def remove(self, key: Hashable, sub: Hashable) -> None:
        """See `RawState`."""
        self._db.delete(codec.prefix(self._name, key) + codec.encode_sub(sub))

    def clear(self, key: Hashable) -> None:
        """See `RawState`."""
        for raw in list(self._between(codec.prefix(self._name, key))):
            self._db.delete(raw[0])

    def entries(self, key: Hashable) -> Iterator[tuple[Any, Entry]]:
        """See `RawState`."""
        start = codec.prefix(self._name, key)
        for raw, value in self._between(start):
            yield codec.decode_sub(raw[len(start) :]), codec.decode_entry(value)

    def last(self, key: Hashable) -> Any:
        """See `RawState`."""
        start = codec.prefix(self._name, key)
        cursor = self._db.iter()
        cursor.seek_for_prev(start + b"\xff")
        found = cursor.valid() and cursor.key().startswith(start)
        return codec.decode_key(cursor.key())[1] if found else None

    def all_keys(self) -> Iterator[Any]:
        """See `RawState`."""
        start = codec.prefix(self._name)
        cursor = self._db.iter()
        cursor.seek(start)
        while cursor.valid() and cursor.key().startswith(start):
            key = codec.decode_key(cursor.key())[0]
            yield key
            cursor.seek(codec.prefix(self._name, key) + b"\xff")

    def _between(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._db.iter()
        cursor.seek(start)
        while cursor.valid() and cursor.key().startswith(start):
            yield cursor.key(), cursor.value()
            cursor.next()


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
