"""Vacuum: what grows with time has an end. No step: no version that counts changes.

| what | goes when |
|---|---|
| data files, vectors and change files that no version within Delta's retention names, those of steps that died among them | older than `delta.deletedFileRetentionDuration` (7 days) |
| commits of the tables | older than `delta.logRetentionDuration` (30 days), once a checkpoint holds what they say |
| turns of the lease | all but the last thousand |
| staged files | at once: the last step is finished |
| files of processes that died before they named them | older than a day |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ebbtide.delta import Log, trim_log
from ebbtide.ledger import BESIDE_STATE
from ebbtide.operations._maintenance.measuring import Done
from ebbtide.runtime import Plan, Stepper
from ebbtide.storage import Location
from ebbtide.storage._location import DAY_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = re.compile(r"^[a-z0-9]+:/+")
"""The beginning of a location in a store, or of a local one as Spark names it."""


def vacuum(spark: SparkSession, stepper: Stepper, max_files: int | None = None) -> Done:
    """Delete what no table of a pipeline needs any more; it makes no step.

    Args:
        spark: The session.
        stepper: Holds the lease.
        max_files: The most data files, vectors and change files to delete; None: all.
    """
    plan = stepper.plan
    left = 0
    for name in ("state", *BESIDE_STATE):
        table = plan.at(name)
        if not Log(table).versions():
            continue
        trim_log(table)
        if max_files is None:
            spark.sql(f"VACUUM delta.`{table}`")
            continue
        listed = list(unneeded(spark, table))
        now = listed[:max_files]
        for location in now:
            Location(location).delete()
        max_files -= len(now)
        left += len(listed) - len(now)
    plan.ledger.trim()
    Location(plan.at("staged")).delete()
    Location(plan.rehearsal).delete()
    delete_all_unfinished(plan)
    return Done(is_step=False, left=left)


def unneeded(spark: SparkSession, table: str) -> dict[str, int]:
    """Return the locations of the files that VACUUM would delete, with their bytes, by its own dry run: a thousand at most.

    Folders, which it lists when they are empty, are left out.
    """
    rows = spark.sql(f"VACUUM delta.`{table}` DRY RUN").collect()
    sizes = {}
    for row in rows:
        location = location_of(row["path"], table)
        n_bytes = Location(location).size()
        if n_bytes is not None:
            sizes[location] = n_bytes
    return sizes


def location_of(listed: str, table: str) -> str:
    """Return the location of a file of a table that Spark lists, in the table's own words: Spark names the scheme in another way.

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
    """Return a location's path, from its bucket on in a store; `file:/data`, `file:///data` and `/data` are one."""
    path = SCHEME.sub("", location)
    return path.strip("/")


def delete_all_unfinished(plan: Plan, *, older_than_s: float = DAY_S) -> None:
    """Delete the files beside a pipeline's tables whose writers died before they named them; see `delete_unfinished`."""
    folders = [plan.root, *plan.checkpoint.folders]
    for name in ("state", *BESIDE_STATE, "ledger"):
        table = plan.at(name)
        folders += [table, Log(table).folder]
    for folder in folders:
        Location(folder).delete_unfinished(older_than_s=older_than_s)
