"""Parts of a spec that say when Dagster starts its jobs, and how old the sink may be."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator

from ebbtide.model.cron import CronExpression
from ebbtide.model.durations import PositiveDuration, format_duration
from ebbtide.spec.parts import SpecPart, refuse


class SchedulesConfig(SpecPart):
    """Schedules of the jobs in Dagster, as cron expressions of five fields in UTC; each schedule is off until switched on.

    The minute `H` depends on the pipeline's name, so that pipelines do not all start at the same minute.
    """

    stream: CronExpression | None = Field(
        default="H/15 * * * *", description="The job NAME; null: no schedule. Default: 'H/15 * * * *'."
    )
    check: CronExpression | None = Field(
        default="H * * * *",
        description="The job NAME_check of a continuous pipeline; null: no schedule. Default: 'H * * * *'.",
    )
    cleanup: CronExpression | None = Field(
        default="H 3 * * *", description="The job ebbtide_cleanup; null: no schedule. Default: 'H 3 * * *'."
    )
    compaction: CronExpression | None = Field(
        default="H 4 * * *", description="The job ebbtide_compaction; null: no schedule. Default: 'H 4 * * *'."
    )
    vacuum: CronExpression | None = Field(
        default="H 5 * * *", description="The job ebbtide_vacuum; null: no schedule. Default: 'H 5 * * *'."
    )


class FreshnessConfig(SpecPart):
    """Limits on the age of the sink's last materialization."""

    fail_window: PositiveDuration = Field(description="Age at which the sink is stale, 1m or more. Required.")
    warn_window: PositiveDuration | None = Field(
        default=None, description="Age at which it is about to be; 1m or more, below fail_window. Default: none."
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
