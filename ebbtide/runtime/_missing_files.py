"""Finds missing data files of the newest version of state or sink: a run would not notice those that it does not read.

Each folder with such files is listed once, at the start of a run and by `status`; no file is opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ebbtide.amounts import amount, named
from ebbtide.delta import DataFile, Snapshot
from ebbtide.errors import DamagedFileError
from ebbtide.runtime._plan import Plan
from ebbtide.storage import Location

MOST_NAMED = 3
"""Missing files that the error names."""


def refuse_missing_files(plan: Plan, state: Snapshot, sink: Snapshot | None) -> None:
    """Refuse tables with missing data files or deletion vectors.

    Args:
        plan: The pipeline.
        state: The newest version of its state.
        sink: The newest version of its sink; None if it is not there.

    Raises:
        DamagedFileError: there is such a file.
    """
    refuse_missing_of(state, "state", plan)
    if sink is not None:
        refuse_missing_of(sink, "sink", plan)


def refuse_missing_of(snapshot: Snapshot, name: str, plan: Plan) -> None:
    """Refuse one of the tables; see `refuse_missing_files`.

    Args:
        snapshot: Its newest version.
        name: `state` or `sink`.
        plan: The pipeline.
    """
    missing = missing_files(snapshot)
    if missing:  # without the lease: another run may have replaced this version, and its files may be deleted
        snapshot = snapshot.advanced()
        missing = missing_files(snapshot)
    if not missing:
        return
    raise DamagedFileError.of(
        f"{amount(len(missing), 'file')} of the {name} at '{snapshot.table}' {'is' if len(missing) == 1 else 'are'} gone.",
        got=f"no {named(missing, MOST_NAMED)}",
        allowed=f"the files that version {snapshot.version} names",
        next_step=f"Restore them from a copy; without one {_way_out(name, plan)} Nothing was changed.",
    )


def missing_files(snapshot: Snapshot) -> list[str]:
    """Return the locations of files that a version names and that are not there, sorted."""
    names_in: Mapping[str, set[str]] = defaultdict(set)
    for location in _locations(snapshot.table, snapshot.files.values()):
        folder, _, name = location.rpartition("/")
        names_in[folder].add(name)
    missing = []
    for folder, names in names_in.items():
        missing += [f"{folder}/{name}" for name in names - Location(folder).file_names()]
    return sorted(missing)


def _locations(table: str, files: Iterable[DataFile]) -> Iterator[str]:
    for file in files:
        yield file.location(table)
        vector = file.vector_location(table)
        if vector is not None:
            yield vector


def _way_out(name: str, plan: Plan) -> str:
    refresh = "run 'ebbtide refresh' to rebuild all tables from the source."
    if name == "sink":
        has_rows = not plan.operator.has_named_states
        return (
            f"run 'ebbtide repair --apply', which takes the rows from the state; or {refresh}" if has_rows else refresh
        )
    return f"run 'ebbtide repair', which says how far back the files of the state are whole, and 'ebbtide rewind' to there; or {refresh}"
