"""Has the archive of Spark's classes written, by which each JVM of the tests starts in half the time. `make test` calls it."""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from ebbtide import UpsertPipeline, build_session, run
from ebbtide.sessions import end_session
from ebbtide.sessions._class_archive import archive_path

ROOT = Path(__file__).resolve().parents[2]


def work(spark: SparkSession) -> None:
    """Load the classes of a run, and of a reader of its sink."""
    spec = UpsertPipeline.load(ROOT / "pipelines" / "defs" / "shop" / "price_list")
    with tempfile.TemporaryDirectory() as folder:
        summary = run(spark, spec, folder)
        spark.read.format("delta").load(f"{summary.root}/sink").groupBy().count().collect()


def writes_archive(session: SparkSession) -> bool:
    """Return whether the JVM of a session writes the archive as it ends: the first one only finds out which jars there are."""
    return session.sparkContext._gateway.class_archive.unnamed is not None


def main() -> None:
    """Start sessions until there is an archive."""
    for _ in range(2):
        if not archive_path().exists():
            session = build_session()
            if writes_archive(session):
                work(session)
            end_session(session)
    sys.stderr.write(f"{archive_path()}: {'there' if archive_path().exists() else 'not written'}\n")


if __name__ == "__main__":
    main()
