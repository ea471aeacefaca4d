"""Chooses where the steps of a run are made: in this process, or on Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from ebbtide import java
from ebbtide.amounts import amount
from ebbtide.executors import Executor, InProcess
from ebbtide.runtime._plan import Plan
from ebbtide.sessions import OnSpark
from ebbtide.sources import Discovery
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 64 * 2**20
"""Bytes of files that a step in this process reads; decision 0036 has the measurement."""
MOST_RECORDS = 100_000
"""Records that such a step reads of a source that does not know their bytes."""


Runs = TypeVar("Runs", bound=Executor)


class OtherEngineError(Exception):
    """The other engine must read the waiting records: the run continues there."""


class Automatic(InProcess):
    """Runs work in this process, until a run needs Spark by its spec or by the records that wait: then on Spark.

    Args:
        open_spark: Returns the Spark session, the same each time. Default: one of `build_session` with the settings.
        settings: Settings of Spark that the session is opened with. Default: none.
    """

    def __init__(
        self,
        open_spark: Callable[[], SparkSession] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        settings = settings or {}
        if open_spark is None:
            open_spark = partial(_build_session, settings)
        self.on_spark = OnSpark(open_spark)
        self.has_cluster = OnSpark.names_cluster(settings)
        """Spark's executors are elsewhere: they take what this process would have to cut into many steps."""

    def spark(self) -> SparkSession:
        """Return Spark's session, which a sink of another package may use."""
        return self.on_spark.spark()


def _build_session(settings: Mapping[str, str]) -> SparkSession:
    from ebbtide.sessions import build_session  # loads PySpark

    return build_session(settings=settings)


def in_own_steps(executor: Executor, spec: Pipeline, root: str) -> Pipeline:
    """Return a pipeline with steps that this process can make, if only the size of a step requires Spark.

    Args:
        executor: What the caller of the run gave.
        root: Folder of all pipelines' tables.
    """
    is_open = isinstance(executor, Automatic) and not executor.has_cluster
    if not is_open or spec.engine == "local" or _why_spark(spec, root):
        return spec
    return spec.in_steps_of(MOST_RECORDS, MOST_BYTES)


@dataclass(frozen=True)
class _Step:
    """The most that one step of a pipeline reads.

    Args:
        n_records: Records of a source that is read by position.
        n_bytes: Bytes of files.
    """

    n_records: float = math.inf
    n_bytes: float = math.inf

    @classmethod
    def of(cls, spec: Pipeline) -> Self:
        """Return that of a spec."""
        source = spec.source
        n_records = getattr(source, "records_per_step", math.inf)
        n_bytes = getattr(source, "max_bytes_per_step", None) or math.inf
        return cls(n_records, n_bytes)


@dataclass(frozen=True)
class Engine:
    """Where the steps of a run are made.

    Args:
        executor: Runs their work.
        reason: Why this one.
        step: Maximum size of a step; a larger file is a separate step.
        auto: Leaves the choice to what waits; None: it is made for the whole run.
    """

    executor: Executor
    reason: str
    step: _Step = field(default_factory=_Step)
    auto: Automatic | None = None

    @classmethod
    def for_spec(cls, executor: Executor, spec: Pipeline, root: str) -> Self:
        """Choose for a pipeline whose backlog is not known yet. Spark starts when it is used first.

        Args:
            executor: What the caller of the run gave: only an automatic one leaves a choice.
            root: Folder of all pipelines' tables.

        Raises:
            JavaMissingError: Spark is needed, and cannot start.
        """
        if not isinstance(executor, Automatic):
            return cls(_of_pipeline(executor, spec), "as the caller asked")
        if spec.engine == "local":
            return cls(_of_pipeline(InProcess(), spec), "engine: local")
        reason = _why_spark(spec, root)
        if reason is None:
            executor = _of_pipeline(executor, spec)
            return cls(executor, "nothing to read", _Step.of(spec), executor)
        java.refuse_missing()  # before a table is made
        return cls(_of_pipeline(OnSpark.for_root(executor.spark, root), spec), reason)

    def for_found(self, found: Discovery) -> Engine:
        """Choose again, now that it is known what waits.

        Args:
            found: The records to read.
        """
        if self.auto is None:
            return self
        to_read, is_outgrown = _measured(found, self.step)
        executor = self.auto.on_spark if is_outgrown else self.auto
        return replace(self, executor=executor, reason=to_read)

    def refuse_other(self, found: Discovery | None) -> None:
        """Refuse to continue in this process with more than its step reads, or on Spark with less.

        Args:
            found: The records to read; None before the first look.

        Raises:
            OtherEngineError: the other engine must read it.
        """
        if found is None or self.auto is None:
            return
        to_read, is_outgrown = _measured(found, self.step)
        if is_outgrown != self.executor.has_spark:
            raise OtherEngineError(to_read)

    def text(self) -> str:
        """Write it for people."""
        return f"{self.executor.place}: {self.reason}"


def _of_pipeline(executor: Runs, spec: Pipeline) -> Runs:
    """Return the executor for the work of one pipeline; see `Executor.for_pipeline`."""
    return executor.for_pipeline(spec.engine, runs_user_code=spec.runs_user_code)


def _why_spark(spec: Pipeline, root: str) -> str | None:
    """Return why a pipeline always runs on Spark; None if it need not."""
    if Location(root).needs_jvm:
        return f"its root is '{root}'"
    if spec.engine == "spark":
        return "engine: spark"
    needs = Plan(root, spec).spark_needed_for
    return f"it has {needs[0]}" if needs else None


def _measured(found: Discovery, step: _Step) -> tuple[str, bool]:
    """Return a description of the amount to read, and whether a step of it is too large for this process."""
    n = 0
    n_of_step = 0.0
    most = MOST_RECORDS
    unit = "record"
    if found.parts:
        sizes = [size or 0 for _, size in found.parts]
        n = sum(sizes)
        n_of_step = min(n, max(step.n_bytes, *sizes))
        most = MOST_BYTES
        unit = "byte"
    elif found.span:
        n = found.span.size
        n_of_step = min(n, step.n_records)
    to_read = f"{amount(n, unit)} to read"
    if n_of_step <= most:
        return to_read, False
    return f"{to_read}, more than {amount(most, unit)}", True
