"""The connection through which Spark's JVM calls a query's function.

py4j opens one for each thread of the JVM that calls Python, with a thread in Python that listens on it, and keeps both when the JVM's thread has
ended. Each turn of the lease begins a query with a separate thread: a run of weeks would collect thousands of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

OnBatch = Callable[[DataFrame, int], None]


class CallbackConnection:
    """The connection of one query.

    Args:
        spark: The session of the query.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._java_port: int | None = None

    def noted(self, on_batch: OnBatch) -> OnBatch:
        """The same function, which notes the connection that it is called by."""

        def call(frame: DataFrame, batch_id: int) -> None:
            connection = self._gateway._gateway_client.get_thread_connection()
            _, self._java_port = connection.socket.getpeername()
            on_batch(frame, batch_id)

        return call

    def close(self) -> None:
        """Close both ends, once the query has ended; the thread in Python ends by it."""
        with contextlib.suppress(Py4JError, OSError):  # an ended JVM has closed its end
            for connection in self.kept_by_java():
                socket = connection.getSocket()
                if socket is not None and socket.getLocalPort() == self._java_port:
                    connection.shutdown()
                    self._java_client.connectionStopped(connection)

    @property
    def _java_client(self) -> Any:
        return self._gateway.java_gateway_server.getCallbackClient()

    def kept_by_java(self) -> list[Any]:
        """All connections that the JVM keeps and does not use just now, of other queries too."""
        client = self._java_client
        # py4j has no method that lists or ends them one by one.
        field = client.getClass().getSuperclass().getDeclaredField("connections")
        field.setAccessible(True)
        return list(field.get(client).toArray())
