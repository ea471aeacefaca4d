"""The checks of a pipeline's sink, judged by Great Expectations; what they read decides whether the run's session is started."""

import threading
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ebbtide import Pipeline
from ebbtide.checks import Check, checks_of
from ebbtide.dagster.metadata import maintenance_pool
from ebbtide.dagster.resources import ClockResource, Means, SparkResource, StorageResource
from ebbtide.dagster.supervise import supervised

if TYPE_CHECKING:
    from ebbtide.checks import Engines, Newest

LOOK_BACK = 100
"""Evaluations among which the last good one is looked for; without one, everything is judged again."""


def sink_checks(spec: Pipeline) -> dg.AssetChecksDefinition:
    """Make the checks of a pipeline. They judge what came since each was last passed, so red stays red."""

    @dg.multi_asset_check(
        name=f"{spec.name}_checks",
        specs=[_check_spec(spec, check) for check in _known(spec)],
        can_subset=True,
        pool=maintenance_pool(spec),
    )
    def checks(
        context: dg.AssetCheckExecutionContext,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> Iterator[dg.AssetCheckResult]:
        wanted = context.selected_asset_check_keys
        yield from judged(spec, wanted, context.instance, Means(spark, storage, clock))

    return checks


def judged(
    spec: Pipeline,
    wanted: Container[dg.AssetCheckKey] | None,
    instance: dg.DagsterInstance,
    means: Means,
) -> Iterator[dg.AssetCheckResult]:
    """Judge a pipeline; those checks that block come last.

    Args:
        spec: The pipeline.
        wanted: The checks; None: all.
        instance: Has their last results.
        means: The resources.
    """
    from ebbtide.checks import Engines

    newest = supervised(lambda report, stop: _newest(spec, means.storage))
    engines = Engines(lambda: means.spark.session)
    for check in _known(spec):
        key = dg.AssetCheckKey(dg.AssetKey(spec.name), check.name)
        if wanted is not None and key not in wanted:
            continue
        last_good = _last_good(instance, key)
        yield supervised(_Judge(spec, check, key, last_good, newest, engines, means.storage, means.clock))


def _known(spec: Pipeline) -> list[Check]:
    """Return the checks of a pipeline. One that blocks and fails ends the step: they come last, so that the rest are judged all the same."""
    return sorted(checks_of(spec), key=lambda check: check.blocking)


def blocking_checks(spec: Pipeline) -> set[str]:
    """Return the names of a pipeline's checks that block what reads its sink."""
    return {check.name for check in checks_of(spec) if check.blocking}


def _check_spec(spec: Pipeline, check: Check) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        check.name,
        asset=spec.name,
        description=check.description,
        blocking=check.blocking,
    )


@dataclass(frozen=True)
class _Judge:
    """Judges one check, in this process or in the session of the run.

    Args:
        spec: The pipeline.
        check: The check.
        key: Its key in Dagster.
        last_good: Last versions that were judged good.
        newest: Last versions to judge; None before the first step.
        engines: Engines of rules: a session is started for large inputs.
        storage: The roots.
        clock: The clock.
    """

    spec: Pipeline
    check: Check
    key: dg.AssetCheckKey
    last_good: dict[str, Any] | None
    newest: "Newest | None"
    engines: "Engines"
    storage: StorageResource
    clock: ClockResource

    def __call__(self, report: Callable[[object], None], stop: threading.Event) -> dg.AssetCheckResult:
        from ebbtide.checks import VersionRange
        from ebbtide.dagster.check_results import not_judged, to_check_result
        from ebbtide.runtime import Plan

        if self.newest is None:
            return not_judged(self.key, "The pipeline has made no step yet.")
        tables = Plan.under(self.storage.root, self.spec)
        window = VersionRange.after(tables, self.last_good, self.newest)
        docs = self.storage.docs_of(self.spec.name) / self.check.name
        verdict = self.check.verdict(
            tables, window, self.engines, self.clock.now_ms(), docs, self.storage.keep_data_docs
        )
        return to_check_result(self.key, verdict, window, self.check.way_out(verdict))


def _newest(spec: Pipeline, storage: StorageResource) -> "Newest | None":
    """Return the input of the check; None before the first step. Data Docs from before an erasure are deleted."""
    from ebbtide.checks import Newest
    from ebbtide.operations import delete_older_sites
    from ebbtide.runtime import Plan

    newest = Newest.between_steps(Plan.under(storage.root, spec))
    if newest is not None:
        delete_older_sites(storage.docs_of(spec.name), newest.generation)
    return newest


def _last_good(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dict[str, Any] | None:
    """Return the last versions that a check judged good."""
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=LOOK_BACK):
        evaluation = record.evaluation
        if not isinstance(evaluation, dg.AssetCheckEvaluation) or not evaluation.passed:
            continue
        judged = evaluation.metadata.get("judged")
        if isinstance(judged, dg.JsonMetadataValue) and isinstance(judged.value, Mapping):
            return dict(judged.value)
    return None
