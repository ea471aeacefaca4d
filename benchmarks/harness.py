"""What the benchmarks share: process trees and what they use, a table's files, a plain changelog to read, plots."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def tree(root: int) -> dict[int, float]:
    """Return a process and all below it, and the CPU seconds of each, its ended children's included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    ticks = os.sysconf("SC_CLK_TCK")
    return {pid: used[pid] / ticks for pid in found if pid in used}


def tree_cpu_s() -> float:
    """Return the CPU seconds of this process and all below it, ended ones included."""
    return sum(tree(os.getpid()).values())


def files_of(table: Path) -> dict[str, int]:
    """Return a table's data files that count, their bytes, the vectors beside them, and the files and bytes of its log."""
    from ebbtide.delta.snapshot import Snapshot

    snapshot = Snapshot.read(str(table))
    if snapshot is None:
        raise LookupError(f"no Delta table at {table}")
    log = [each.stat().st_size for each in (table / "_delta_log").iterdir()]
    files = snapshot.files.values()
    return {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "vectors": sum(file.vector is not None for file in files),
        "log_files": len(log),
        "log_bytes": sum(log),
    }


def write_changes(path: Path, changes: Iterable[dict[str, Any]]) -> int:
    """Write changes of a plain changelog, `+U` each, as a file of JSON lines; return their number."""
    return write_kinds(path, (("+U", row) for row in changes))


def write_kinds(path: Path, changes: Iterable[tuple[str, dict[str, Any]]]) -> int:
    """Write changes of a plain changelog, each with its kind, as a file of JSON lines that is there at once; return their number."""
    lines = [json.dumps({"kind": kind, "row": row}) for kind, row in changes]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent.parent / f"{path.name}.tmp"
    unfinished.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    unfinished.rename(path)
    return len(lines)


def shorten_retention(table: Path, interval: str) -> None:
    """Have a table keep its log, and files that no longer count, for a short time only.

    Args:
        table: The table.
        interval: How long, as Delta's properties have it: `interval 20 minutes`.
    """
    from ebbtide.delta.snapshot import Snapshot
    from ebbtide.delta.table import commit_after
    from ebbtide.ledger.puts import puts_of

    snapshot = Snapshot.read(str(table))
    if snapshot is None:
        raise LookupError(f"no Delta table at {table}")
    metadata = dict(snapshot.metadata)
    short = {"delta.logRetentionDuration": interval, "delta.deletedFileRetentionDuration": interval}
    metadata["configuration"] = dict(snapshot.configuration) | short
    info = {"operation": "SET TBLPROPERTIES"}
    if commit_after(puts_of(str(table)), snapshot, [{"metaData": metadata}], info) is None:
        raise RuntimeError(f"another client writes {table}")


def figure(rows: int, height: float) -> tuple[Any, Any]:
    """Return a figure of plots below each other, and their axes; saved by `save`, the same numbers make the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "ebbtide"
    import matplotlib.pyplot as plt

    return plt.subplots(rows, 1, figsize=(9, height), sharex=True)


def save(drawn: Any, path: Path) -> None:
    """Write a figure."""
    drawn.tight_layout()
    drawn.savefig(path, metadata={"Date": None})
