"""Erased keys, known by salted hashes: a record of such a key is recognized, and no key can be read back.

A hash has 18 bytes and is stored in hexadecimal digits. Two bytes come from the key's hash (`ebbtide.columns._hashing`) and
are compared for whole columns at once. The other 16, a keyed BLAKE2b of the key's values as text, decide.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.columns import Mask, key_hashes

PREFIXES = 1 << 16
"""Number of different prefixes of hashes: with fewer erased keys, few other rows need a BLAKE2b hash."""
DIGEST_BYTES = 16


@dataclass(frozen=True)
class ErasedKeys:
    """A set of erased keys; picklable, since it is sent to workers.

    Args:
        salt: The pipeline's salt.
        hashes: The hashes of the keys, as hexadecimal digits.
    """

    salt: bytes
    hashes: frozenset[str]

    @cached_property
    def _has_prefix(self) -> Mask:
        """Mark the prefixes that an erased key has."""
        has_prefix = np.zeros(PREFIXES, dtype=bool)
        prefixes = [int(text[:4], 16) for text in self.hashes]
        has_prefix[prefixes] = True
        return has_prefix

    def marks(self, rows: pa.Table, key: Sequence[str]) -> Mask:
        """Mark the rows whose key is erased.

        Args:
            rows: With the columns of the key, in the key's types.
            key: Their names, in the order of the key.

        Example:
            >>> rows = pa.table({"id": [1, 2, 3]})
            >>> erased = ErasedKeys(b"salt", ErasedKeys.hashes_of(rows.slice(1, 1), ["id"], b"salt"))
            >>> erased.marks(rows, ["id"]).tolist()
            [False, True, False]
        """
        marks = np.zeros(len(rows), dtype=bool)
        if not self.hashes or not len(rows):
            return marks
        # BLAKE2b costs about a microsecond a row: only rows with the prefix of an erased key get there.
        keys = rows.select(list(key))
        prefixes = _prefixes(keys)
        candidates = np.flatnonzero(self._has_prefix[prefixes])
        values = keys.take(pa.array(candidates))
        texts = _hash_texts(values, prefixes[candidates], self.salt)
        marks[candidates] = [text in self.hashes for text in texts]
        return marks

    @staticmethod
    def hashes_of(keys: pa.Table, key: Sequence[str], salt: bytes) -> frozenset[str]:
        """Return the salted hashes of some keys.

        Args:
            keys: The keys; other columns are ignored.
            key: Names of the key's columns, in the order of the key.
            salt: The pipeline's salt.
        """
        values = keys.select(list(key))
        prefixes = _prefixes(values)
        texts = _hash_texts(values, prefixes, salt)
        return frozenset(texts)


def _prefixes(keys: pa.Table) -> NDArray[np.int64]:
    hashes = key_hashes(keys, keys.column_names)
    first_bits = hashes >> np.uint64(48)
    return first_bits.astype(np.int64)


def _hash_texts(keys: pa.Table, prefixes: Iterable[int], salt: bytes) -> list[str]:
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in keys.columns]
    rows = zip(*columns, strict=True)
    texts = []
    for prefix, values in zip(prefixes, rows, strict=True):
        canonical = _canonical(values)
        digest = hashlib.blake2b(canonical, key=salt, digest_size=DIGEST_BYTES)
        first = f"{int(prefix):04x}"
        texts.append(f"{first}{digest.hexdigest()}")
    return texts


def _canonical(values: Collection[Any]) -> bytes:
    """Write the values of a key as one text; different keys of the same types have different texts."""
    texts = [None if value is None else _text(value) for value in values]
    return json.dumps(texts).encode()


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
