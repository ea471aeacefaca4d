"""Proposals for several topics as one file: what they have in common is written once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ebbtide.proposal._files import lines_of
from ebbtide.proposal._sample import Sample
from ebbtide.proposal._spec import Proposal

_MAY_BE_SHARED = ("format", "order", "ttl")


@dataclass(frozen=True)
class ProposedTables:
    """Proposed tables by topic or folder.

    Args:
        samples: Sample records of each.
        proposals: Fields proposed from the records.
        sources: Fields of the source that differ by table.
        notes: Open points of the samples.
    """

    samples: dict[str, Sample]
    proposals: dict[str, Proposal]
    sources: dict[str, dict[str, Any]]
    notes: list[str]

    def attributes(self, name: str, source: Mapping[str, Any], pattern: Mapping[str, str]) -> dict[str, Any]:
        """Return the contents of a file of all the pipelines.

        Args:
            name: Name of the group of pipelines.
            source: What their sources have in common.
            pattern: The pattern of expected topics or folders, as a field.
        """
        common = _common(list(self.sources.values()))
        whole = {**source, **common}
        shared: dict[str, Any] = {"source": whole} if whole else {}
        for field in _MAY_BE_SHARED:
            values = [proposal.attributes[field] for proposal in self.proposals.values()]
            if all(value == values[0] for value in values):
                shared[field] = values[0]
        return {"name": name, **pattern, "shared": shared, "pipelines": self._own_fields(shared)}

    def added_lines(self, shared: Mapping[str, Any]) -> str:
        """Return lines with the pipelines, to add to a file of several.

        Args:
            shared: What all pipelines of the file have.
        """
        return lines_of(self._own_fields(shared))

    def _own_fields(self, shared: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the fields of each pipeline that are not shared."""
        of_source = shared.get("source", {})
        names = table_names(list(self.proposals))
        pipelines = []
        for (topic, proposal), table in zip(self.proposals.items(), names, strict=True):
            source = {field: value for field, value in self.sources[topic].items() if of_source.get(field) != value}
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
