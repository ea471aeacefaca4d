"""Reads what an earlier run has stored as JSON: the gate through which each such document passes.

A document may name its format under the key `ebbtide`; without it, it has the format of its table. This release reads no format above
`FORMAT`, no field and no kind that it does not know: what they mean, only a newer release knows. Such a document is refused whole, by
`StoredFormatError`. One that is no JSON, or lacks what its format has, is damaged: `DamagedFileError`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ebbtide.errors import DamagedFileError, StoredFormatError

FORMAT = 3
"""Version of the stored formats."""
FORMAT_KEY = "ebbtide"
"""The key under which a document names its format."""
USE_NEWER = "A newer Ebbtide wrote it: use that release or newer. Nothing was changed."
RESTORE = "Restore it from a copy, or run 'ebbtide refresh' to rebuild all tables from the source."
_UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")
_ONLY_NEWER_HAS = (*_UNKNOWN_FIELD, "enum", "literal_error", "union_tag_invalid")
"""Types of pydantic's errors by which a value is one that a newer release has written."""
_Document = TypeVar("_Document", bound=BaseModel)


def parsed(raw: bytes | str, *, what: str, where: str) -> dict[str, Any]:
    """Parse a document, and refuse a newer format.

    Args:
        raw: JSON.
        what: What the document is, for the error.
        where: Its location.

    Raises:
        DamagedFileError: it is no JSON, or no object.
        StoredFormatError: it names a format that is newer than this release's.
    """
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise damaged(what, where, str(error)) from error
    if not isinstance(document, dict):
        raise damaged(what, where, f"{type(document).__name__}, no object")
    refuse_newer_format(document, what=what, where=where)
    return document


def read(model: type[_Document], document: Mapping[str, Any], *, what: str, where: str) -> _Document:
    """Read a document of this release's format, or of an older release's that has the same number.

    Args:
        model: What it is to be.
        document: As it was parsed.
        what: See `parsed`.
        where: See `parsed`.

    Raises:
        StoredFormatError: it has a newer format, or a field or a kind that this release does not know.
        DamagedFileError: it lacks a field, or has a value of another type.
    """
    refuse_newer_format(document, what=what, where=where)
    is_of_its_format = FORMAT_KEY in document and FORMAT_KEY not in _names(model)
    fields = {name: document[name] for name in document if not is_of_its_format or name != FORMAT_KEY}
    try:
        return model.model_validate(fields, extra="forbid")
    except ValidationError as error:
        raise _refusal(error, what, where) from error


def refuse_newer_format(document: Mapping[str, Any], *, what: str, where: str) -> None:
    """Refuse a document whose format is newer than this release's; arguments and errors as `read`."""
    found = document.get(FORMAT_KEY, FORMAT)
    if not isinstance(found, int):
        raise damaged(what, where, f"format {found!r}")
    if found > FORMAT:
        raise newer(what, where, got=f"format {found}")


def refuse_unknown(document: Mapping[str, Any], known: Collection[str], *, what: str, where: str) -> None:
    """Refuse a document with a newer format, or with fields that this release does not know.

    Args:
        document: As it was parsed.
        known: All that its format has.
        what: See `parsed`.
        where: See `parsed`.

    Raises:
        StoredFormatError: it is so.
    """
    refuse_newer_format(document, what=what, where=where)
    unknown = sorted(document.keys() - {*known, FORMAT_KEY})
    if unknown:
        raise newer(what, where, got=", ".join(f"field '{name}'" for name in unknown))


def newer(what: str, where: str, *, got: str) -> StoredFormatError:
    """Return the error of a document that a newer release has written.

    Args:
        what: See `parsed`.
        where: See `parsed`.
        got: What of it is not known.
    """
    return StoredFormatError.of(
        f"{what} at '{where}' cannot be read by this release.",
        got=got,
        allowed=f"format {FORMAT} or older, with the fields and kinds that this release has",
        next_step=USE_NEWER,
    )


def damaged(what: str, where: str, got: str) -> DamagedFileError:
    """Return the error of a document that is not as any release writes it; arguments as `newer`."""
    return DamagedFileError.of(f"{what} at '{where}' is damaged.", got=got, next_step=RESTORE)


def _names(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def _refusal(error: ValidationError, what: str, where: str) -> StoredFormatError | DamagedFileError:
    """Return what is wrong with a document: a newer one may lack fields besides, so that what is unknown counts first."""
    found = error.errors(include_url=False, include_context=False)
    unknown = [each for each in found if each["type"] in _ONLY_NEWER_HAS]
    if unknown:
        return newer(what, where, got="; ".join(_unknown_text(dict(each)) for each in unknown))
    return damaged(what, where, "; ".join(f"{_path(dict(each))}: {each['msg']}" for each in found))


def _unknown_text(error: Mapping[str, Any]) -> str:
    path = _path(error)
    if error["type"] in _UNKNOWN_FIELD:
        return f"field '{path}'"
    if error["type"] == "union_tag_invalid":
        return f"{path}.do '{error['input']['do']}'"
    return f"{path} '{error['input']}'"


def _path(error: Mapping[str, Any]) -> str:
    return ".".join(str(part) for part in error["loc"]) or "document"
