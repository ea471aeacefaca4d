"""The built-in operations as plain data, and the names of operations from other packages.

`ebbtide --help` lists them without loading any.

A built-in operation is a class and its line here. Its command, its help and its Dagster job follow from both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

GROUP = "ebbtide.operations"
"""The group of entry points for operations of other packages."""
SPEC = "pipelines/defs/orders"


class Heading(StrEnum):
    """Headings of commands in `ebbtide --help`, in order."""

    EVERY_DAY = "Every day"
    LOOK = "Look"
    UPKEEP = "Upkeep"
    REPAIR = "Repair"
    CHANGE = "Change"
    SERVE = "Serve"


class Listed(NamedTuple):
    """A built-in command.

    Args:
        place: Its module and its class or function: of an operation below `ebbtide.operations`, of another command below `ebbtide.cli`.
        options: Its arguments in an example, after the spec.
        heading: Its heading in `ebbtide --help`; none for a subcommand, whose group has one.
        help: Line of `ebbtide --help`.
        spec: The spec in the example. Default: that of one pipeline.
    """

    place: str
    options: str = ""
    heading: Heading | None = None
    help: str = ""
    spec: str = SPEC

    @property
    def example(self) -> str:
        """The arguments of the command, as an example; empty: it has none."""
        return f"{self.spec} {self.options}".strip()

    @staticmethod
    def added() -> set[str]:
        """Return the first words of the commands of installed packages' operations."""
        return {first_word(point.name) for point in added()}


BUILT_IN = {
    "backfill.drop": Listed("_backfill.operations:Drop"),
    "backfill.into": Listed("_backfill.operations:Into", "--from 0=12,1=40 --reason 'records were late'"),
    "backfill.start": Listed("_backfill.operations:Start", "--from 2026-01-31T00:00:00"),
    "backfill.status": Listed("_backfill.operations:Status"),
    "backfill.swap": Listed("_backfill.operations:Swap", "--apply"),
    "cleanup": Listed("_maintenance.jobs:Cleanup", "", Heading.UPKEEP, "Delete expired state and old bad records."),
    "compact": Listed("_maintenance.jobs:Compact", "", Heading.UPKEEP, "Fold the state and join small files."),
    "vacuum": Listed(
        "_maintenance.jobs:Vacuum", "", Heading.UPKEEP, "Delete files that no table needs.", spec="pipelines/defs"
    ),
    "erase": Listed(
        "_erase.operations:Erase",
        "--keys keys.jsonl --apply",
        Heading.UPKEEP,
        "Erase keys from tables, history and disk.",
    ),
    "repair": Listed(
        "_operations:Repair",
        "--apply",
        Heading.REPAIR,
        "Restore a damaged sink to the state's rows.",
    ),
    "rewind": Listed(
        "_operations:Rewind",
        "--to-step 12 --apply",
        Heading.REPAIR,
        "Bring all tables back to an earlier step.",
    ),
    "savepoint": Listed(
        "_operations:Savepoint",
        "--to s3://backups/orders-1",
        Heading.UPKEEP,
        "Copy all tables as of one step.",
    ),
    "adopt": Listed(
        "_operations:Adopt",
        "--apply",
        Heading.REPAIR,
        "Make an existing table the sink.",
    ),
    "acknowledge": Listed(
        "_operations:Acknowledge",
        "--reason 'rows corrected by hand'",
        Heading.REPAIR,
        "Accept what other clients wrote to a sink.",
    ),
    "migrate": Listed(
        "_operations:Migrate",
        "--apply",
        Heading.CHANGE,
        "Fit stored state to a changed spec.",
    ),
    "clock": Listed(
        "_operations:Clock",
        "--to now --reason 'wrong clock' --apply",
        Heading.CHANGE,
        "Set the clock for the ageing of state.",
    ),
    "pause": Listed(
        "_operations:Pause",
        "--reason 'database moves'",
        Heading.CHANGE,
        "Stop reading, without aging the state.",
    ),
    "resume": Listed("_operations:Resume", "", Heading.CHANGE, "Read again after a pause."),
    "quarantine.drop": Listed("_quarantine.operations:Drop", "--step 7 --note 'test data' --apply"),
    "quarantine.replay": Listed("_quarantine.operations:Replay", "--apply"),
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
