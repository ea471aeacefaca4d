"""Values of the host: space on its disks, and its local copies of keys."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from ebbtide.delta import LocalCopies
from ebbtide.inspect._metrics import Values, Viewer
from ebbtide.model import Decision
from ebbtide.storage import Location

Copies = list[tuple[str, int]]
"""Name and bytes of each local copy."""


def local_copies() -> Copies:
    """List the local copies of keys of this host."""
    copies = []
    for path in LocalCopies().folder.glob("*.arrow"):
        with contextlib.suppress(OSError):  # deleted since it was listed
            copies.append((path.name, path.stat().st_size))
    return copies


def copies_of(home: str, copies: Copies) -> Copies:
    """Return the copies of one pipeline.

    Args:
        home: Folder of its tables.
        copies: All of this host.
    """
    prefixes = []
    for table in ("state", *Decision.OWN_OUTPUTS):
        prefix = LocalCopies().prefix_of(f"{home}/{table}")
        prefixes.append(prefix)
    own = tuple(prefixes)
    return [copy for copy in copies if copy[0].startswith(own)]


def host_values(viewer: Viewer, root: str, copies: Copies) -> Values:
    """Return the host's values.

    Args:
        viewer: Viewer of the metrics.
        root: Folder of all pipelines' tables.
        copies: The local copies of this host.
    """
    values = Values(viewer)
    values.set("ebbtide_measured_timestamp_seconds", time.time())
    used_bytes = sum(n_bytes for _, n_bytes in copies)
    values.set("ebbtide_cache_bytes", used_bytes)
    values.set("ebbtide_cache_limit_bytes", LocalCopies().max_bytes)
    for name, folder in _local_folders(root):
        with contextlib.suppress(OSError):  # a folder that no run has created yet
            disk = shutil.disk_usage(folder)
            values.set("ebbtide_disk_free_bytes", disk.free, name)
            values.set("ebbtide_disk_size_bytes", disk.total, name)
    return values


def _local_folders(root: str) -> Iterable[tuple[str, Path]]:
    location = Location(root).resolved()
    if Location(location).is_local:
        yield "root", Path(location)
    yield "cache", LocalCopies().folder
