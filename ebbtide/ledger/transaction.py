"""Commits that carry the identity and the facts of a step: a stage that is made again is skipped by Delta."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from ebbtide.ledger.facts import StepFacts

APP_ID = "spark.databricks.delta.write.txnAppId"
APP_VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MATERIALIZE = "spark.databricks.delta.merge.materializeSource"


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
    writer.options(**options).save(path)


@contextmanager
def transaction(session: SparkSession, facts: StepFacts, stage: str) -> Iterator[None]:
    """Make the statements inside a stage of a step: MERGE takes its identity only from the session's settings.

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
        yield
    finally:
        for name in settings:
            session.conf.unset(name)
