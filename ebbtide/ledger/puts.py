"""How a table's commits are put if they are absent, so that of two writers one has a version.

| where | by |
|---|---|
| local disks | a link |
| S3, Google Cloud Storage, Azure | a conditional put: of the store itself, without a JVM |
| elsewhere, HDFS for instance | the log store that Delta has for the place, in the JVM |
"""

from __future__ import annotations

from typing import Any

from ebbtide.delta.commit import LocalPuts, Puts
from ebbtide.storage.paths import is_in_object_store, is_local

LOCAL = LocalPuts()


def puts_of(table: str) -> Puts:
    """Return what puts a table's commits.

    Args:
        table: Its location.
    """
    if is_local(table) or table.startswith("file://"):
        return LOCAL
    return ObjectPuts() if is_in_object_store(table) else LogStorePuts(table)


def refuse_unsafe(table: str) -> None:
    """Refuse an object store that overwrites what is to be put if it is absent.

    Args:
        table: Location of a table in it.

    Raises:
        StoreUnsafeError: it does.
    """
    if not is_in_object_store(table):
        return
    from ebbtide.storage.bucket import bucket_of, parted

    _, key = parted(table)
    bucket_of(table).refuse_overwriting(key)


class ObjectPuts:
    """By a conditional put, `If-None-Match: *`."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """See `Puts`."""
        from ebbtide.storage.bucket import bucket_of, parted

        _, key = parted(location)
        return bucket_of(location).put_if_absent(key, data)


class LogStorePuts:
    """Through Delta's own `LogStore`, in the JVM of the session that is running: of every store that Spark is set up for.

    Whether a version is put only if it is absent is the store's promise.

    Args:
        table: Location of the table.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """See `Puts`."""
        from py4j.protocol import Py4JJavaError
        from pyspark.sql import SparkSession

        session: Any = SparkSession.active()
        jvm = session._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, self._table)
        lines = jvm.java.util.ArrayList()
        for line in data.decode().splitlines():
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
