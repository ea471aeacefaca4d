"""Upgrades the facts that earlier releases stored: one function for each change of the format.

| format | facts |
|---|---|
| 2 | of a step: one flat object with a `kind`, which determined the actions of the step |
| 3 | of a step: nested, as `ebbtide.ledger._facts.StepFacts`; `decision` has an action for each table |
| 4 | without the id and the hash of a checkpoint folder; turns of the lease have what that folder alone said, the `beginning` |

Format 1 had the same flat form with fewer fields, and another state: its facts are read only by operations that start over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ebbtide.delta import Log
from ebbtide.model import StoredDocument
from ebbtide.storage import Location

Stored = Mapping[str, Any]
"""A JSON object."""
BESIDE_STATE = ("sink", "changelog", "quarantine")
"""The tables that formats 1 and 2 knew."""
READING = ("batch", "backfill", "quarantine_replay", "adopt")
"""Kinds of steps that applied records."""
BEGINNING = ("reset", "rewind", "source", "swap")
"""Kinds of steps that made the source be read from another position."""
OVERWRITING = ("updated", "deleted", "filled")
"""Counts of a step that changed existing rows of the sink."""


def upgraded(facts: Stored, location: str) -> dict[str, Any]:
    """Return the facts of a step in this release's format.

    Args:
        facts: The stored facts, in this format or an older one.
        location: Location of the table, for errors.

    Raises:
        StoredFormatError: a newer release wrote them.
        DamagedFileError: they name no format.
    """
    StoredDocument("What a commit says of its step", location).refuse_newer_format(facts)
    stored_format = facts.get(StoredDocument.FORMAT_KEY)
    if stored_format == StoredDocument.FORMAT:
        return dict(facts)
    nested = facts if stored_format == 3 else _from_format_2(facts)
    return _from_format_3(nested)


def _from_format_3(facts: Stored) -> dict[str, Any]:
    """Leave out what said which checkpoint folder belonged to a step: the facts alone say where the source is read on."""
    in_this_format = {**facts, StoredDocument.FORMAT_KEY: StoredDocument.FORMAT}
    source = facts.get("source")
    if isinstance(source, Mapping):  # else it is damaged, which its reader says
        in_this_format["source"] = {name: value for name, value in source.items() if name not in _OF_CHECKPOINT}
    return in_this_format


_OF_CHECKPOINT = ("offsets_hash", "query_id")
"""Fields of `source` in format 3."""


def beginning_of(home: str) -> dict[str, Any] | None:
    """Return where the source is read first as an earlier release has noted it, in the form of a turn's `beginning`; None if it has not.

    All else that the folder says the facts of the last step say too, or it was not decided and is planned again.

    Args:
        home: Folder of the pipeline's tables.

    Raises:
        DamagedFileError: the file is torn.
    """
    folder = Location(home) / "checkpoint"
    location = Location(folder) / "ebbtide_start.json"
    raw = location.read_bytes()
    if raw is None or _is_given_up(home, folder):
        return None
    noted = StoredDocument("The noted start of the source", location).parsed(raw)
    noted.pop(StoredDocument.FORMAT_KEY, None)
    asked = noted.pop("asked", None)
    lost = noted.pop("lost", None)
    # Of what the first run found nothing had been read when this was noted: only the begin counts.
    position = {**noted, "to": noted.get("from")}
    return {"position": position, "asked": asked, "lost": lost}


def _is_given_up(home: str, folder: str) -> bool:
    """Return whether the last step begins elsewhere in the source, and died before it deleted the folder."""
    newest = next(Log(Location(home) / "state").own_commits(), None)
    if newest is None:
        return False
    _, facts = newest
    begins = facts.get("kind") in BEGINNING or facts.get("decision", {}).get("source") == "begin"
    if not begins:
        return False
    source = facts.get("source", facts)
    raw = (Location(folder) / "metadata").read_bytes() or b"{}"
    try:
        query_id = json.loads(raw).get("id")
    except ValueError:
        query_id = None  # torn: it belongs to no step
    return bool(source.get("query_id") == query_id)


def _from_format_2(facts: Stored) -> dict[str, Any]:
    names = ("pipeline", "step", "incarnation", "epoch", "code")
    made_by = {name: facts.get(name) for name in names}
    return {
        StoredDocument.FORMAT_KEY: 3,
        **made_by,
        "cause": _cause(facts),
        "frontier": _frontier(facts),
        "read": _renamed(facts, _READ),
        "decision": _decision(facts),
        "source": _renamed(facts, _SOURCE),
        "state": _state(facts),
    }


_CLOCK = {
    "now_ms": "now_ms",
    "downtime_ms": "downtime_ms",
    "held_ms": "held_ms",
    "paused_ms": "paused_ms",
}
_FRONTIER = {
    "watermark_ms": "watermark_ms",
    "max_event_ms": "max_event_ms",
    "floor": "floor",
    "orphans": "orphans",
    "offsets": "positions",
    "total_records": "total_records",
    "total_quarantined": "total_quarantined",
    "view": "view",
}
_READ = {
    "records": "records",
    "quarantined": "quarantined",
    "other_tables": "other_tables",
    "ignored_columns": "ignored_columns",
    "floor_raised": "floor_raised",
    "recomputed": "recomputed",
}
_SOURCE = {
    "path": "source_path",
    "batch_id": "batch_id",
    "position": "source_position",
    "start": "source_start",
    "reread": "reread",
    "lost": "lost",
}
_STATE = {
    "version": "state_version",
    "evolved": "evolved",
    "tables": "tables",
}
"""Names in format 3 to those in format 2; what format 4 has no more is left out."""


def _renamed(facts: Stored, names: Stored) -> dict[str, Any]:
    """Return the fields that `names` lists, under their new names."""
    renamed = {}
    for new, old in names.items():
        if old in facts:
            renamed[new] = facts[old]
    return renamed


def _cause(facts: Stored) -> dict[str, Any]:
    why = facts.get("reason") or facts.get("note") or ""
    return {
        "what": facts.get("kind", "reset"),
        "why": why,
        "notes": facts.get("losses", []),
    }


def _frontier(facts: Stored) -> dict[str, Any]:
    clock = _renamed(facts, _CLOCK)
    wall_ms = facts.get("wall_ms")
    clock["wall_ms"] = facts.get("now_ms") if wall_ms is None else wall_ms
    frontier = _renamed(facts, _FRONTIER)
    return {"clock": clock, **frontier}


def _state(facts: Stored) -> dict[str, Any]:
    kind = facts.get("kind")
    counts = facts.get("counts")
    is_pending = facts.get("pending_key_changes", False)
    if kind in READING:
        # Unknown for a step without counts: such rows are then looked for, which costs a read and is right either way.
        is_pending = counts is None or counts.get("pending_key_changes", 0) > 0
    return {
        "spec": facts.get("spec", {}),
        "pending_key_changes": is_pending,
        "unadopted": facts.get("unadopted", 0) if kind == "adopt" else None,
        "is_folded": kind == "compaction",
        **_renamed(facts, _STATE),
    }


def _decision(facts: Stored) -> dict[str, Any]:
    kind = facts.get("kind")
    source = "keep"
    if kind in BEGINNING:
        source = "begin"
    elif kind == "batch":
        source = "advance"
    return {
        "tables": _tables(facts),
        "source": source,
        "counts": facts.get("counts") or {},
        "accepts_sink": facts.get("sink_version"),
    }


def _tables(facts: Stored) -> dict[str, Any]:
    """Return the action of each table, as the kind of step and its facts determined it."""
    kind = facts.get("kind")
    if kind == "reset":
        return {name: {"do": "clear"} for name in BESIDE_STATE}
    if kind == "repair":
        return {name: {"do": "rewrite"} for name in BESIDE_STATE}
    swap = facts.get("swap")
    if swap is not None:
        return {name: _replace(swap, name) for name in BESIDE_STATE}
    if facts.get("restores"):
        changes_rows = kind == "rewind"
        actions = {}
        for name, version in facts["restores"].items():
            actions[name] = {
                "do": "restore",
                "version": version,
                "changes_rows": changes_rows,
            }
        return actions
    return _of_columns(facts) | _of_rows(facts)


def _replace(swap: Stored, name: str) -> dict[str, Any]:
    version = swap["versions"].get(name)
    return {
        "do": "replace",
        "incarnation": swap["incarnation"],
        "version": version,
    }


def _of_columns(facts: Stored) -> dict[str, Any]:
    actions = {}
    change = facts.get("schema_change")
    if change is not None:
        columns_before = facts.get("columns_before") or ""
        alter = {"do": "alter", "change": change, "columns_before": columns_before}
        actions = {"sink": alter, "changelog": alter}
    if facts.get("reselects"):
        actions["sink"] = {"do": "rewrite", "alters": True}
    return actions


def _of_rows(facts: Stored) -> dict[str, Any]:
    """Return the actions of a step that decided rows or bad records."""
    kind = facts.get("kind")
    actions: dict[str, Any] = {}
    counts = facts.get("counts")
    decides = kind in (*READING, "tick", "quarantine_drop")
    raises_floor = decides and facts.get("floor_raised", False)
    # Without counts the change set may be empty or not: applying an empty one changes nothing.
    is_unknown = counts is None and kind in (*READING, "tick")
    counts = counts or {}
    changes_rows = any(counts.get(name) for name in OVERWRITING)
    overwrites = raises_floor or is_unknown or changes_rows
    if overwrites or counts.get("inserted"):
        actions["sink"] = {"do": "apply", "only_inserts": not overwrites and kind != "adopt"}
    if raises_floor or is_unknown or counts.get("emitted"):
        actions["changelog"] = {"do": "append"}
    bad_rows = facts.get("bad_rows")
    if bad_rows:
        actions["quarantine"] = {
            "do": "append",
            "actions": bad_rows,
            "removed": facts.get("left_quarantine", {}),
        }
    return actions
