"""How a table's commits are put: by a link on local disks, elsewhere through the log store that Delta has for the place."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ebbtide.delta.commit import LocalPuts, Puts

LOCAL = LocalPuts()


def puts_of(table: str) -> Puts:
    """Return what puts a table's commits.

    Args:
        table: Its location.
    """
    is_local = "://" not in table or table.startswith("file://")
    return LOCAL if is_local else LogStorePuts(table)


class LogStorePuts:
    """Through Delta's own `LogStore`, in the JVM of the session that is running: of every store that Spark is set up for.

    Whether a version is put only if it is absent is the store's promise: on S3 one writer's cluster at a time has it, or
    all with `spark.delta.logStore.s3a.impl=io.delta.storage.S3DynamoDBLogStore`.

    Args:
        table: Location of the table.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """See `Puts`."""
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
