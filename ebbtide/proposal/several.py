"""Proposals for several topics as one file: what they have in common is said once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ebbtide.proposal.spec import Proposal

_MAY_BE_SHARED = ("format", "order", "ttl")


def several_attributes(
    name: str,
    source: Mapping[str, Any],
    pattern: str,
    proposals: Mapping[str, Proposal],
) -> dict[str, Any]:
    """Return what a file of several pipelines says.

    Args:
        name: Of them all.
        source: What their sources have in common.
        pattern: The topics that are to be read.
        proposals: Topic to what its records propose.
    """
    shared: dict[str, Any] = {"source": dict(source)}
    for field in _MAY_BE_SHARED:
        values = [proposal.attributes[field] for proposal in proposals.values()]
        if all(value == values[0] for value in values):
            shared[field] = values[0]
    pipelines = []
    for (topic, proposal), table in zip(proposals.items(), table_names(list(proposals)), strict=True):
        own = {field: value for field, value in proposal.attributes.items() if field not in shared}
        pipelines.append({"name": table, "source": {"topic": topic}, **own})
    return {"name": name, "topics": pattern, "shared": shared, "pipelines": pipelines}


def table_names(topics: list[str]) -> list[str]:
    """Return a name for each topic's pipeline: its last part, where no other has the same.

    Example:
        >>> table_names(["shop.public.orders", "a.Users", "b.users"])
        ['orders', 'a_users', 'b_users']
    """
    short = [_name(topic.rpartition(".")[2]) for topic in topics]
    return [one if short.count(one) == 1 else _name(topic) for one, topic in zip(short, topics, strict=True)]


def _name(text: str) -> str:
    name = re.sub(r"[^a-z0-9_]", "_", text.lower())[:63]
    return name if name[:1].isalpha() else f"t{name}"[:63]
