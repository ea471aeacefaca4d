"""Faults of a version's data files, by their sizes, footers and vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ebbtide.delta._data_file import DataFile
from ebbtide.errors import DeltaLogError
from ebbtide.storage import Location, ParquetFile

LOOKS_AT_ONCE = 16
"""Files that are looked at in parallel."""


def faults_of(table: str, files: Iterable[DataFile]) -> str:
    """Describe the faults of some data files of a table; empty if there are none."""
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        # Size, footer and vector of each file, not its pages: cheap enough for each restore. `WholeFiles` reads all pages.
        fault_of = partial(_fault, table)
        n_files_by_fault = Counter(pool.map(fault_of, files))
    counts = []
    for fault, n_files in sorted(n_files_by_fault.items()):
        if fault:
            counts.append(f"{n_files} of its data files {fault}")
    return ", ".join(counts)


def _fault(table: str, file: DataFile) -> str:
    """Return the fault of a data file, by its size, its footer and its deletion vector; empty if it is whole."""
    location = file.location(table)
    size = Location(location).size()
    if size is None:
        return "deleted, as by VACUUM"
    has_size = size == file.size
    is_whole = has_size and _has_footer(location, file) and _has_vector(table, file)
    return "" if is_whole else "damaged, as by a power cut"


def _has_footer(location: str, file: DataFile) -> bool:
    noted = file.footer
    return noted is None or noted == ParquetFile(location).footer_checksum()


def _has_vector(table: str, file: DataFile) -> bool:
    if file.vector is None:
        return True
    try:
        file.deleted_rows(table)
    except DeltaLogError:
        return False
    return True
