"""The last verdict of each check of a pipeline, as JSON in `checks/NAME.json`: for people who watch, no step depends on it.

`{"ebbtide": 3, "check": "ordering", "outcome": "failed", "broken": 2, "at_ms": ...}`. It holds no value of a row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.model import StoredDocument
from ebbtide.storage import Location

_Outcome = Literal["passed", "warning", "failed"]
WHAT = "A verdict"
SUFFIX = ".json"


class LastVerdict(BaseModel):
    """The last verdict of a check."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=StoredDocument.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    check: str = Field(description="Name of the check.")
    outcome: _Outcome = Field(description="Failed: a rule of severity critical was broken.")
    broken: int = Field(description="Rows that break a rule.")
    at_ms: int = Field(description="When it was judged, epoch ms.")

    OUTCOMES: ClassVar[Sequence[str]] = get_args(_Outcome)
    """The values of `outcome`."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return self.model_dump(exclude={"format"})

    def note(self, home: str, known: Collection[str]) -> None:
        """Store it in place of the check's last one; verdicts of checks that the spec no longer has are deleted.

        Args:
            home: Folder of the pipeline's tables.
            known: Names of the pipeline's checks.
        """
        folder = _folder(home)
        for name in folder.list_files():
            if name.removesuffix(SUFFIX) not in known:
                (folder / name).delete()
        text = self.model_dump_json(by_alias=True)
        # A file for each check: two processes that judge at once overwrite no verdict of another check.
        place = folder / f"{self.check}{SUFFIX}"
        place.replace_bytes(text.encode())

    @classmethod
    def of_checks(cls, home: str) -> tuple[Self, ...]:
        """Return the last verdict of each check that was judged, by name.

        Args:
            home: Folder of the pipeline's tables.

        Raises:
            StoredFormatError, DamagedFileError: see `StoredDocument.read`.
        """
        folder = _folder(home)
        found = []
        for name in folder.list_files():
            where = folder / name
            raw = where.read_bytes()
            if raw is None:
                continue  # deleted since it was listed
            stored = StoredDocument(WHAT, where)
            verdict = stored.read(cls, stored.parsed(raw))
            found.append(verdict)
        return tuple(found)


def _folder(home: str) -> Location:
    return Location(home) / "checks"
