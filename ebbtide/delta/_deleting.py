"""Deletes rows from data files, by deletion vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ebbtide.delta import _vectors as vectors
from ebbtide.delta._commit import now_ms
from ebbtide.delta._data_file import DataFile
from ebbtide.delta._log import Action


class LostRows(NamedTuple):
    """The rows that a data file loses.

    Args:
        file: The file.
        dead: Positions of all its deleted rows, those deleted before included.
        is_whole: No row is left.
    """

    file: DataFile
    dead: BitMap64
    is_whole: bool


def deleting(table: str, losses: Sequence[LostRows]) -> list[Action]:
    """Return the actions that delete rows; a file without a row left is removed, and gets no vector.

    Args:
        table: Location of the table.
        losses: One for each file.
    """
    at_ms = now_ms()
    actions = [loss.file.removed(at_ms, data_change=True) for loss in losses]
    partly = [loss for loss in losses if not loss.is_whole]
    dead = [loss.dead for loss in partly]
    # All vectors of a commit are in one file: one put, and one sync.
    descriptors = vectors.write(table, dead)
    for loss, descriptor in zip(partly, descriptors, strict=True):
        add = loss.file.with_vector(descriptor, data_change=True)
        actions.append(add)
    return actions
