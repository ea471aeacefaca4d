"""Quoted names for Spark SQL, Delta properties and DDL."""

from __future__ import annotations


def quoted(name: str, side: str = "") -> str:
    """Quote a name, which may have any characters; `side` is a table's alias.

    Example:
        >>> quoted("a`b", "t")
        't.`a``b`'
    """
    escaped = name.replace("`", "``")
    prefix = f"{side}." if side else ""
    return f"{prefix}`{escaped}`"
