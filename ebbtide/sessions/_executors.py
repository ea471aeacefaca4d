"""The needs of executors on other machines: this release of Ebbtide, under the same Python."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import TYPE_CHECKING, Any

from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import RDD

    Found = tuple[str, str]


def refuse_unfit_executors(tasks: RDD[Any]) -> None:
    """Refuse a cluster whose executors lack what the driver sends them work for; else a step fails within a task.

    Args:
        tasks: A partition on each executor to look at.

    Raises:
        ConfigError: Ebbtide is not installed there, or is another release, or Python is another one.
    """

    def found_there(_: object) -> Found:
        """Look at an executor. A function within a function goes there by its code, so that nothing has to be installed."""
        import importlib.metadata
        import sys

        try:
            release = importlib.metadata.version("ebbtide")
        except importlib.metadata.PackageNotFoundError:
            release = "none"
        return f"{sys.version_info[0]}.{sys.version_info[1]}", release

    here = f"{sys.version_info[0]}.{sys.version_info[1]}", importlib.metadata.version("ebbtide")
    unfit = [there for there in tasks.map(found_there).collect() if there != here]
    if unfit:
        raise ConfigError.of(
            "The executors cannot do this driver's work.",
            got=_words(unfit[0]),
            allowed=_words(here),
            next_step=(
                "Use an image with it, or send an archive: --conf spark.archives=env.tar.gz#env "
                f"--conf spark.executorEnv.PYTHONPATH=env --conf spark.pyspark.python=python{here[0]}. "
                "On one machine, set PYSPARK_PYTHON to this Python before Spark starts."
            ),
        )


def _words(found: Found) -> str:
    python, release = found
    return f"Python {python}, ebbtide {release}"
