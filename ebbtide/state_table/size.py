"""How many data files a table has, without asking Spark at each step: planning a query for it costs more than the query."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ebbtide.delta import log

SHORT_LOG = 32
"""Up to how many commits a table's log is read from its beginning."""
LARGE_FILES = 16
"""From how many files on a table's reads are pruned by the range of keys: Spark compiles such a query for each range."""


class TableSize:
    """Keeps the number of one table's files up from its log.

    Args:
        path: The table's location.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._version = -1
        self._n_files = 0

    def is_large(self, spark: SparkSession) -> bool:
        """Return whether the newest version has so many files that it pays to skip some."""
        # Invariant: `_n_files` is the number of files as of `_version`. Each call reads the commits since then.
        commits = log.versions(self._path)
        unread = [version for version in commits if version > self._version]
        is_first_call = self._version < 0
        is_long = commits[0] > 0 or len(unread) > SHORT_LOG
        if is_first_call and is_long:
            table = spark.read.format("delta").load(self._path)
            self._n_files = len(table.inputFiles())
        else:
            for version in unread:
                self._n_files += log.files_more(self._path, version)
        self._version = commits[-1]
        return self._n_files >= LARGE_FILES
