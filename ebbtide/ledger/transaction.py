"""Commits that carry the identity and the facts of a step: a stage that is made again is skipped by Delta."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.delta.commit import named_files
from ebbtide.errors import DeltaLogError
from ebbtide.ledger.facts import StepFacts
from ebbtide.storage.disk import sync_below
from ebbtide.storage.paths import is_file, is_local, join, list_files

APP_ID = "spark.databricks.delta.write.txnAppId"
APP_VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
UNSETTLED = 10
"""Newest commits among which are those that a killed run has not waited for: one step's, and those of one maintenance job."""


def write(frame: DataFrame, path: str, facts: StepFacts, stage: str, mode: str = "append") -> None:
    """Write rows as a stage of a step.

    Args:
        frame: The rows, evaluated once, here.
        path: The table.
        facts: The step's.
        stage: `state`, `sink`, `changelog` or `quarantine`.
        mode: `append`, or `overwrite`, which replaces the columns too.
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
    """Wait at the end until what Spark has committed inside is on disk: Hadoop closes a local file without it.

    So nothing that is committed later, to the state or the checkpoint, relies on what a power cut takes away. A cut before that may
    tear the newest commit: then a repair makes the table from the state.

    Args:
        path: The table.
    """
    if not is_local(path):
        yield
        return
    before = max(log.versions(path), default=-1)
    yield
    settle(path, before)


def settle_newest(path: str) -> None:
    """Wait until the newest commits are on disk: a run that was killed behind one that Spark had made did not wait for it.

    Args:
        path: The table.
    """
    if is_local(path):
        newest = max(log.versions(path), default=-1)
        settle(path, newest - UNSETTLED)


def settle(path: str, since: int) -> None:
    """Wait until commits are on disk with the files that they name, as far as these are still there; checkpoints of the log too.

    Args:
        path: The table, on a local disk.
        since: The version before the first of them.
    """
    folder = join(path, log.LOG)
    of_log = [name for name in list_files(folder) if name[:20].isdigit() and int(name[:20]) > since]
    named = []
    for name in of_log:
        if name.endswith(log.COMMIT):
            with suppress(DeltaLogError):  # a reader of the table says what is wrong with it
                named += named_files(path, log.read_actions(join(folder, name)))
    kept = [file for file in named if is_file(file)]
    sync_below(path, kept)
    sync_below(path, [join(folder, name) for name in of_log])


@contextmanager
def transaction(session: SparkSession, path: str, facts: StepFacts, stage: str) -> Iterator[None]:
    """Make the statements inside a stage of a step on a table: MERGE takes its identity only from the session's settings.

    A second statement of the same identity on one table is skipped by Delta: one statement per table and step. The
    source of a MERGE inside is read where it stands: it must be files that do not change.
    """
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
