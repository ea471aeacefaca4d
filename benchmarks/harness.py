"""What the benchmarks share: folders and reports, process trees and what they use, tables and their files, changelogs to read, plots."""

from __future__ import annotations

import json
import os
import re
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SIZE = re.compile(r"^(Pss|Pss_Anon):\s+(\d+)", re.MULTILINE)


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


def figures_of(wall_s: float, begin: float, ends: list[float]) -> dict[str, float]:
    """Return what is printed of a side of `naive_merge.py`.

    Args:
        wall_s: Seconds that it took.
        begin: CPU seconds of the process tree at its begin.
        ends: The same at the end of each step.
    """
    cpu_s = {"cpu_s": round(tree_cpu_s() - begin, 1), "warm_cpu_s": round((ends[-1] - ends[-3]) / 2, 2)}
    return {"wall_s": round(wall_s, 1), **cpu_s}


def files_of(table: Path) -> dict[str, int]:
    """Return a table's data files that count, their bytes, the vectors beside them, and the files and bytes of its log."""
    from ebbtide.delta import Snapshot

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
    from ebbtide.delta import Snapshot
    from ebbtide.ledger import writer_of

    snapshot = Snapshot.read(str(table))
    if snapshot is None:
        raise LookupError(f"no Delta table at {table}")
    metadata = dict(snapshot.metadata)
    short = {"delta.logRetentionDuration": interval, "delta.deletedFileRetentionDuration": interval}
    metadata["configuration"] = dict(snapshot.configuration) | short
    info = {"operation": "SET TBLPROPERTIES"}
    if writer_of(str(table)).commit(snapshot, [{"metaData": metadata}], info) is None:
        raise RuntimeError(f"another client writes {table}")


def add_folder_options(options: ArgumentParser) -> None:
    """Add the options of a benchmark that keeps what it measures in a folder."""
    options.add_argument("--plot", type=Path)
    options.add_argument("--folder", type=Path, help="of all that is made; else one that is deleted")
    options.add_argument("--report", action="store_true")


def run_or_report(
    asked: Namespace,
    run: Callable[[Path], None],
    report: Callable[[Path, Path | None], int],
) -> int:
    """Run in a folder, and report on it; with `--report` only report on what it holds.

    Args:
        asked: With the options of `add_folder_options`.
        run: Measures; all that it makes is in the folder.
        report: Prints and plots what a folder holds; returns the exit code.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = (asked.folder or Path(made)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not asked.report:
            run(folder)
        return report(folder, asked.plot)


def facts_of(commit: Path) -> dict[str, Any] | None:
    """Return what Ebbtide wrote into a commit."""
    for line in commit.read_text().splitlines():
        action = json.loads(line)
        if "commitInfo" in action:
            metadata = action["commitInfo"].get("userMetadata")
            facts: dict[str, Any] | None = json.loads(metadata) if metadata else None
            return facts
    return None


def write_spec(folder: Path, name: str, topic: str, servers: str) -> None:
    """Write the spec of a pipeline over a topic."""
    spec = {
        "name": name,
        "schema": "id BIGINT NOT NULL, at BIGINT, text STRING",
        "key": ["id"],
        "source": {"type": "kafka", "bootstrap_servers": servers, "topic": topic},
        "format": {"type": "plain"},
        "order": {"sequence": ["at"]},
    }
    folder.mkdir(parents=True, exist_ok=True)
    given = {"type": "ebbtide.dagster.UpsertPipeline", "attributes": spec}
    (folder / "defs.yaml").write_text(json.dumps(given))


def n_wrong(spec: Path, sink: Path, truth: dict[int, int]) -> int:
    """Count the rows of a sink that differ from the truth: `id` to `at`."""
    from ebbtide import UpsertPipeline
    from ebbtide.delta import Snapshot

    snapshot = Snapshot.read(str(sink))
    if snapshot is None:
        raise LookupError("no sink")
    columns = UpsertPipeline.load(spec).sink_table.columns
    rows = {row["id"]: row["at"] for row in snapshot.rows(columns).to_pylist()}
    return sum(rows.get(key) != truth.get(key) for key in rows.keys() | truth.keys())


def used_by(pid: int, *, is_driver: bool) -> dict[str, int]:
    """Return what a process holds, by its role."""
    process = Path(f"/proc/{pid}")
    shared_out = (process / "smaps_rollup").read_text()
    kilobytes = {name: int(size) for name, size in SIZE.findall(shared_out)}
    is_java = (process / "comm").read_text().strip() == "java"
    role = "driver" if is_driver else "jvm" if is_java else "workers"
    own = {"driver_own_bytes": kilobytes["Pss_Anon"] << 10} if is_driver else {}
    return own | {
        f"{role}_bytes": kilobytes["Pss"] << 10,
        f"{role}_handles": len([*(process / "fd").iterdir()]),
        f"{role}_threads": len([*(process / "task").iterdir()]),
        "processes": 1,
    }


def percentile(values: list[float], share: float) -> float | None:
    """Return a percentile, ms of seconds kept; None of nothing."""
    if not values:
        return None
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 3)


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
