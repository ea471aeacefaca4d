"""Checkpoints of a table's log: with one, readers need no older commit."""

from __future__ import annotations

import logging

INTERVAL = 100
"""Commits between two checkpoints."""
_log = logging.getLogger(__name__)


def checkpoint_if_due(table: str, version: int) -> None:
    """Write a checkpoint of every hundredth version. One that cannot be written is only missed: the next one holds all.

    Args:
        table: The table's location.
        version: The version that was just committed.
    """
    if version == 0 or version % INTERVAL:
        return
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable(table, version=version).create_checkpoint()
    except (DeltaError, OSError) as error:
        _log.warning("No checkpoint of version %d of '%s' was written: %s", version, table, error)
