"""Mounts that a test makes in a namespace of its own."""

from __future__ import annotations

import subprocess
from functools import cache

IN_NAMESPACE = ("unshare", "--map-root-user", "--mount")


@cache
def can_mount() -> bool:
    """Return whether this system lets us mount in a namespace of our own."""
    command = [*IN_NAMESPACE, "mount", "-t", "tmpfs", "none", "/tmp"]  # noqa: S108 - in that namespace
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
