"""The commands by what they are for: one line of help and one example each. Plain data: `ebbtide --help` loads no command."""

from __future__ import annotations

SPEC = "pipelines/defs/orders"
SECTIONS: dict[str, dict[str, str]] = {
    "Every day": {
        "run": "Read what is new and bring the tables up to date.",
        "check": "Judge the tables by their checks.",
        "status": "Show the last step, the rows, and what stops a run.",
        "lag": "Show what waits in the sources.",
        "new": "Write a spec and its test from real records.",
        "sql": "Execute SQL at a prompt or from a script.",
    },
    "Look": {
        "state": "Show the stored state of a pipeline.",
        "quarantine": "List, show, replay or drop bad records.",
        "replay": "Play test cases of states and changelogs.",
    },
    "Upkeep": {
        "cleanup": "Delete expired state and old bad records.",
        "compact": "Fold the state and join small files.",
        "vacuum": "Delete files that no table needs.",
        "erase": "Erase keys from tables, history and disk.",
    },
    "Repair": {
        "repair": "Bring a damaged sink to what the state shows.",
        "rewind": "Bring all tables back to an earlier step.",
        "adopt": "Make an existing table the sink.",
        "acknowledge": "Accept what other clients wrote to a sink.",
        "refresh": "Drop the tables and rebuild them from the source.",
    },
    "Change": {
        "migrate": "Fit stored state to a changed spec.",
        "backfill": "Build tables beside those in use and swap them in.",
        "clock": "Set the time that state ages by.",
        "pause": "Stop reading, without aging the state.",
        "resume": "Read again after a pause.",
    },
    "Serve": {
        "sql-gateway": "Serve SQL sessions over HTTP.",
    },
}
"""Heading to its commands, as `ebbtide --help` lists them."""
ADDED = "Of other packages"
"""Heading of the operations that installed packages name."""
EXAMPLES = {
    "run": f"{SPEC}",
    "check": f"{SPEC} --only ordering",
    "status": "pipelines/defs",
    "lag": "pipelines/defs",
    "new": "orders --path data/orders",
    "sql": "-e 'SELECT * FROM orders LIMIT 10'",
    "state": f"{SPEC} --where 'order_id = 7'",
    "quarantine list": f"{SPEC}",
    "quarantine show": f"{SPEC} --reason wrong_type --limit 5",
    "quarantine replay": f"{SPEC} --apply",
    "quarantine drop": f"{SPEC} --step 7 --note 'test data' --apply",
    "replay ttl": "--cases cases.jsonl --store delta",
    "replay materializer": "--cases cases.jsonl",
    "cleanup": f"{SPEC}",
    "compact": f"{SPEC}",
    "vacuum": "pipelines/defs",
    "erase": f"{SPEC} --keys keys.jsonl --apply",
    "repair": f"{SPEC} --apply",
    "rewind": f"{SPEC} --to-step 12 --apply",
    "adopt": f"{SPEC} --apply",
    "acknowledge": f"{SPEC} --reason 'rows corrected by hand'",
    "refresh": f"{SPEC} --yes",
    "migrate": f"{SPEC} --apply",
    "backfill start": f"{SPEC} --from 2026-01-31T00:00:00",
    "backfill into": f"{SPEC} --from 0=12,1=40 --reason 'records were late'",
    "backfill status": f"{SPEC}",
    "backfill swap": f"{SPEC} --apply",
    "backfill drop": f"{SPEC}",
    "clock": f"{SPEC} --to now --reason 'wrong clock' --apply",
    "pause": f"{SPEC} --reason 'database moves'",
    "resume": f"{SPEC}",
    "sql-gateway": "--port 8083 --read-only",
}
"""Arguments of an example, by command."""
VARIABLES = {
    "EBBTIDE_ROOT": "Folder of all tables, in place of --root.",
    "EBBTIDE_ENGINE": "auto, spark or local, in place of --engine.",
    "EBBTIDE_DRIVER_MEMORY": "Heap of Spark's JVM. Default: 4g.",
    "EBBTIDE_MASTER": "Spark's master. Default: local[*].",
    "EBBTIDE_LOG_LEVEL": "Level of Spark's log. Default: FATAL.",
    "EBBTIDE_CACHE": "Folder of local copies of keys. Default: the system's temporary one.",
    "EBBTIDE_CACHE_BYTES": "Most bytes of these copies. Default: 10 GB.",
}
"""Variables of the environment, with their meaning."""


def summary(command: str) -> str | None:
    """Return the line of help of a command; None if it is of another package."""
    for commands in SECTIONS.values():
        if command in commands:
            return commands[command]
    return None


def example(path: str) -> str | None:
    """Return an example of a command as it is typed; None if there is none.

    Example:
        >>> example("resume")
        'ebbtide resume pipelines/defs/orders'
    """
    arguments = EXAMPLES.get(path)
    return None if arguments is None else f"ebbtide {path} {arguments}"
