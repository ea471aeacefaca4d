"""Chooses where the steps of a run are made: in this process, or on Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

from ebbtide.amounts import amount
from ebbtide.sources.source import Discovery
from ebbtide.spec.pipeline import Pipeline
from ebbtide.storage.paths import needs_jvm
from ebbtide.tasks import LazySession, LocalSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 64 * 2**20
"""Waiting bytes of files that a local run reads; decision 0036 has the measurement."""
MOST_RECORDS = 100_000
"""Waiting records that a local run reads of a source that does not know their bytes."""


class OutgrownError(Exception):
    """More waits than a local run reads: it goes on, on Spark."""


@dataclass(frozen=True)
class AutoSession(LocalSession):
    """Stands for a Spark session until Spark is needed, which is opened then.

    Args:
        open_spark: Returns the Spark session, the same each time.
    """

    open_spark: Callable[[], SparkSession] = field(kw_only=True)

    def __getattr__(self, name: str) -> Any:
        """Return what only Spark has: a sink of another package may use it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.open_spark(), name)


def auto_session(open_spark: Callable[[], SparkSession] | None = None) -> SparkSession:
    """Return a session that a run makes its steps with: in this process, or on Spark where `engine` of its spec and the backlog ask for it.

    Args:
        open_spark: Returns the Spark session, the same each time. Default: one of `build_session`.
    """
    if open_spark is None:
        from ebbtide.runtime.session import build_session

        open_spark = build_session
    return cast("SparkSession", AutoSession(open_spark=open_spark))


@dataclass(frozen=True)
class Engine:
    """Where the steps of a run are made.

    Args:
        session: The session: Spark's, or one that stands for it.
        reason: Why this one.
    """

    session: SparkSession | LocalSession
    reason: str

    @classmethod
    def for_spec(cls, session: SparkSession | LocalSession, spec: Pipeline, root: str) -> Self:
        """Choose for a pipeline whose backlog is not known yet. Spark starts when it is used first.

        Args:
            session: What the caller of the run gave: only an automatic session leaves a choice.
            spec: The pipeline.
            root: Folder of all pipelines' tables.
        """
        if not isinstance(session, AutoSession):
            return cls(session, "as the caller asked")
        if spec.engine == "local":
            return cls(LocalSession(), "engine: local")
        if needs_jvm(root):
            return cls(session.open_spark(), f"its root is '{root}'")
        lazy_spark = cast("SparkSession", LazySession(session.open_spark))
        if spec.engine == "spark":
            return cls(lazy_spark, "engine: spark")
        needs = spark_needed_for(spec)
        if needs:
            return cls(lazy_spark, f"it has {needs[0]}")
        return cls(session, "nothing to read")

    @property
    def spark(self) -> SparkSession:
        """The session, for calls that take one."""
        return cast("SparkSession", self.session)

    @property
    def is_local(self) -> bool:
        """Whether steps are made in this process."""
        return isinstance(self.session, LocalSession)

    def for_found(self, found: Discovery) -> Engine:
        """Choose again, now that it is known what waits; it never goes back from Spark.

        Args:
            found: What there is to read.
        """
        session = self.session
        if not isinstance(session, AutoSession):
            return self
        waiting, most = _measured(found)
        if most is None:
            return replace(self, reason=f"{waiting} to read")
        return Engine(session.open_spark(), f"{waiting} to read, more than {most}")

    def refuse_outgrown(self, found: Discovery | None) -> None:
        """Refuse to go on in this process with more than it reads at a time.

        Args:
            found: What there is to read; None before the first look.

        Raises:
            OutgrownError: it is more.
        """
        if found is None or not isinstance(self.session, AutoSession):
            return
        waiting, most = _measured(found)
        if most is not None:
            raise OutgrownError(f"{waiting} to read, more than {most}")

    def text(self) -> str:
        """Write it for people."""
        return f"{'in this process' if self.is_local else 'on Spark'}: {self.reason}"


def spark_needed_for(spec: Pipeline) -> list[str]:
    """Name what of a pipeline only Spark can do."""
    parts = {
        "a materialized view, whose query is Spark's": spec.is_view,
        "a transform, which Spark evaluates": spec.has_transform,
        "a sink that Spark writes or makes (sink.write: merge, sink.table_properties)": spec.spark_makes_sink,
    }
    return [part for part, is_there in parts.items() if is_there]


def _measured(found: Discovery) -> tuple[str, str | None]:
    """Return how much waits, and the bound that it exceeds; None if it does not."""
    if found.parts:
        n_bytes = sum(size or 0 for _, size in found.parts)
        return amount(n_bytes, "byte"), amount(MOST_BYTES, "byte") if n_bytes > MOST_BYTES else None
    n_records = found.span.size if found.span else 0
    return amount(n_records, "record"), amount(MOST_RECORDS, "record") if n_records > MOST_RECORDS else None
