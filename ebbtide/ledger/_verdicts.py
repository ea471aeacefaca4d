"""The last verdict of each check of a pipeline, as JSON in `checks/NAME.json`: for people who watch, no step depends on it.

`{"ebbtide": 3, "check": "ordering", "outcome": "failed", "broken": 2, "at_ms": ...}`. It holds no value of a row.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.model import _stored as stored
from ebbtide.storage import Location

Outcome = Literal["passed", "warning", "failed"]
WHAT = "A verdict"
SUFFIX = ".json"


class LastVerdict(BaseModel):
    """The last verdict of a check."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=stored.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    check: str = Field(description="Name of the check.")
    outcome: Outcome = Field(description="Failed: a rule of severity critical was broken.")
    broken: int = Field(description="Rows that break a rule.")
    at_ms: int = Field(description="When it was judged, epoch ms.")

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return self.model_dump(exclude={"format"})


def note_verdict(home: str, verdict: LastVerdict, known: Collection[str]) -> None:
    """Store a verdict in place of the check's last one; verdicts of checks that the spec no longer has are deleted.

    Args:
        home: Folder of the pipeline's tables.
        verdict: The verdict.
        known: Names of the pipeline's checks.
    """
    folder = _folder(home)
    for name in Location(folder).list_files():
        if name.removesuffix(SUFFIX) not in known:
            (Location(folder) / name).delete()
    text = verdict.model_dump_json(by_alias=True)
    # A file for each check: two processes that judge at once overwrite no verdict of another check.
    place = Location(folder) / f"{verdict.check}{SUFFIX}"
    place.replace_bytes(text.encode())


def last_verdicts(home: str) -> tuple[LastVerdict, ...]:
    """Return the last verdict of each check that was judged, by name.

    Args:
        home: Folder of the pipeline's tables.

    Raises:
        StoredFormatError, DamagedFileError: see `ebbtide.model._stored.read`.
    """
    folder = _folder(home)
    found = []
    for name in Location(folder).list_files():
        where = Location(folder) / name
        raw = where.read_bytes()
        if raw is None:
            continue  # deleted since it was listed
        document = stored.parsed(raw, what=WHAT, where=where)
        verdict = stored.read(LastVerdict, document, what=WHAT, where=where)
        found.append(verdict)
    return tuple(found)


def _folder(home: str) -> str:
    return Location(home) / "checks"
