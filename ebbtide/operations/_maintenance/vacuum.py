"""Vacuum: deletes files that are no longer needed, so that storage does not grow forever. It makes no step.

| files | deleted when |
|---|---|
| data files, vectors and change files that no version within Delta's retention names, including those of failed steps | older than `delta.deletedFileRetentionDuration` (7 days) |
| commits of the tables | older than `delta.logRetentionDuration` (30 days), once a checkpoint has their content |
| turns of the lease | all but the last thousand |
| staged files | at once: the last step is finished |
| the folders `checkpoint` and `requests` of releases before format 4 | at once: the ledger has their content |
| files of processes that died before committing them | older than a day |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ebbtide.delta import Log
from ebbtide.ledger import BESIDE_STATE, writer_of
from ebbtide.operations._maintenance.measuring import Done
from ebbtide.runtime import Plan, Stepper
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.executors import Executor

DAY_S = 86_400
OF_EARLIER_RELEASES = ("checkpoint", "requests")
"""Folders of a pipeline that nothing reads any more."""
SCHEME = re.compile(r"^[a-z0-9]+:/+")
"""Prefix of a location in a store, or of a local location in Spark's form."""


def vacuum(executor: Executor, stepper: Stepper, max_files: int | None = None) -> Done:
    """Delete files that no table of a pipeline needs; makes no step.

    Args:
        stepper: Holds the lease.
        max_files: Maximum data files, vectors and change files to delete; None: all.
    """
    plan = stepper.plan
    left = 0
    for name in ("state", *BESIDE_STATE):
        table = plan.at(name)
        if not Log(table).versions():
            continue
        writer_of(table).trim_log(table)
        if max_files is None:
            executor.spark().sql(f"VACUUM delta.`{table}`")
            continue
        listed = list(unneeded(executor, table))
        now = listed[:max_files]
        for location in now:
            Location(location).delete()
        max_files -= len(now)
        left += len(listed) - len(now)
    plan.ledger.trim()
    Location(plan.at("staged")).delete()
    Location(plan.rehearsal).delete()
    for name in OF_EARLIER_RELEASES:
        Location(plan.at(name)).delete()
    delete_all_unfinished(plan)
    return Done(is_step=False, left=left)


def unneeded(executor: Executor, table: str) -> dict[str, int]:
    """Return the locations and bytes of files that VACUUM would delete, by its dry run: at most a thousand.

    Folders, which it lists when they are empty, are left out.
    """
    rows = executor.spark().sql(f"VACUUM delta.`{table}` DRY RUN").collect()
    sizes = {}
    for row in rows:
        location = location_of(row["path"], table)
        n_bytes = Location(location).size()
        if n_bytes is not None:
            sizes[location] = n_bytes
    return sizes


def location_of(listed: str, table: str) -> str:
    """Convert a file's location as listed by Spark to the table's form: Spark writes schemes differently.

    Example:
        >>> location_of("file:/data/t/sink/part-0.parquet", "/data/t/sink")
        '/data/t/sink/part-0.parquet'
        >>> location_of("s3a://shop/t/sink/_change_data/0.parquet", "s3://shop/t/sink")
        's3://shop/t/sink/_change_data/0.parquet'
    """
    folder = _without_scheme(table)
    _, _, name = _without_scheme(listed).partition(f"{folder}/")
    return Location(table) / name


def _without_scheme(location: str) -> str:
    """Return a location's path, in a store starting with the bucket; `file:/data`, `file:///data` and `/data` are equal."""
    path = SCHEME.sub("", location)
    return path.strip("/")


def delete_all_unfinished(plan: Plan, *, older_than_s: float = DAY_S) -> None:
    """Delete a pipeline's files whose writers died before committing them; see `delete_unfinished`."""
    folders = [plan.root]
    for name in ("state", *BESIDE_STATE, "ledger"):
        table = plan.at(name)
        folders += [table, Log(table).folder]
    for folder in folders:
        Location(folder).delete_unfinished(older_than_s=older_than_s)
