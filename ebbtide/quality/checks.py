"""The checks of a pipeline, by name. Importing this loads neither Spark nor Great Expectations."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.spec.pipeline import Pipeline


@dataclass(frozen=True)
class Check:
    """One check of a pipeline's sink.

    Args:
        name: Its name in Dagster.
        description: What it holds the tables to.
        blocking: Whether what reads the sink must wait until it passes.
    """

    name: str
    description: str
    blocking: bool = False


EXPECTATIONS = "expectations"
"""Name of the check that judges the rules of a project's own."""

CHECKS = (
    Check(
        "ordering",
        "Per key the order of the input that caused a change rises through the change feed, and the sink shows what the "
        "state decided; no key has two contents at one sequence; in a changelog each record can follow the one before.",
        blocking=True,
    ),
    Check("expiry", "No state entry lives past its time to live, and cleanup deletes what has expired."),
    Check("unique_key", "The sink has one row per key, and no key with a null."),
    Check("quarantine_rate", "The share of bad records stays below checks.max_quarantine_rate."),
    Check("foreign_writes", "Nobody but the pipeline changes the sink or its state."),
)
"""The checks that every pipeline has."""


def checks_of(spec: Pipeline) -> tuple[Check, ...]:
    """Return the checks of a pipeline: those of all, and `expectations` where its spec names some.

    Args:
        spec: The pipeline.
    """
    given = spec.checks.expectations
    if not given:
        return CHECKS
    named = ", ".join(each.type for each in given)
    description = f"The sink keeps to the project's own rules: {named}."
    is_blocking = any(each.severity == "critical" for each in given)
    return (*CHECKS, Check(EXPECTATIONS, description, is_blocking))
