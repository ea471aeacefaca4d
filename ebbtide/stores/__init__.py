"""Embedded stores of state."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.stores._heap import HeapState as HeapState
    from ebbtide.stores._heap import HeapStore as HeapStore
    from ebbtide.stores._rocksdb.store import RocksDbStore as RocksDbStore
else:
    __getattr__, __all__ = names_of(__name__)
