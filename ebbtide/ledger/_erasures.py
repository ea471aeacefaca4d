"""The ledger of erasures: which keys were erased, as salted hashes, when, by whom and why.

It is `ROOT/NAME/erasures/<uuid>.json`, a document of `Erasures`. Such a file never changes: an erasure writes a new one with all earlier
erasures, and the facts of its step, and of all later steps, name it. So a step reads it atomically with the state. Next
to it `unfinished` exists while the physical part of an erasure is still to be done: see `ebbtide.runtime._purging`. A
materialized view has that file alone.
"""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from ebbtide.errors import DamagedFileError
from ebbtide.ledger._facts import NoStep, StepFacts
from ebbtide.model import ErasedKeys, StoredDocument
from ebbtide.storage import Location

FOLDER = "erasures"
"""Folder of the ledger, next to the tables."""
UNFINISHED = "unfinished"
"""The file that exists while files with erased rows may still exist."""
BEGUN_WITH = "begun-with"
"""The file that is valid before the first step: for a backfill, a copy of the pipeline's."""
SALT_BYTES = 32
_WHAT = "The ledger of erasures"


class Erasure(BaseModel):
    """One erasure."""

    model_config = ConfigDict(frozen=True)

    at_ms: int = Field(description="When, epoch ms.")
    by: str = Field(description="Who asked for it.")
    reason: str = Field(default="", description="Why, in the words of the user.")
    keys: tuple[str, ...] = Field(description="Salted hashes of the keys; see `ebbtide.model._erased`.")

    def without(self, hashes: frozenset[str]) -> Self:
        """Return it without some keys."""
        left = tuple(text for text in self.keys if text not in hashes)
        return self.model_copy(update={"keys": left})


class Erasures(BaseModel):
    """All erasures of a pipeline that were not released: the content of a file."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=StoredDocument.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    salt: str = Field(description="The pipeline's salt, as hexadecimal digits.")
    erasures: tuple[Erasure, ...] = Field(default=(), description="The erasures, the oldest first.")

    @property
    def keys(self) -> ErasedKeys:
        """The keys of all erasures."""
        hashes = [text for erasure in self.erasures for text in erasure.keys]
        return ErasedKeys(bytes.fromhex(self.salt), frozenset(hashes))

    def hashes_of(self, keys: pa.Table) -> frozenset[str]:
        """Return the hashes of keys, with the pipeline's salt.

        Args:
            keys: (n,) keys, with the sink's key columns.
        """
        return ErasedKeys.hashes_of(keys, keys.column_names, bytes.fromhex(self.salt))

    def plus(self, hashes: Iterable[str], *, at_ms: int, by: str, reason: str) -> Self:
        """Return them and one more.

        Args:
            hashes: Salted hashes of its keys.
            at_ms: When, epoch ms.
            by: Who asked for it.
            reason: Why.
        """
        erasure = Erasure(at_ms=at_ms, by=by, reason=reason, keys=tuple(sorted(hashes)))
        return self.model_copy(update={"erasures": (*self.erasures, erasure)})

    def without(self, hashes: frozenset[str]) -> Self:
        """Return them without some keys."""
        left = tuple(erasure.without(hashes) for erasure in self.erasures)
        return self.model_copy(update={"erasures": left})


class ErasureLedger:
    """The ledger of erasures of one pipeline: its files, each with all erasures until then, and the mark of an unfinished one.

    Args:
        home: Folder of the pipeline's tables.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._folder = Location(home) / FOLDER

    def read(self, name: str) -> Erasures:
        """Read a file.

        Args:
            name: Name of the file, as facts have it.

        Raises:
            StoredFormatError, DamagedFileError: see `StoredDocument.read`.
        """
        location = self._folder / name
        raw = location.read_bytes()
        if raw is None:
            raise DamagedFileError.of(
                f"{_WHAT} at '{location}' is gone: records of erased keys could not be refused.",
                allowed="the file that the last step names",
                next_step="Restore it from a copy, or put back the pipeline's whole folder.",
            )
        stored = StoredDocument(_WHAT, location)
        return stored.read(Erasures, stored.parsed(raw))

    def as_of(self, last: StepFacts | NoStep) -> Erasures:
        """Return the erasures as of the last step; none, with a new salt, before the first erasure.

        Args:
            last: See `newest`.
        """
        name = self.newest(last)
        return Erasures(salt=secrets.token_hex(SALT_BYTES)) if name is None else self.read(name)

    def keys(self, name: str) -> ErasedKeys:
        """Return the erased keys of a file; read once in a process, as it never changes. Arguments and errors as `read`."""
        return _erased_keys(self._home, name)

    def write(self, erasures: Erasures) -> str:
        """Write a new file, on disk before this returns; return its name."""
        name = f"{uuid.uuid4()}.json"
        self._write_as(name, erasures)
        return name

    def begin_with(self, name: str, erasures: Erasures) -> None:
        """Store the erased keys for tables without a step; on disk before this returns.

        Args:
            name: Name of the file of another pipeline's ledger, which the copy keeps.
            erasures: Its content.
        """
        self._write_as(name, erasures)
        (self._folder / BEGUN_WITH).replace_bytes(name.encode())

    def newest(self, last: StepFacts | NoStep) -> str | None:
        """Return the name of the file that holds for the next step; None if no key was erased.

        Args:
            last: Facts of the last step; before the first one, what `begin_with` wrote holds.
        """
        if last.step:
            return last.state.erased
        raw = (self._folder / BEGUN_WITH).read_bytes()
        if raw is None:
            return None
        return raw.decode()

    def unfinished(self) -> bytes | None:
        """Return the mark of files with erased rows that may still exist; None if there are none."""
        return (self._folder / UNFINISHED).read_bytes()

    def mark_unfinished(self) -> None:
        """Note that files with erased rows may exist; on disk before this returns."""
        mark = uuid.uuid4().hex
        (self._folder / UNFINISHED).replace_bytes(mark.encode())

    def mark_finished(self, mark: bytes | None) -> None:
        """Note that none exist, unless a later erasure has put another mark.

        Args:
            mark: The mark, read before the files were looked for.
        """
        if self.unfinished() == mark:
            # Deletions reach the disk late: a power cut would bring erased rows back, without the mark to look for them.
            os.sync()  # the only call that covers files deleted in any folder
            (self._folder / UNFINISHED).delete()

    def _write_as(self, name: str, erasures: Erasures) -> None:
        text = erasures.model_dump_json(by_alias=True)
        (self._folder / name).replace_bytes(text.encode())


@lru_cache(maxsize=16)
def _erased_keys(home: str, name: str) -> ErasedKeys:
    return ErasureLedger(home).read(name).keys
