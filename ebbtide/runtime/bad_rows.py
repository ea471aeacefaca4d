"""How many bad records a step may have."""

from __future__ import annotations

from ebbtide.errors import QuarantineThresholdError
from ebbtide.runtime.plan import Plan


def refuse_too_many(plan: Plan, n_bad: int, n_records: int) -> None:
    """Refuse a step with more bad records than the spec allows.

    Args:
        plan: The pipeline.
        n_bad: Bad records of the step.
        n_records: All its records.

    Raises:
        QuarantineThresholdError: there are too many; nothing is committed.
    """
    limit = plan.spec.quarantine.max_rows_per_step
    if n_bad <= limit:
        return
    raise QuarantineThresholdError.of(
        f"Pipeline '{plan.spec.name}' met too many bad records in one step; nothing of it was committed.",
        got=f"{n_bad} of {n_records}",
        allowed=f"up to {limit} (quarantine.max_rows_per_step)",
        next_step=f"See their reasons in '{plan.at('staged')}' (_reason, _detail, _raw), then repair the source or the spec, or raise the limit.",
    )
