"""Proposals for several topics as one file: what they have in common is written once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ebbtide.proposal._files import lines_of
from ebbtide.proposal._spec import Proposal

_MAY_BE_SHARED = ("format", "order", "ttl")


def several_attributes(
    name: str,
    source: Mapping[str, Any],
    pattern: Mapping[str, str],
    sources: Mapping[str, Mapping[str, Any]],
    proposals: Mapping[str, Proposal],
) -> dict[str, Any]:
    """Return the contents of a file of several pipelines.

    Args:
        name: Name of the group of pipelines.
        source: What their sources have in common.
        pattern: The pattern of expected topics or folders, as a field.
        sources: Topic or folder to its own fields of the source.
        proposals: Topic or folder to what its records propose.
    """
    common = _common(list(sources.values()))
    whole = {**source, **common}
    shared: dict[str, Any] = {"source": whole} if whole else {}
    for field in _MAY_BE_SHARED:
        values = [proposal.attributes[field] for proposal in proposals.values()]
        if all(value == values[0] for value in values):
            shared[field] = values[0]
    return {"name": name, **pattern, "shared": shared, "pipelines": _own_fields(shared, sources, proposals)}


def added_lines(
    shared: Mapping[str, Any],
    sources: Mapping[str, Mapping[str, Any]],
    proposals: Mapping[str, Proposal],
) -> str:
    """Return lines with further pipelines, to add to a file of several.

    Args:
        shared: What all pipelines of the file have.
        sources: Topic or folder to its own fields of the source.
        proposals: Topic or folder to what its records propose.
    """
    return lines_of(_own_fields(shared, sources, proposals))


def _own_fields(
    shared: Mapping[str, Any],
    sources: Mapping[str, Mapping[str, Any]],
    proposals: Mapping[str, Proposal],
) -> list[dict[str, Any]]:
    """Return the fields of each pipeline that are not shared.

    Args:
        shared: The fields that all of them have.
        sources: Topic or folder to its own fields of the source.
        proposals: Topic or folder to what its records propose.
    """
    of_source = shared.get("source", {})
    pipelines = []
    for (topic, proposal), table in zip(proposals.items(), table_names(list(proposals)), strict=True):
        source = {field: value for field, value in sources[topic].items() if of_source.get(field) != value}
        own = {field: value for field, value in proposal.attributes.items() if shared.get(field) != value}
        pipelines.append({"name": table, "source": source, **own})
    return pipelines


def _common(sources: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that are equal in all sources, except `topic` and `path`: these name each pipeline's own source."""
    first, *further = sources
    common = {}
    for field, value in first.items():
        is_place = field in ("topic", "path")
        is_alike = all(each.get(field) == value for each in further)
        if is_alike and not is_place:
            common[field] = value
    return common


def table_names(topics: list[str]) -> list[str]:
    """Return a name for each topic's or folder's pipeline: its last part; if two have the same last part, their whole names.

    Example:
        >>> table_names(["shop.public.orders", "a.Users", "b.users"])
        ['orders', 'a_users', 'b_users']
    """
    short = [_name(re.split(r"[./]", topic)[-1]) for topic in topics]
    return [one if short.count(one) == 1 else _name(topic) for one, topic in zip(short, topics, strict=True)]


def _name(text: str) -> str:
    name = re.sub(r"[^a-z0-9_]", "_", text.lower())[:63]
    return name if name[:1].isalpha() else f"t{name}"[:63]
