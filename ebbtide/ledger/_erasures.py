"""The ledger of erasures: which keys were erased, as salted hashes, when, by whom and why.

It is `ROOT/NAME/erasures/<uuid>.json`, a document of `Erasures`. Such a file never changes: an erasure writes a new one with all earlier
erasures, and the facts of its step, and of all later steps, name it. So a step reads it atomically with the state. Beside it `unfinished` is there
while the physical part of an erasure is still to be done: see `ebbtide.runtime._purging`. A materialized view has that file alone.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.errors import DamagedFileError
from ebbtide.ledger._facts import NoStep, StepFacts
from ebbtide.model import _stored as stored
from ebbtide.model._erased import ErasedKeys
from ebbtide.storage import Location, sync_all

FOLDER = "erasures"
"""Folder of the ledger, beside the tables."""
UNFINISHED = "unfinished"
"""The file that is there while files with erased rows may still exist."""
BEGUN_WITH = "begun-with"
"""The file that names what holds before the first step: of a backfill, a copy of the pipeline's."""
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
    """All erasures of a pipeline that were not released."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=stored.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    salt: str = Field(description="The pipeline's salt, as hexadecimal digits.")
    erasures: tuple[Erasure, ...] = Field(default=(), description="The erasures, the oldest first.")

    @classmethod
    def read(cls, home: str, name: str) -> Self:
        """Read a file of the ledger.

        Args:
            home: Folder of the pipeline's tables.
            name: Name of the file, as facts have it.

        Raises:
            StoredFormatError, DamagedFileError: see `ebbtide.model._stored.read`.
        """
        location = Location(home) / FOLDER / name
        raw = location.read_bytes()
        if raw is None:
            raise DamagedFileError.of(
                f"{_WHAT} at '{location}' is gone: records of erased keys could not be refused.",
                allowed="the file that the last step names",
                next_step="Restore it from a copy, or put back the pipeline's whole folder.",
            )
        document = stored.parsed(raw, what=_WHAT, where=location)
        return stored.read(cls, document, what=_WHAT, where=location)

    def write(self, home: str) -> str:
        """Write a new file of the ledger; return its name."""
        name = f"{uuid.uuid4()}.json"
        self.write_as(home, name)
        return name

    def write_as(self, home: str, name: str) -> None:
        """Write a file of the ledger under a name; on disk before this returns."""
        text = self.model_dump_json(by_alias=True)
        (Location(home) / FOLDER / name).replace_bytes(text.encode())

    @property
    def keys(self) -> ErasedKeys:
        """The keys of all erasures."""
        hashes = [text for erasure in self.erasures for text in erasure.keys]
        return ErasedKeys(bytes.fromhex(self.salt), frozenset(hashes))


@lru_cache(maxsize=16)
def erased_keys(home: str, name: str) -> ErasedKeys:
    """Return the erased keys of a file of the ledger; read once in a process, as it never changes."""
    ledger = Erasures.read(home, name)
    return ledger.keys


def begin_with(home: str, name: str, ledger: Erasures) -> None:
    """Store what is erased for tables without a step; on disk before this returns.

    Args:
        home: Folder of the tables.
        name: Name of the file of the ledger, which the copy keeps.
        ledger: Its content.
    """
    ledger.write_as(home, name)
    (Location(home) / FOLDER / BEGUN_WITH).replace_bytes(name.encode())


def ledger_of(home: str, last: StepFacts | NoStep) -> str | None:
    """Return the name of the file of the ledger that holds for the next step; None if no key was erased.

    Args:
        home: Folder of the tables.
        last: Facts of the last step; before the first one, what `begin_with` wrote holds.
    """
    if last.step:
        return last.state.erased
    raw = (Location(home) / FOLDER / BEGUN_WITH).read_bytes()
    if raw is None:
        return None
    return raw.decode()


def unfinished(home: str) -> bytes | None:
    """Return the mark of files with erased rows that may still exist; None if there are none."""
    return (Location(home) / FOLDER / UNFINISHED).read_bytes()


def mark_unfinished(home: str) -> None:
    """Note that files with erased rows may exist; on disk before this returns."""
    mark = uuid.uuid4().hex
    (Location(home) / FOLDER / UNFINISHED).replace_bytes(mark.encode())


def mark_finished(home: str, mark: bytes | None) -> None:
    """Note that none exist, unless a later erasure has put another mark.

    Args:
        home: Folder of the tables.
        mark: The mark, read before the files were looked for.
    """
    if unfinished(home) == mark:
        # Deletions reach the disk late: a power cut would bring erased rows back, without the mark to look for them.
        sync_all()
        (Location(home) / FOLDER / UNFINISHED).delete()
