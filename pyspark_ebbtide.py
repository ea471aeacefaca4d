"""Makes Ebbtide a format of Spark: `spark.read.format("ebbtide")`. Spark looks for Python data sources in modules whose names begin with `pyspark_`."""

from ebbtide.inspect import StateSource as DefaultSource

__all__ = ["DefaultSource"]
