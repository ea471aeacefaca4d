"""The needs of a session that another program has opened: in a notebook of a platform, or in a job of a user's own.

It is used as it is: all other settings of `build_session` make small steps cheaper, and keep what they write off the screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebbtide.errors import ConfigError
from ebbtide.sessions._executors import refuse_unfit_executors
from ebbtide.sessions._versions import SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"
UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
CATALOG = "spark.sql.catalog.spark_catalog"
TO_START = (
    "Start it with spark.jars.packages={delta}, spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog."
)

_fit: set[str] = set()
"""Applications whose Delta and whose executors are known to fit."""


def note_fit(session: SparkSession) -> None:
    """Note that the application of a session has what is needed: `build_session` has opened it."""
    _fit.add(session.sparkContext.applicationId)


def refuse_unfit_session(session: SparkSession) -> None:
    """Refuse a session in which a run would fail, or would read times in another zone.

    Raises:
        ConfigError: it is of Spark Connect, of another version, has no Delta, executors that lack Ebbtide, or another time zone.
    """
    module = type(session).__module__
    if module.startswith("pyspark.sql.connect."):
        raise ConfigError.of(
            "A session of Spark Connect cannot run a pipeline: steps use the driver's JVM.",
            got=module,
            allowed="a classic session: of a cluster's own notebook or job, not of a serverless one",
            next_step="Set engine: local in the spec, and give ebbtide.InProcess() in its place: that run needs no Spark.",
        )
    if session.sparkContext.applicationId not in _fit:
        version = SparkVersion.of(session.version)
        _refuse_without_delta(session, version)
        refuse_unfit_executors(session.sparkContext.parallelize([0], 1))
        note_fit(session)
    zone = session.conf.get(ZONE, None)
    if zone not in UTC:
        raise ConfigError.of(
            "The session has another time zone: times would be read in it.",
            got=f"{ZONE}={zone}",
            allowed=UTC[0],
            next_step=f"Set it: spark.conf.set('{ZONE}', '{UTC[0]}').",
        )


def _refuse_without_delta(session: Any, version: SparkVersion) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    lookup = session._jvm.org.apache.spark.sql.execution.datasources.DataSource
    next_step = TO_START.format(delta=version.delta)
    try:
        source = lookup.lookupDataSource("delta", session._jsparkSession.sessionState().conf()).getName()
    except (Py4JError, PySparkException) as error:
        raise ConfigError.of("The session has no Delta.", got="no data source 'delta'", next_step=next_step) from error
    # Platforms have a Delta that is wired in, under names of theirs.
    catalog = str(session.conf.get(CATALOG, ""))
    if source.startswith("org.apache.spark.sql.delta.") and "Delta" not in catalog:
        raise ConfigError.of("The session does not use its Delta.", got=f"{CATALOG}={catalog}", next_step=next_step)
