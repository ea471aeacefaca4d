"""Whether a sink equals the shop's source database, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from local.support import SHOP, lines_of
from oracles.reference import canonical_rows, differences

from ebbtide.delta import Snapshot
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline


def same_as_truth(spec: Pipeline, root: Path) -> bool:
    """Whether a shop pipeline's sink equals the source database."""
    truth = [json.loads(line) for line in lines_of(SHOP / "truth" / f"{spec.name}.jsonl.gz")]
    columns = spec.sink_table.columns
    snapshot = Snapshot.read(Plan.under(str(root), spec).at("sink"))
    rows = snapshot.rows(columns).to_pylist()
    return differences(canonical_rows(rows, columns), canonical_rows(truth, columns)) == []
