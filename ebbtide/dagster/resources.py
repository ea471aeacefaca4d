"""Dagster resources: the Spark session, the roots, the clock. Each has defaults."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from ebbtide.environment import ROOT
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.runtime import Automatic

DEFAULT_ROOT = ".ebbtide"
"""Folder of all tables where neither a resource nor `EBBTIDE_ROOT` names one; relative to the process's folder."""


class EngineName(StrEnum):
    """Names of engines, as Dagster's configuration takes them."""

    auto = "auto"
    spark = "spark"
    local = "local"


class SparkResource(dg.ConfigurableResource["SparkResource"]):
    """One lazy session for all steps of a run; a step that needs none starts no JVM."""

    settings: dict[str, str] = Field(
        default_factory=dict,
        description="Spark settings that override Ebbtide's; ${NAME} is a variable of the environment. Default: none.",
    )
    engine: EngineName | None = Field(
        default=None,
        description="Where runs make their steps, in place of `engine` of each spec. Default: none, as each spec says.",
    )
    _session: SparkSession | None = PrivateAttr(default=None)
    _starting: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    @property
    def session(self) -> SparkSession:
        """The session; started now if it was not."""
        with self._starting:
            if self._session is None:
                from ebbtide.sessions import build_session, refuse_literal_credentials

                refuse_literal_credentials(self.settings)
                self._session = build_session("ebbtide", self.settings, keeps_sigint=True)
            return self._session

    @property
    def for_runs(self) -> Automatic:
        """Lets a run choose its engine; starts Spark if that is chosen."""
        from ebbtide.runtime import Automatic

        return Automatic(lambda: self.session, self.settings)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the streams that are left, then the session and its JVM."""
        if self._session is None:
            return
        from ebbtide.sessions import end_session

        session, self._session = self._session, None
        end_session(session)


def _root_from_environment() -> str:
    """Return the root; one with credentials is refused before Dagster can show it."""
    root = ROOT.value or DEFAULT_ROOT
    Location(root).refuse_unusable("EBBTIDE_ROOT")
    return root


class StorageResource(dg.ConfigurableResource["StorageResource"]):
    """The roots of all stored data."""

    root: str = Field(
        default_factory=_root_from_environment,
        description="Folder of all pipelines' tables: a path or a URI. Default: EBBTIDE_ROOT, else .ebbtide.",
    )
    data_docs: str = Field(
        default_factory=lambda: str(Path(DEFAULT_ROOT) / "data_docs"),
        description="Local folder for Great Expectations' Data Docs. Default: .ebbtide/data_docs.",
    )
    keep_data_docs: int = Field(default=20, gt=0, description="Data Docs kept per pipeline and check. Default: 20.")

    def docs_of(self, pipeline: str) -> Path:
        """Return the folder of a pipeline's Data Docs."""
        return Path(self.data_docs).resolve() / pipeline


class ClockResource(dg.ConfigurableResource["ClockResource"]):
    """The wall clock, or one that stands still: a run can be repeated, a test can move it."""

    fixed_ms: int | None = Field(default=None, description="A fixed time, epoch ms. Default: none, the wall clock.")

    def now_ms(self) -> int:
        """Return the time, epoch ms."""
        return time.time_ns() // 1_000_000 if self.fixed_ms is None else self.fixed_ms


@dataclass(frozen=True)
class Means:
    """The resources of a step.

    Args:
        spark: Its session.
        storage: The roots.
        clock: The clock.
    """

    spark: SparkResource
    storage: StorageResource
    clock: ClockResource
