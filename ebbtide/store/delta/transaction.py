"""A transaction's identity for statements that take it from the session only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

APP_ID, APP_VERSION, METADATA, MATERIALIZE = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
    "spark.databricks.delta.merge.materializeSource",
)


@contextmanager
def transaction(session: SparkSession, app_id: str, step: int, metadata: str) -> Iterator[None]:
    """Give the statements inside one identity: MERGE takes it only from the session's settings.

    A second statement of the same identity on one table is skipped by Delta: one statement per table and step. The
    source of a MERGE inside is read where it stands: it must be files that do not change.
    """
    settings = {APP_ID: app_id, APP_VERSION: str(step), METADATA: metadata, MATERIALIZE: "none"}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)
