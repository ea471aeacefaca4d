"""The checks of a pipeline's sink, judged by Great Expectations in the session of the run."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from ebbtide import Pipeline
from ebbtide.dagster.resources import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.stream import pool
from ebbtide.dagster.supervise import supervised
from ebbtide.quality.checks import CHECKS

LOOK_BACK = 100
"""Evaluations among which the last good one is looked for; without one, everything is judged again."""


def sink_checks(spec: Pipeline) -> dg.AssetChecksDefinition:
    """Make the checks of a pipeline. They judge what came since each was last passed, so red stays red."""

    @dg.multi_asset_check(
        name=f"{spec.name}_checks",
        specs=[
            dg.AssetCheckSpec(check.name, asset=spec.name, description=check.description, blocking=check.blocking)
            for check in CHECKS
        ],
        can_subset=True,
        pool=pool(spec),
    )
    def checks(
        context: dg.AssetCheckExecutionContext, spark: SparkResource, storage: StorageResource, clock: ClockResource
    ) -> Iterator[dg.AssetCheckResult]:
        blocking = {check.name for check in CHECKS if check.blocking}
        for key in sorted(context.selected_asset_check_keys, key=lambda each: (each.name in blocking, each.name)):
            yield supervised(lambda report, stop, key=key: _judge(spec, key, context, spark, storage, clock))

    return checks


def _judge(
    spec: Pipeline,
    key: dg.AssetCheckKey,
    context: dg.AssetCheckExecutionContext,
    spark: SparkResource,
    storage: StorageResource,
    clock: ClockResource,
) -> dg.AssetCheckResult:
    from ebbtide.dagster.check_results import not_judged, to_check_result
    from ebbtide.quality.suite import batches
    from ebbtide.quality.validate import validate
    from ebbtide.rules.version_range import VersionRange
    from ebbtide.runtime.tables import Tables

    tables = Tables.under(storage.root, spec)
    if tables.state.last() is None:
        return not_judged(key, "The pipeline has made no step yet.")
    window = VersionRange.after(tables, _last_good(context.instance, key))
    found = batches(spark.session, tables, key.name, window, clock.now_ms())
    verdict = validate(key.name, found, storage.docs_of(spec.name) / key.name, storage.keep_data_docs)
    return to_check_result(key, verdict, window)


def _last_good(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dict[str, Any] | None:
    """Return up to which versions a check was judged good last."""
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=LOOK_BACK):
        evaluation = record.evaluation
        if isinstance(evaluation, dg.AssetCheckEvaluation) and evaluation.passed and "judged" in evaluation.metadata:
            return dict(evaluation.metadata["judged"].value)
    return None
