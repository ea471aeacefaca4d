"""Reads stored JSON documents; every document of an earlier run passes through here.

A document may name its format under the key `ebbtide`. One that does not has the format of the pipeline's tables, which the facts in
their commits name. A format above `StoredDocument.FORMAT`, an unknown field or an unknown kind means a newer release: the document is
refused with `StoredFormatError`. A document that is not JSON, or lacks a field of its format, is damaged: `DamagedFileError`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError

from ebbtide.errors import DamagedFileError, StoredFormatError

USE_NEWER = "A newer Ebbtide wrote it: use that release or newer. Nothing was changed."
RESTORE = "Restore it from a copy, or run 'ebbtide refresh' to rebuild all tables from the source."
_ONLY_NEWER_HAS = (
    "extra_forbidden",
    "unexpected_keyword_argument",
    "enum",
    "literal_error",
    "union_tag_invalid",
)
"""Pydantic error types for values that only a newer release writes."""
_Document = TypeVar("_Document", bound=BaseModel)


@dataclass(frozen=True)
class StoredDocument:
    """A document that an earlier run has stored.

    Args:
        what: The kind of document, for errors.
        where: Its location, for errors.
    """

    what: str
    where: str

    FORMAT: ClassVar[int] = 4
    """Current version of the stored formats."""
    FORMAT_KEY: ClassVar[str] = "ebbtide"
    """The key under which a document names its format."""

    def parsed(self, raw: bytes | str) -> dict[str, Any]:
        """Parse JSON, and refuse a newer format.

        Raises:
            DamagedFileError: it is not JSON, or not an object.
            StoredFormatError: it names a format that is newer than this release's.
        """
        try:
            document = json.loads(raw)
        except ValueError as error:
            raise self.damaged(str(error)) from error
        if not isinstance(document, dict):
            raise self.damaged(f"{type(document).__name__}, not an object")
        self.refuse_newer_format(document)
        return document

    def read(self, model: type[_Document], document: Mapping[str, Any]) -> _Document:
        """Validate a parsed document that this release, or an older one with the same format number, has written.

        Args:
            model: Model of the document.
            document: The parsed document.

        Raises:
            StoredFormatError: it has a newer format, or a field or a kind that this release does not know.
            DamagedFileError: it lacks a field, or has a value of another type.
        """
        self.refuse_newer_format(document)
        fields = dict(document)
        if self.FORMAT_KEY not in _names(model):
            fields.pop(self.FORMAT_KEY, None)
        try:
            return model.model_validate(fields, extra="forbid")
        except ValidationError as error:
            raise self._refusal(error) from error

    def refuse_newer_format(self, document: Mapping[str, Any]) -> None:
        """Refuse a parsed document whose format is newer than this release's; errors as `read`."""
        named_format = document.get(self.FORMAT_KEY, self.FORMAT)
        if not isinstance(named_format, int):
            raise self.damaged(f"format {named_format!r}")
        if named_format > self.FORMAT:
            raise self.newer(f"format {named_format}")

    def refuse_unknown(self, document: Mapping[str, Any], known: Collection[str]) -> None:
        """Refuse a parsed document with a newer format, or with fields that this release does not know.

        Args:
            document: The parsed document.
            known: Names of the fields of its format.

        Raises:
            StoredFormatError: it has one of these.
        """
        self.refuse_newer_format(document)
        readable = {*known, self.FORMAT_KEY}
        unknown = sorted(document.keys() - readable)
        if unknown:
            fields = [f"field '{name}'" for name in unknown]
            raise self.newer(", ".join(fields))

    def newer(self, got: str) -> StoredFormatError:
        """Return the error of a document that a newer release has written.

        Args:
            got: The parts that this release does not know.
        """
        return StoredFormatError.of(
            f"{self.what} at '{self.where}' cannot be read by this release.",
            got=got,
            allowed=f"format {self.FORMAT} or older, with the fields and kinds that this release has",
            next_step=USE_NEWER,
        )

    def damaged(self, got: str) -> DamagedFileError:
        """Return the error for a damaged document.

        Args:
            got: What is wrong with it.
        """
        return DamagedFileError.of(
            f"{self.what} at '{self.where}' is damaged.",
            got=got,
            next_step=RESTORE,
        )

    def _refusal(self, error: ValidationError) -> StoredFormatError | DamagedFileError:
        """Return the error of a document that does not validate."""
        unknown: list[str] = []
        invalid: list[str] = []
        for details in error.errors(include_url=False, include_context=False):
            detail = dict(details)
            if detail["type"] in _ONLY_NEWER_HAS:
                unknown.append(_unknown_text(detail))
            invalid.append(f"{_path(detail)}: {detail['msg']}")
        # A newer document may also lack fields, so unknown values decide first.
        if unknown:
            return self.newer("; ".join(unknown))
        return self.damaged("; ".join(invalid))


def _names(model: type[BaseModel]) -> set[str]:
    fields = model.model_fields.items()
    return {field.alias or name for name, field in fields}


def _unknown_text(error: Mapping[str, Any]) -> str:
    path = _path(error)
    value = error["input"]
    match error["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"field '{path}'"
        case "union_tag_invalid":
            return f"{path}.do '{value['do']}'"
        case _:
            return f"{path} '{value}'"


def _path(error: Mapping[str, Any]) -> str:
    parts = [str(part) for part in error["loc"]]
    return ".".join(parts) or "document"
