"""Pipelines whose records were all bad so far: the sink never had a row, which is a failure."""

from __future__ import annotations

from ebbtide.amounts import amount
from ebbtide.delta import Log, Snapshot
from ebbtide.errors import EbbtideError
from ebbtide.faults import Fault
from ebbtide.redaction import printable
from ebbtide.runtime import Plan, RunSummary
from ebbtide.spec import Pipeline
from ebbtide.tables import Selection


def fault_of_all_bad(spec: Pipeline, root: str, run: RunSummary | None = None) -> EbbtideError | None:
    """Return why a pipeline that has bad records alone has not done its work; None where its sink has had a row, or nothing is bad.

    Args:
        root: Folder of all pipelines' tables.
        run: What a run did: one that has inserted rows is not looked at further. One that read bad records alone has failed,
            unless the spec allows it.
    """
    if run is not None and run.totals["inserted"]:
        return None
    plan = Plan.under(root, spec)
    n_bad = plan.quarantine.size()
    if not n_bad:
        return None
    kind = "all bad"
    if plan.sink_log is None or _has_had_rows(plan.sink_log):
        if run is None or not run.is_all_bad or spec.checks.may_all_be_bad:
            return None
        kind = "all of a run bad"
        n_bad = run.totals["quarantined"]
    bad = plan.quarantine.records(Selection())
    row = 0 if kind == "all bad" else bad.num_rows - 1
    [example] = bad.slice(row, 1).to_pylist()
    fault = Fault.of(
        "source",
        kind,
        pipeline=spec.name,
        records=amount(n_bad, "record"),
        first=printable(f"{example['reason']}: {example['detail']}"),
    )
    return fault.error


def _has_had_rows(sink: str) -> bool:
    """Return whether a version of a sink has had a data file, as far as its log goes back."""
    snapshot = Snapshot.read(sink, any_features=True)
    if snapshot is None:
        return False
    versions = Log(sink).versions()
    if snapshot.files or versions[0] > 0:
        return True
    return any("add" in action for version in versions for action in Log(sink).commit(version))
