"""Chooses where the steps of a run are made: in this process, or on Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from ebbtide import java
from ebbtide.amounts import amount
from ebbtide.runtime._plan import Plan
from ebbtide.sessions import names_cluster
from ebbtide.sources import Discovery
from ebbtide.spec import Pipeline
from ebbtide.storage import Location
from ebbtide.tasks import LocalSession, lazy_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 64 * 2**20
"""Bytes of files that a step in this process reads; decision 0036 has the measurement."""
MOST_RECORDS = 100_000
"""Records that such a step reads of a source that does not know their bytes."""


class OtherEngineError(Exception):
    """The other engine must read the waiting records: the run continues there."""


@dataclass(frozen=True)
class AutoSession(LocalSession):
    """Stands for a Spark session until Spark is needed, which is opened then.

    Args:
        open_spark: Returns the Spark session, the same each time.
        has_cluster: Its executors are elsewhere: they take what this process would have to cut into many steps.
    """

    open_spark: Callable[[], SparkSession] = field(kw_only=True)
    has_cluster: bool = field(default=False, kw_only=True)

    def __getattr__(self, name: str) -> Any:
        """Return what only Spark has: a sink of another package may use it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.open_spark(), name)


def auto_session(
    open_spark: Callable[[], SparkSession] | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session that a run makes its steps with: in this process, or on Spark where `engine` of its spec and the backlog ask for it.

    Args:
        open_spark: Returns the Spark session, the same each time. Default: one of `build_session` with the settings.
        settings: Settings of Spark that the session is opened with. Default: none.
    """
    settings = settings or {}
    if open_spark is None:
        from ebbtide.sessions import build_session

        open_spark = partial(build_session, settings=settings)
    return cast("SparkSession", AutoSession(open_spark=open_spark, has_cluster=names_cluster(settings)))


def in_own_steps(session: SparkSession | LocalSession, spec: Pipeline, root: str) -> Pipeline:
    """Return a pipeline with steps that this process can make, if only the size of a step requires Spark.

    Args:
        session: What the caller of the run gave.
        root: Folder of all pipelines' tables.
    """
    is_open = isinstance(session, AutoSession) and not session.has_cluster
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
        session: Spark's session, or its local replacement.
        reason: Why this one.
        step: Maximum size of a step; a larger file is a separate step.
        auto: Leaves the choice to what waits; None: it is made for the whole run.
    """

    session: SparkSession | LocalSession
    reason: str
    step: _Step = field(default_factory=_Step)
    auto: AutoSession | None = None

    @classmethod
    def for_spec(cls, session: SparkSession | LocalSession, spec: Pipeline, root: str) -> Self:
        """Choose for a pipeline whose backlog is not known yet. Spark starts when it is used first.

        Args:
            session: What the caller of the run gave: only an automatic session leaves a choice.
            root: Folder of all pipelines' tables.

        Raises:
            JavaMissingError: Spark is needed, and cannot start.
        """
        if not isinstance(session, AutoSession):
            return cls(session, "as the caller asked")
        if spec.engine == "local":
            return cls(LocalSession(), "engine: local")
        reason = _why_spark(spec, root)
        if reason is None:
            return cls(session, "nothing to read", _Step.of(spec), session)
        java.refuse_missing()  # before a table is made
        return cls(lazy_session(session.open_spark, root), reason)

    @property
    def spark(self) -> SparkSession:
        """The session, for calls that take one."""
        return cast("SparkSession", self.session)

    @property
    def is_local(self) -> bool:
        """Return whether steps are made in this process."""
        return isinstance(self.session, LocalSession)

    def for_found(self, found: Discovery) -> Engine:
        """Choose again, now that it is known what waits.

        Args:
            found: The records to read.
        """
        if self.auto is None:
            return self
        to_read, is_outgrown = _measured(found, self.step)
        session = self.auto.open_spark() if is_outgrown else self.auto
        return replace(self, session=session, reason=to_read)

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
        if is_outgrown == self.is_local:
            raise OtherEngineError(to_read)

    def text(self) -> str:
        """Write it for people."""
        return f"{'in this process' if self.is_local else 'on Spark'}: {self.reason}"


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
