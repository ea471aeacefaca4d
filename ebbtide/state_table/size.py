"""How many data files a table has, without asking Spark at each step: planning a query for it costs more than the query."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ebbtide.delta import log

SHORT_LOG = 32
"""Up to how many commits a table's log is read from its beginning."""
LARGE_FILES = 16
"""From how many files on a table's reads are pruned by the range of keys: Spark compiles such a query anew each time."""


class TableSize:
    """Keeps the number of one table's files up from its log.

    Args:
        path: The table's location.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._version, self._files = -1, 0

    def is_large(self, spark: SparkSession) -> bool:
        """Tell whether the newest version has so many files that skipping some is worth it."""
        found = log.versions(self._path)
        unknown = [version for version in found if version > self._version]
        if self._version < 0 and (found[0] > 0 or len(unknown) > SHORT_LOG):
            self._files = len(spark.read.format("delta").load(self._path).inputFiles())
        else:
            self._files += sum(log.files_more(self._path, version) for version in unknown)
        self._version = found[-1]
        return self._files >= LARGE_FILES
