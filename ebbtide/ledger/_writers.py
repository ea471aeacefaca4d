"""Puts a table's commits if they are absent, so that of two writers of a version one succeeds.

| where | by |
|---|---|
| local disks | a link |
| S3, Google Cloud Storage, Azure | a conditional put: of the store itself, without a JVM |
| elsewhere, HDFS for instance | the log store that Delta has for the place, in the JVM |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ebbtide.delta import Writer
from ebbtide.lines import lines_of
from ebbtide.storage import Location


def writer_of(table: str) -> Writer:
    """Return the writer of a table, by its store.

    Args:
        table: Its location.
    """
    path = table.removeprefix("file://")
    return LogStoreWriter(table) if Location(path).needs_jvm else Writer()


class LogStoreWriter(Writer):
    """Commits by Delta's own `LogStore`, in the JVM of the active session: for every store that Spark is configured for.

    The log store has to put a version only if it is absent.

    Args:
        table: Location of the table.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def put_if_absent(self, location: str, data: bytes, behind: Sequence[str] = ()) -> bool:
        """Put a file if it is absent; see `Writer`."""
        from py4j.protocol import Py4JJavaError
        from pyspark.sql import SparkSession

        Location.sync_together(behind)
        session: Any = SparkSession.active()
        jvm = session._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, self._table)
        actions = _scala_iterator(jvm, lines_of(data.decode()))
        path = jvm.org.apache.hadoop.fs.Path(location)
        configuration = session._jsparkSession.sessionState().newHadoopConf()
        path.getFileSystem(configuration).mkdirs(path.getParent())
        try:
            log.store().write(path, actions, False, configuration)
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" in str(error):
                return False
            raise
        return True


def _scala_iterator(jvm: Any, items: Iterable[Any]) -> Any:
    """Return Scala's iterator over items; the class that newer ones have in its place is not in Scala 2.12."""
    java = jvm.java.util.ArrayList()
    for item in items:
        java.add(item)
    return jvm.scala.collection.JavaConverters.asScalaIteratorConverter(java.iterator()).asScala()
