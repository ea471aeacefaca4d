"""The Spark session of a run: started when first asked for, stopped when the run ends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(dg.ConfigurableResource["SparkResource"]):
    """One lazy session for all steps of a run; a step that needs none starts no JVM."""

    settings: dict[str, str] = Field(
        default_factory=dict, description="Spark settings that override Ebbtide's. Default: none."
    )
    _session: SparkSession | None = PrivateAttr(default=None)
    _starting: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    @property
    def session(self) -> SparkSession:
        """The session; started now if it was not."""
        with self._starting:
            if self._session is None:
                from ebbtide.streaming.session import build_session, sigint_kept

                with sigint_kept():
                    self._session = build_session("ebbtide", self.settings)
            return self._session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the streams that are left, then the session and its JVM."""
        if self._session is None:
            return
        for query in self._session.streams.active:
            query.stop()
        spark = type(self._session.sparkContext)
        gateway = spark._gateway  # the JVM outlives `stop`, and PySpark gives no other handle
        self._session.stop()
        self._session = None
        spark._gateway = spark._jvm = None  # a later run in this process starts a JVM of its own
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when its standard input does
        gateway.proc.wait(timeout=60)
