"""The tables that pipelines own: their names, and the folders where their files are. Paths are compared resolved."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from ebbtide.sql.catalog import Catalog

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_OF_S3 = ("s3a", "s3n")
"""Schemes of Hadoop for what `s3:` means too."""
_GLOB = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Owned:
    """What pipelines own.

    Args:
        names: Of the pipelines.
        folders: The roots of all catalogs, resolved: every table of a pipeline is below its root.
    """

    names: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def of(cls, catalogs: Iterable[Catalog]) -> Owned:
        """Return what the pipelines of catalogs own."""
        names: set[str] = set()
        folders: set[str] = set()
        for catalog in catalogs:
            folders |= resolved(catalog.root)
            names |= catalog.pipelines().keys()
        return cls(frozenset(names), frozenset(folders))

    def has(self, path: str) -> bool:
        """Return whether a path is an owned folder, or in one."""
        return any(_is_in(place, folder) for place in resolved(path) for folder in self.folders)

    def is_reached_from(self, path: str) -> bool:
        """Return whether a path is an owned folder, in one, or above one: what deletes it deletes them."""
        places = resolved(path)
        is_above = any(_is_in(folder, place) for place in places for folder in self.folders)
        return is_above or self.has(path)


def resolved(path: str) -> set[str]:
    """Return what a path may mean, absolute, without links and `..`; of a pattern the folder before it.

    A `%` is itself in a path and an escape in a URI, and Spark takes both: so there may be two.

    Example:
        >>> sorted(resolved("FILE:///a/b/../c")), sorted(resolved("s3a://bucket//a/"))
        (['/a/c'], ['s3://bucket/a'])
    """
    return {_resolved(text) for text in (path, unquote(path))}


def _resolved(path: str) -> str:
    scheme, rest = _split(path)
    *before, _ = [*_GLOB.split(rest, maxsplit=1), ""]
    has_pattern = len(before) > 1
    plain = posixpath.dirname(before[0]) if has_pattern else rest
    if scheme in ("", "file"):
        return os.path.realpath(plain)
    bucket_and_key = posixpath.normpath(plain.lstrip("/"))
    return f"{scheme}://{bucket_and_key}"


def _split(path: str) -> tuple[str, str]:
    """Return the scheme, in one spelling, and what follows; of a local file its path."""
    found = _SCHEME.match(path)
    if found is None:
        return "", path
    scheme = found[1].lower()
    rest = path[found.end() :]
    if scheme == "file":
        is_with_host = rest.startswith("//")
        return "file", "/" + rest[2:].partition("/")[2] if is_with_host else rest
    return ("s3" if scheme in _OF_S3 else scheme), rest


def _is_in(place: str, folder: str) -> bool:
    return place == folder or PurePosixPath(place).is_relative_to(folder)
