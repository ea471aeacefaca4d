"""Puts a table's commits if they are absent, so that of two writers of a version one succeeds.

| where | by |
|---|---|
| local disks | a link |
| S3, Google Cloud Storage, Azure | a conditional put: of the store itself, without a JVM |
| elsewhere, HDFS for instance | the log store that Delta has for the place, in the JVM |
"""

from __future__ import annotations

from typing import Any

from ebbtide.delta import Puts
from ebbtide.delta._commit import LocalPuts
from ebbtide.lines import lines_of
from ebbtide.storage import is_in_object_store, is_local

LOCAL = LocalPuts()


def puts_of(table: str) -> Puts:
    """Return the puts of a table's store.

    Args:
        table: Its location.
    """
    if is_local(table) or table.startswith("file://"):
        return LOCAL
    return ObjectPuts() if is_in_object_store(table) else LogStorePuts(table)


def refuse_unsafe(table: str) -> None:
    """Refuse an object store that ignores the condition of a put, and overwrites.

    Args:
        table: Location of a table in it.

    Raises:
        StoreUnsafeError: the store overwrites.
    """
    if not is_in_object_store(table):
        return
    from ebbtide.storage._bucket import bucket_of, parted

    _, key = parted(table)
    bucket_of(table).refuse_overwriting(key)


class ObjectPuts:
    """Puts by a conditional request, `If-None-Match: *`."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Put a file if it is absent; see `Puts`."""
        from ebbtide.storage._bucket import bucket_of, parted

        _, key = parted(location)
        return bucket_of(location).put_if_absent(key, data)


class LogStorePuts:
    """Puts by Delta's own `LogStore`, in the JVM of the active session: for every store that Spark is configured for.

    The log store has to put a version only if it is absent.

    Args:
        table: Location of the table.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Put a file if it is absent; see `Puts`."""
        from py4j.protocol import Py4JJavaError
        from pyspark.sql import SparkSession

        session: Any = SparkSession.active()
        jvm = session._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, self._table)
        lines = jvm.java.util.ArrayList()
        for line in lines_of(data.decode()):
            lines.add(line)
        actions = jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines.iterator())
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
