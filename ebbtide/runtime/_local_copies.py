"""Drops the local copies of data files that hold erased rows; see `ebbtide.delta._key_index`.

The name of a copy begins with its table's. One of an earlier release names no table: it is known by its columns and rows. One that cannot be read may
hold any row, and goes too: a copy is made again where it is needed.

An erasure reaches the folder of its process, and the default one. On other hosts, and in other folders, copies are
deleted by generation: each erasure begins another one, and the next process there that runs, changes or checks the
pipeline deletes all copies of an earlier one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ebbtide.delta import Held, LocalCopies
from ebbtide.ledger import BESIDE_STATE, NoStep, StepFacts
from ebbtide.model import ErasedKeys
from ebbtide.runtime._erasing import doomed_in
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.runtime._plan import Plan


def generation_of(plan: Plan, last: StepFacts | NoStep) -> str:
    """Return the generation of a pipeline's local copies: another one after each erasure; empty before the first.

    Args:
        plan: The pipeline.
        last: Facts of its last step.
    """
    if isinstance(last, NoStep):
        return ""
    if plan.spec.is_view:  # an erasure in its inputs has it computed from scratch, under another incarnation
        return last.incarnation
    return last.state.erased or ""


def drop_older_copies(plan: Plan, last: StepFacts | NoStep) -> None:
    """Delete the copies of a pipeline in this process's folders that are of an earlier generation, as an erasure on another host leaves them.

    Args:
        plan: The pipeline.
        last: Facts of its last step.
    """
    generation = generation_of(plan, last)
    if not generation:
        return
    for copies in LocalCopies.reached():
        for table in _tables(plan):
            copies.drop_older(table, generation)


def _tables(plan: Plan) -> list[str]:
    return [plan.at(name) for name in ("state", *BESIDE_STATE)]


def drop_copies(plan: Plan, erased: ErasedKeys, generation: str) -> Held:
    """Delete the copies in this process's folders that hold erased rows.

    Args:
        plan: The pipeline.
        erased: The keys.
        generation: That of the copies from then on.
    """
    ways = [doomed_in(plan, name, erased) for name in ("state", "sink")]
    tables = _tables(plan)
    total = Held()
    for copies in LocalCopies.reached():
        if not (copies.folder.is_dir() and Location(copies.folder).is_ours()):
            continue
        for path in copies.possibly_of(tables):
            n_rows = copies.n_held(path, ways)
            if n_rows is None or n_rows:
                with contextlib.suppress(OSError):
                    size = path.stat().st_size
                    path.unlink()
                    total += Held(n_rows or 0, 1, size)
        for table in tables:
            copies.begin(table, generation)
        copies.close_deleted()
    return total
