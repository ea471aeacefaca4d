"""The commands by purpose, with one line of help and one example each. Plain data: `ebbtide --help` loads no command.

A handwritten command is a function and its line here. A command of an operation has its line in
`ebbtide.operations._built_in`.
"""

from __future__ import annotations

from ebbtide.operations import BUILT_IN, Heading, Listed

ADDED = "Of other packages"
"""Heading of operations from other packages."""
WRITTEN = {
    "run": Listed("running:run", "", Heading.EVERY_DAY, "Read new records and update the tables."),
    "check": Listed("checking:check", "--only ordering", Heading.EVERY_DAY, "Run the checks on the tables."),
    "status": Listed(
        "inspection:status",
        "",
        Heading.EVERY_DAY,
        "Show the last step, the rows, and anything that stops a run.",
        spec="pipelines/defs",
    ),
    "runs": Listed("inspection:runs", "", Heading.EVERY_DAY, "List the ends of the last runs."),
    "report": Listed(
        "page:report", "--html report.html", Heading.EVERY_DAY, "Write a page on pipelines.", spec="pipelines/defs"
    ),
    "lag": Listed("inspection:lag", "", Heading.EVERY_DAY, "Show the backlog of the sources.", spec="pipelines/defs"),
    "new": Listed(
        "new:new",
        "--path data/orders",
        Heading.EVERY_DAY,
        "Write a spec and its test from real records.",
        spec="orders",
    ),
    "sql": Listed(
        "sql:sql",
        "-e 'SELECT * FROM orders LIMIT 10'",
        Heading.EVERY_DAY,
        "Execute SQL at a prompt or from a script.",
        spec="",
    ),
    "state": Listed("inspection:state", "--where 'order_id = 7'", Heading.LOOK, "Show the stored state of a pipeline."),
    "quarantine": Listed("", "", Heading.LOOK, "List, show, replay or drop bad records.", spec=""),
    "quarantine list": Listed(""),
    "quarantine show": Listed("", "--reason wrong_type --limit 5"),
    "replay": Listed("replaying:replay", "", Heading.LOOK, "Run test cases of states and changelogs.", spec=""),
    "replay ttl": Listed("", "--cases cases.jsonl --store delta", spec=""),
    "replay materializer": Listed("", "--cases cases.jsonl", spec=""),
    "refresh": Listed("running:refresh", "--yes", Heading.REPAIR, "Drop the tables and rebuild them from the source."),
    "backfill": Listed("", "", Heading.CHANGE, "Build new tables and swap them with those in use.", spec=""),
    "sql-gateway": Listed(
        "sql_gateway:sql_gateway", "--port 8083 --read-only", Heading.SERVE, "Serve SQL sessions over HTTP.", spec=""
    ),
}
"""The handwritten commands. A place is a module of `ebbtide.cli` and its command; a group or a part of one may have none."""
COMMANDS = {name.replace(".", " "): listed for name, listed in BUILT_IN.items()} | WRITTEN


def sections() -> dict[str, dict[str, str]]:
    """Return each heading of `ebbtide --help` with its commands, and their lines."""
    found: dict[str, dict[str, str]] = {heading: {} for heading in Heading}
    for name, listed in COMMANDS.items():
        if listed.heading:
            found[listed.heading][name] = listed.help
    return found


def example(path: str) -> str | None:
    """Return an example of a command; None if there is none.

    Example:
        >>> example("resume")
        'ebbtide resume pipelines/defs/orders'
    """
    listed = COMMANDS.get(path)
    return f"ebbtide {path} {listed.example}" if listed and listed.example else None
