"""Parts of a spec that say when Dagster starts its jobs, and how old the sink may be."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator

from ebbtide.cron import CronExpression
from ebbtide.durations import PositiveDuration, format_duration
from ebbtide.spec._parts import SpecPart, refuse


class EarlyCleanupConfig(SpecPart):
    """Starts ebbtide_cleanup early if it would free at least both amounts."""

    look: CronExpression = Field(
        default="H/15 * * * *",
        description="When the schedule checks, without a run. Default: 'H/15 * * * *'.",
    )
    min_share: float = Field(default=0.1, ge=0, le=1, description="Minimum share of expired entries. Default: 0.1.")
    min_bytes: int = Field(
        default=2**20, ge=0, description="Minimum bytes of data files that expired entries take. Default: 1 MiB."
    )


class SchedulesConfig(SpecPart):
    """Schedules of the jobs in Dagster: cron expressions of five fields in UTC, null for none; each is off until switched on.

    The minute `H` depends on the pipeline's name, so that not all start at once.
    """

    stream: CronExpression | None = Field(default="H/15 * * * *", description="The job NAME. Default: 'H/15 * * * *'.")
    check: CronExpression | None = Field(
        default="H * * * *",
        description="The job NAME_check of a continuous pipeline. Default: 'H * * * *'.",
    )
    cleanup: CronExpression | None = Field(
        default="H 3 * * *", description="The job ebbtide_cleanup. Default: 'H 3 * * *'."
    )
    early_cleanup: EarlyCleanupConfig | None = Field(
        default_factory=EarlyCleanupConfig,
        description="Also start by the amount that it would free; null: never. Default: that of EarlyCleanupConfig.",
    )
    compaction: CronExpression | None = Field(
        default="H 4 * * *", description="The job ebbtide_compaction. Default: 'H 4 * * *'."
    )
    vacuum: CronExpression | None = Field(
        default="H 5 * * *", description="The job ebbtide_vacuum. Default: 'H 5 * * *'."
    )


class FreshnessConfig(SpecPart):
    """Limits on the age of the sink's last materialization."""

    fail_window: PositiveDuration = Field(description="Age at which the sink is stale, 1m or more. Required.")
    warn_window: PositiveDuration | None = Field(
        default=None, description="Age at which a warning is shown; 1m or more, below fail_window. Default: none."
    )

    @model_validator(mode="after")
    def _dagster_takes_it(self) -> Self:
        least = timedelta(minutes=1)
        fail = self.fail_window
        warn = self.warn_window
        fail_text = format_duration(fail)
        if fail < least:
            refuse("fail_window", [fail_text], "1m or more")
        if warn is not None and not least <= warn < fail:
            refuse("warn_window", [format_duration(warn)], f"1m or more, below fail_window, {fail_text}")
        return self
