"""What the benchmarks share: the CPU of a process tree, a table's files, a plain changelog to read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def tree_cpu_s() -> float:
    """Return the CPU seconds of this process and all below it, ended ones included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    mine, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in mine} - mine
        grown = bool(more)
        mine |= more
    return sum(used[pid] for pid in mine if pid in used) / os.sysconf("SC_CLK_TCK")


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
    lines = [json.dumps({"kind": "+U", "row": row}) for row in changes]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return len(lines)
