"""The range of the hashes of a data file's keys, in a tag of the file: a task opens only files with keys of its range.

The tag is `<identity>-<least>-<greatest>`. The identity says which rows and columns were hashed, see `_attached_index.identity_of`. The bounds
are the first 16 bits of the least and the greatest hash, as hexadecimal digits: enough to divide keys among tasks, and too few to identify one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ebbtide.columns import Hashes
from ebbtide.delta._log import KEY_RANGE

BITS = 16
"""Bits of a hash in a bound."""
REST = 64 - BITS


class KeyRange(NamedTuple):
    """A range of hashes; both ends are in it. Default: all hashes.

    Args:
        least: The least hash.
        greatest: The greatest hash.
    """

    least: int = 0
    greatest: int = 2**64 - 1

    @classmethod
    def of(cls, tag: str, identity: str | None = None) -> KeyRange:
        """Return the range that a tag says; all hashes if it is empty, or cannot be relied on.

        Args:
            tag: The tag.
            identity: See `tag_of`; None: any.
        """
        known, *bounds = tag.split("-")
        try:
            least, greatest = (int(bound, 16) for bound in bounds)
        except ValueError:
            return cls()
        is_of_these = identity in (None, known)
        is_range = 0 <= least <= greatest < 2**BITS
        if not (is_of_these and is_range):
            return cls()
        return cls(least << REST, ((greatest + 1) << REST) - 1)

    @property
    def is_all(self) -> bool:
        """True if all hashes are in it, as far as is known."""
        return self == KeyRange()

    @property
    def middle(self) -> int:
        """The hash in its middle."""
        return (self.least + self.greatest) // 2

    def rows_of(self, hashes: Hashes) -> slice:
        """Return the ones of some ascending hashes that are in the range."""
        first = np.searchsorted(hashes, np.uint64(self.least), side="left")
        end = np.searchsorted(hashes, np.uint64(self.greatest), side="right")
        return slice(int(first), int(end))


def tag_of(hashes: Hashes, identity: str) -> dict[str, str]:
    """Return the tag of a file.

    Args:
        hashes: (n,) ascending hashes of its keys.
        identity: Identifies the rows and columns that were hashed.
    """
    if not len(hashes):
        return {}
    least = int(hashes[0]) >> REST
    greatest = int(hashes[-1]) >> REST
    return {KEY_RANGE: f"{identity}-{least:04x}-{greatest:04x}"}
