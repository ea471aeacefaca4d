"""Commits that Spark makes with the identity and the facts of a step: Delta skips a stage that was committed before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ebbtide.delta import Log, Writer
from ebbtide.ledger._facts import StepFacts
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APP_ID = "spark.databricks.delta.write.txnAppId"
APP_VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
"""Copying of the source of a MERGE by Delta, which may read it twice. `none`: no copy is made, which is safe here, since the source is
files that do not change."""
UNSETTLED = 10
"""Number of the newest commits that may be unsynced after a killed run: those of one step, and of one maintenance job."""


def write(frame: DataFrame, path: str, facts: StepFacts, stage: str, mode: str = "append") -> None:
    """Write rows as a stage of a step.

    Args:
        frame: The rows; evaluated once, here.
        path: Location of the table.
        stage: `state`, `sink`, `changelog` or `quarantine`.
        mode: `append`, or `overwrite`, which also replaces the columns.
    """
    options: dict[str, str | int] = {
        "txnAppId": facts.transaction(stage),
        "txnVersion": facts.step,
        "userMetadata": facts.to_json(),
    }
    if mode == "overwrite":
        options["overwriteSchema"] = "true"
    writer = frame.write.format("delta").mode(mode)
    with settled(path):
        writer.options(**options).save(path)


@contextmanager
def settled(path: str) -> Iterator[None]:
    """Sync the commits that Spark makes in the `with` block, with their files, when the block ends.

    Args:
        path: Location of the table.
    """
    # Hadoop closes a local file without fsync, and a power cut can lose a commit that is not synced. Later commits, to the state or
    # the ledger, would then build on one that is gone. A cut before the sync may leave the newest commit incomplete: a repair then
    # rebuilds the table from the state.
    if not Location(path).is_local:
        yield
        return
    before = max(Log(path).versions(), default=-1)
    yield
    Writer().sync_commits(path, before)


def settle_newest(path: str) -> None:
    """Sync the newest commits: a run that was killed after a commit of Spark may not have synced it.

    Args:
        path: Location of the table.
    """
    if Location(path).is_local:
        newest = max(Log(path).versions(), default=-1)
        Writer().sync_commits(path, newest - UNSETTLED)


@contextmanager
def transaction(session: SparkSession, path: str, facts: StepFacts, stage: str) -> Iterator[None]:
    """Run the statement in the `with` block under the identity of one stage of a step.

    One statement per table and step: Delta skips a second one with the same identity. The source of a MERGE must be files that do not
    change: Spark may read it twice (see `MATERIALIZE`).
    """
    # A MERGE takes its identity only from the session's settings: they are set for it, and always unset.
    settings = {
        APP_ID: facts.transaction(stage),
        APP_VERSION: str(facts.step),
        METADATA: facts.to_json(),
        MATERIALIZE: "none",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        with settled(path):
            yield
    finally:
        for name in settings:
            session.conf.unset(name)
