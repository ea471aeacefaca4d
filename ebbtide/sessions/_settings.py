"""The settings that Spark starts with. Nothing of Spark is loaded here.

The later of these wins: Ebbtide's own, `spark-defaults.conf`, the environment's `EBBTIDE_MASTER` and `EBBTIDE_DRIVER_MEMORY`,
and what the caller gives. Lists of packages and extensions are joined, so that none of them goes without Delta.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from ebbtide.environment import DRIVER_MEMORY, from_environment
from ebbtide.environment import MASTER as MASTER_VARIABLE
from ebbtide.errors import ConfigError
from ebbtide.lines import lines_of
from ebbtide.redaction import hide, is_credential

UMASK, UMASK_OF_HADOOP = "spark.hadoop.fs.permissions.umask-mode", 0o022
"""The mode bits that Hadoop's clients remove from new files, and their default, regardless of the process' umask."""
PACKAGES, EXCLUDES, EXTENSIONS = "spark.jars.packages", "spark.jars.excludes", "spark.sql.extensions"
MASTER, PYTHON = "spark.master", "spark.pyspark.python"

SETTINGS = {
    EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.variable.substitute": "false",  # else a statement reads this process's environment: SELECT '${env:NAME}'
    "spark.sql.session.timeZone": "UTC",  # times are compared as UTC everywhere
    "spark.databricks.delta.snapshotPartitions": "2",  # Delta's 50 triple the cost of every small commit
    "spark.databricks.delta.vacuum.logging.enabled": "false",  # else each VACUUM makes two commits
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",  # VACUUM lists each table in so many tasks, else 10,000
    "spark.sql.adaptive.enabled": "false",  # saves 10 to 20 % of the CPU of small steps
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",  # any other value sizes every vector again for each row
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",  # C2 would never pay; C1 has 48 MB else, which a long life of queries fills
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",  # so that all tasks share their Python workers
    "spark.sql.streaming.stopTimeout": "600s",  # else a query that does not end holds its run permanently
    "spark.cleaner.periodicGC.interval": "5min",  # ended queries hold a thread and a connection here until then, else 30 minutes
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
ON_ONE_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "ebbtide.sessions._worker_daemon",
}
"""Further settings if all executors are local: other machines cannot reach the driver, and workers run this process's Ebbtide."""
OF_VARIABLES = {MASTER: MASTER_VARIABLE, "spark.driver.memory": DRIVER_MEMORY}
JOINED = (PACKAGES, EXTENSIONS)


def effective_settings(app_name: str, given: Mapping[str, str], of_file: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for building a session; those of `spark-defaults.conf` are left to Spark, which reads it.

    Args:
        app_name: Name of the application.
        given: Settings that override the rest; `${NAME}` is a variable of the environment.
        of_file: Those of `spark-defaults.conf`.

    Raises:
        ConfigError: a setting names a variable that is not set; the Spark that is installed is too old or too new.
    """
    from ebbtide.sessions._versions import SparkVersion

    cores = os.cpu_count() or 2
    version = SparkVersion.installed()
    ours = {
        MASTER: "local[*]",
        "spark.app.name": app_name,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.memory": "4g",
        PACKAGES: version.delta,
        # Hadoop's FileContext, the default, starts eight processes of `readlink` to rename a file of a disk: some 20 a step.
        "spark.sql.streaming.checkpointFileManagerClass": version.checkpoint_files,
        **SETTINGS,
    }
    umask = _umask()
    if umask != UMASK_OF_HADOOP:  # else what the site's own configuration says holds
        ours[UMASK] = f"{umask:03o}"
    of_environment = {name: variable.value for name, variable in OF_VARIABLES.items() if variable.value}
    asked = of_environment | resolved(given)
    named = {**of_file, **asked}
    if is_in_one_jvm(named.get(MASTER, ours[MASTER])):
        ours |= ON_ONE_MACHINE
    effective = {name: value for name, value in ours.items() if name not in of_file} | asked
    for name in JOINED:
        effective[name] = _joined(ours[name], named.get(name, ""))
    if EXCLUDES in named:  # the jars of packages are known by it too, also where only the file has it
        effective[EXCLUDES] = named[EXCLUDES]
    return effective


def _umask() -> int:
    umask = os.umask(0o077)  # it cannot be read without being set
    os.umask(umask)
    return umask


def is_in_one_jvm(master: str) -> bool:
    """Return whether a master's executors are in this process's JVM.

    Example:
        >>> is_in_one_jvm("local[2]"), is_in_one_jvm("spark://host:7077"), is_in_one_jvm("local-cluster[2,1,1024]")
        (True, False, False)
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def names_cluster(given: Mapping[str, str]) -> bool:
    """Return whether a session that is opened with some settings has its executors elsewhere.

    Args:
        given: Settings that override the rest.
    """
    master = given.get(MASTER) or OF_VARIABLES[MASTER].value or settings_of_file().get(MASTER)
    return master is not None and not is_in_one_jvm(master)


def settings_of_file() -> dict[str, str]:
    """Return what Spark's own file of defaults sets, by name; its credentials are shown nowhere from now on."""
    folder = os.environ.get("SPARK_CONF_DIR")
    home = os.environ.get("SPARK_HOME")
    if folder is None and home is not None:
        folder = str(Path(home) / "conf")
    file = None if folder is None else Path(folder) / "spark-defaults.conf"
    if file is None or not file.is_file():
        return {}
    settings = {}
    for line in lines_of(file.read_text(encoding="utf-8")):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        # As a Java properties file: a space, '=' or ':' ends the name.
        name, *rest = re.split(r"\s*[=:]\s*|\s+", text, maxsplit=1)
        settings[name] = rest[0] if rest else ""
        if is_credential(name):
            hide(settings[name])
    return settings


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with their references followed; what comes from the environment, and credentials, are shown nowhere."""
    values = {}
    for name, setting in settings.items():
        value = from_environment(f"The Spark setting '{name}'", setting)
        if is_credential(name):
            hide(value)
        values[name] = value
    return values


def refuse_literal_credentials(settings: Mapping[str, str]) -> None:
    """Refuse settings that hold a credential itself: Dagster shows the settings of resources, a machine its command lines.

    Raises:
        ConfigError: there are some.
    """
    literal = [name for name, value in settings.items() if is_credential(name) and not value.startswith("${")]
    if literal:
        raise ConfigError.of(
            "Spark settings have credentials in them, which can be read: in Dagster, or in the list of processes.",
            got=", ".join(literal),
            allowed="${NAME}, a variable of the environment",
        )


def python_of_workers(settings: Mapping[str, str]) -> str:
    """Return the Python that runs Spark's workers: this process's, but where executors are elsewhere and another one is named.

    Args:
        settings: All that are in effect, those of `spark-defaults.conf` among them.
    """
    if is_in_one_jvm(settings.get(MASTER, "local")):
        return sys.executable
    return settings.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _joined(ours: str, theirs: str) -> str:
    """Join two lists, separated by commas; common items occur once."""
    names = [*ours.split(","), *theirs.split(",")]
    present = (name.strip() for name in names)
    return ",".join(dict.fromkeys(filter(None, present)))
