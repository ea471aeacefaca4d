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

from typing import TYPE_CHECKING

from delta import DeltaTable

from ebbtide.delta import log
from ebbtide.delta.checkpoints import trim_log
from ebbtide.ledger.checkpoint import KINDS
from ebbtide.ledger.lease import TURNS_KEPT
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.step import Stepper
from ebbtide.storage.paths import DAY_S, delete, delete_unfinished, join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def vacuum(spark: SparkSession, stepper: Stepper) -> bool:
    """Delete what no table of a pipeline needs any more; returns False, since it makes no step."""
    plan = stepper.plan
    for name in ("state", *BESIDE_STATE):
        table = plan.at(name)
        if log.versions(table):
            trim_log(table)
            DeltaTable.forPath(spark, table).vacuum()
    trim_log(plan.at("ledger"), commits_kept=TURNS_KEPT)
    delete(plan.at("staged"))
    delete(plan.rehearsal)
    delete_all_unfinished(plan)
    return False


def delete_all_unfinished(plan: Plan, *, older_than_s: float = DAY_S) -> None:
    """Delete the files beside a pipeline's tables whose writers died before they named them; see `delete_unfinished`."""
    checkpoint = plan.checkpoint.path
    folders = [plan.root, checkpoint, *(join(checkpoint, kind) for kind in KINDS)]
    for name in ("state", *BESIDE_STATE, "ledger"):
        table = plan.at(name)
        folders.append(join(table, log.LOG))
    for folder in folders:
        delete_unfinished(folder, older_than_s=older_than_s)
