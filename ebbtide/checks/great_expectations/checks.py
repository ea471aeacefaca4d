"""The checks of a pipeline: the one place that knows all. Importing this loads neither Spark nor Great Expectations.

A new check is a module like those of `ebbtide.checks`, with its rules and a function `judge`, and an entry in `CHECKS`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ebbtide.checks.great_expectations.wording import WAYS_OUT
from ebbtide.durations import format_duration
from ebbtide.errors import EbbtideError
from ebbtide.ledger import LastVerdict
from ebbtide.spec import DeltaSink, Pipeline, StatefulPipeline

if TYPE_CHECKING:
    from pathlib import Path

    from ebbtide.checks._engines import Engines
    from ebbtide.checks._judged import Batch, Judged
    from ebbtide.checks._version_range import VersionRange
    from ebbtide.checks.great_expectations.verdict import Verdict
    from ebbtide.runtime import Plan

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Check:
    """One check of a pipeline's sink.

    Args:
        name: Its name in Dagster.
        description: The rule for the tables.
        judge: `module:function` that yields the batches that it judges (`Judged` in, `Batch` out), loaded when it runs.
        repair: The remedy after a failure.
        blocking: Readers of the sink must wait until it passes.
    """

    name: str
    description: str
    judge: str
    repair: str = ""
    blocking: bool = False

    def way_out(self, verdict: Verdict) -> str:
        """Return the remedy; empty if the check passed.

        Args:
            verdict: Its verdict.
        """
        broken = [finding.expectation for finding in verdict.findings if finding.broken]
        ways = [WAYS_OUT.get(expectation, self.repair) for expectation in broken]
        return " ".join(dict.fromkeys(ways))

    def load(self) -> Callable[[Judged], Iterator[Batch]]:
        """Load the function that yields its batches."""
        judge: Callable[[Judged], Iterator[Batch]] = resolve_name(self.judge)
        return judge

    def verdict(
        self,
        tables: Plan,
        window: VersionRange,
        engines: Engines,
        clock_ms: int,
        docs: Path | None = None,
        keep: int = 1,
    ) -> Verdict:
        """Judge a pipeline's tables, and store the verdict for the status.

        Args:
            window: The versions to judge.
            engines: Where rules run.
            clock_ms: The time, epoch ms.
            docs: Where Data Docs are written; None: none are.
            keep: Sites of them that are kept.
        """
        from ebbtide.checks._judged import Judged
        from ebbtide.checks.great_expectations.validate import validate

        judge = self.load()
        judged = Judged(engines, tables, window, clock_ms)
        verdict = validate(self.name, judge(judged), docs, keep)
        self._note(tables, verdict, clock_ms)
        return verdict

    def _note(self, tables: Plan, verdict: Verdict, clock_ms: int) -> None:
        """Store a verdict; a user who may only read the tables still gets it."""
        broken = sum(finding.broken for finding in verdict.findings)
        last = LastVerdict(check=self.name, outcome=verdict.outcome, broken=broken, at_ms=clock_ms)
        try:
            last.note(tables.root, [check.name for check in checks_of(tables.spec)])
        except (OSError, EbbtideError) as error:
            _log.warning("The verdict of '%s' on '%s' was not stored: %s", self.name, tables.spec.name, error)


REPAIR = "Run 'ebbtide repair --apply' to bring the sink to what the state shows; or 'ebbtide acknowledge --reason TEXT', if the change was intended."
CHECKS = (
    Check(
        "next_run",
        "The next run is not refused: spec, tables and source are as it needs them. A source that does not answer warns.",
        judge="ebbtide.checks._next_run:judge",
        repair="Do what the refusal says; 'ebbtide status' has it too.",
    ),
    Check(
        "ordering",
        "For each key, newer sink changes come from newer input, and the sink shows what the "
        "state decided; no key has two contents at one sequence; in a changelog each record can follow the one before. Retractions find "
        "their rows, and no change loses to a row with an older event time: one warns, more than checks.max_unapplied_rate fail.",
        judge="ebbtide.checks._ordering:judge",
        repair=REPAIR,
        blocking=True,
    ),
    Check(
        "complete",
        "The sink has exactly the rows that the state shows: compared whole, by key.",
        judge="ebbtide.checks._completeness:judge",
        repair=REPAIR,
        blocking=True,
    ),
    Check(
        "expiry",
        "No state entry lives past its time to live, and cleanup deletes expired entries, also from the data files.",
        judge="ebbtide.checks._expiry:judge",
        repair="Run the pipeline: 'ebbtide run' expires due entries.",
    ),
    Check(
        "unique_key",
        "The sink has one row per key, and no key with a null.",
        judge="ebbtide.checks._keys:judge",
        repair=REPAIR,
    ),
    Check(
        "quarantine_rate",
        "The share of bad records stays below checks.max_quarantine_rate.",
        judge="ebbtide.checks._quarantine:judge",
        repair="Repair the records or the spec; then, or if so many are normal: 'ebbtide acknowledge --reason TEXT', or raise checks.max_quarantine_rate.",
    ),
    Check(
        "schema_drift",
        "The source's records have no columns that the schema lacks; it warns.",
        judge="ebbtide.checks._schema_drift:judge",
        repair="Add the columns to the schema and run 'ebbtide migrate --apply', or list them under ignored_columns.",
    ),
    Check(
        "foreign_writes",
        "Only the pipeline changes the sink and its state.",
        judge="ebbtide.checks._writes:judge",
        repair=REPAIR,
    ),
    Check(
        "source_loss",
        "No records of the source were lost before they were read or before a refresh; every tombstone of a topic had its delete.",
        judge="ebbtide.checks._source_loss:judge",
        repair="Run 'ebbtide refresh' once the source has all records again (of deletes: docs/how-to/debezium.md); or 'ebbtide acknowledge --reason TEXT', if the sink may do without them.",
    ),
)
"""The checks of pipelines."""
OF_DELTA_SINK = frozenset({"ordering", "complete", "unique_key", "expectations"})
"""Those that read the sink's rows or its log: a pipeline whose sink is no Delta table has none of them."""

OF_STATE_WITH_ROWS = frozenset({"complete"})
"""Those that compare the sink with the state: that of a user's function does not have the sink's rows."""


def checks_of(spec: Pipeline) -> tuple[Check, ...]:
    """Return the checks of a pipeline: those of all, and those that its spec asks for."""
    every = (*CHECKS, *_event_time(spec), *_state_size(spec), *_own_rules(spec))
    left_out: frozenset[str] = frozenset()
    if not isinstance(spec.sink, DeltaSink):
        left_out = OF_DELTA_SINK
    elif isinstance(spec, StatefulPipeline):
        left_out = OF_STATE_WITH_ROWS
    return tuple(check for check in every if check.name not in left_out)


def _event_time(spec: Pipeline) -> Iterator[Check]:
    max_delay = spec.checks.max_event_delay
    if max_delay is None:
        return
    yield Check(
        "event_time",
        f"The newest event is no older than {format_duration(max_delay)}.",
        judge="ebbtide.checks._event_time:judge",
        repair="See why the source has nothing new: check the database's connector, or the writer of the files. If it is quiet by nature, raise checks.max_event_delay.",
    )


def _state_size(spec: Pipeline) -> Iterator[Check]:
    limits = spec.checks
    if limits.max_state_bytes is None and limits.max_state_rows is None:
        return
    yield Check(
        "state_size",
        "The state is no larger than checks.max_state_bytes and checks.max_state_rows allow.",
        judge="ebbtide.checks._state_size:judge",
        repair="Run 'ebbtide cleanup' and 'ebbtide compact'; if it stays as large, shorten the ttl, or raise the limit.",
    )


def _own_rules(spec: Pipeline) -> Iterator[Check]:
    given = spec.checks.expectations
    if not given:
        return
    types = ", ".join(each.type for each in given)
    yield Check(
        "expectations",
        f"The sink keeps to the project's own rules: {types}.",
        judge="ebbtide.checks.great_expectations.spec_expectations:judge",
        repair="Repair the rows at their source, or change the rules in checks.expectations.",
        blocking=any(each.severity == "critical" for each in given),
    )
