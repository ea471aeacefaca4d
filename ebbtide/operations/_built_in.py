"""The built-in operations as plain data, and the names of operations from other packages.

`ebbtide --help` lists them without loading any.

A built-in operation is a class and its line here. Its command, its help and its Dagster job follow from both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

GROUP = "ebbtide.operations"
"""The group of entry points for operations of other packages."""
SPEC = "pipelines/defs/orders"
UPKEEP, REPAIR, CHANGE = "Upkeep", "Repair", "Change"
"""Headings of `ebbtide --help`."""


class Listed(NamedTuple):
    """A built-in operation.

    Args:
        place: Its module below `ebbtide.operations`, and its class.
        example: Arguments of its command, as an example.
        heading: Heading of its command in `ebbtide --help`; none for a subcommand, whose group has one.
        help: Line of `ebbtide --help`.
    """

    place: str
    example: str = SPEC
    heading: str = ""
    help: str = ""


BUILT_IN = {
    "backfill.drop": Listed("_backfill.operations:Drop"),
    "backfill.into": Listed("_backfill.operations:Into", f"{SPEC} --from 0=12,1=40 --reason 'records were late'"),
    "backfill.start": Listed("_backfill.operations:Start", f"{SPEC} --from 2026-01-31T00:00:00"),
    "backfill.status": Listed("_backfill.operations:Status"),
    "backfill.swap": Listed("_backfill.operations:Swap", f"{SPEC} --apply"),
    "cleanup": Listed("_maintenance.jobs:Cleanup", SPEC, UPKEEP, "Delete expired state and old bad records."),
    "compact": Listed("_maintenance.jobs:Compact", SPEC, UPKEEP, "Fold the state and join small files."),
    "vacuum": Listed("_maintenance.jobs:Vacuum", "pipelines/defs", UPKEEP, "Delete files that no table needs."),
    "erase": Listed(
        "_erase.operations:Erase",
        f"{SPEC} --keys keys.jsonl --apply",
        UPKEEP,
        "Erase keys from tables, history and disk.",
    ),
    "repair": Listed(
        "_operations:Repair",
        f"{SPEC} --apply",
        REPAIR,
        "Restore a damaged sink to the state's rows.",
    ),
    "rewind": Listed(
        "_operations:Rewind",
        f"{SPEC} --to-step 12 --apply",
        REPAIR,
        "Bring all tables back to an earlier step.",
    ),
    "adopt": Listed(
        "_operations:Adopt",
        f"{SPEC} --apply",
        REPAIR,
        "Make an existing table the sink.",
    ),
    "acknowledge": Listed(
        "_operations:Acknowledge",
        f"{SPEC} --reason 'rows corrected by hand'",
        REPAIR,
        "Accept what other clients wrote to a sink.",
    ),
    "migrate": Listed(
        "_operations:Migrate",
        f"{SPEC} --apply",
        CHANGE,
        "Fit stored state to a changed spec.",
    ),
    "clock": Listed(
        "_operations:Clock",
        f"{SPEC} --to now --reason 'wrong clock' --apply",
        CHANGE,
        "Set the clock for the ageing of state.",
    ),
    "pause": Listed(
        "_operations:Pause",
        f"{SPEC} --reason 'database moves'",
        CHANGE,
        "Stop reading, without aging the state.",
    ),
    "resume": Listed("_operations:Resume", SPEC, CHANGE, "Read again after a pause."),
    "quarantine.drop": Listed("_quarantine.operations:Drop", f"{SPEC} --step 7 --note 'test data' --apply"),
    "quarantine.replay": Listed("_quarantine.operations:Replay", f"{SPEC} --apply"),
}
"""The built-in operations by name, in the order of `ebbtide --help`."""


def first_word(name: str) -> str:
    """Return the first word of an operation's command.

    Example:
        >>> first_word("backfill.swap"), first_word("rewind")
        ('backfill', 'rewind')
    """
    return name.partition(".")[0]


def added() -> Sequence[EntryPoint]:
    """Return the entry points of the operations of installed packages."""
    return _added_on(tuple(sys.path))


@lru_cache(maxsize=1)
def _added_on(path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """Search the packages on a path, once: it takes 7 ms, and `ebbtide --help` needs it several times.

    Args:
        path: `sys.path`, which importlib searches.
    """
    by_value = {}
    for point in entry_points(group=GROUP):
        by_value[point.name, point.value] = point  # a package may be on the path twice, installed and in development
    return list(by_value.values())
