"""Features that another client gives one of a pipeline's tables: the next write of it is refused by name, and follows once they are gone."""

from pathlib import Path

import pytest
from frame.thinned import graded
from local.altering import REFUSED, altered, put_back
from local.local_pipeline import up

import ebbtide
from ebbtide.delta import Log
from ebbtide.errors import DeltaFeatureError
from ebbtide.ledger import Lease

EVERY = {"order": "arrival", "materializer": {"emission": "every"}}
TABLES = ("state", "sink", "changelog", "quarantine", "ledger")
FEATURES = ("inCommitTimestamp", "rowTracking", "checkConstraints", "fromLater")
LINES = (up(1, 2), up(2, 1), "[")


def is_unwritten(path, version):
    return Log(path).versions()[-1] == version


@pytest.mark.parametrize("table", graded(TABLES, ("state", "sink", "quarantine")))
def test_table_with_a_feature_that_is_not_written_gets_no_commit_until_it_is_gone(make, table):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1), "[")
    path = pipeline.plan.at(table)
    pipeline.put(*LINES)
    for feature in FEATURES:
        before = Log(path).versions()[-1]
        altered(path, feature, REFUSED[feature])
        with pytest.raises(DeltaFeatureError, match=f"{path}.*written.*{feature}"):
            pipeline.run()
        assert is_unwritten(path, before + 1)
        put_back(path, before)
    pipeline.run()
    assert pipeline.rows() == {1: 2, 2: 1}
    assert pipeline.is_idle()
    kinds = [row["_kind"] for row in pipeline.table("changelog", pipeline.plan.changelog.schema)]
    assert sorted(kinds) == ["+I", "+I", "+U"]
    assert len(pipeline.table("quarantine", pipeline.plan.quarantine.schema)) == 2


@pytest.mark.parametrize("feature", FEATURES)
def test_ledger_with_a_feature_that_is_not_written_takes_no_turn(make, feature):
    pipeline = make()
    ledger = pipeline.plan.at("ledger")
    pipeline.read(up(1, 1))
    with Lease(ledger, "t", 3600) as lease:
        before = Log(ledger).versions()[-1]
        altered(ledger, feature, REFUSED[feature])
        with pytest.raises(DeltaFeatureError, match=feature):
            lease._renew()
        with pytest.raises(DeltaFeatureError, match=feature):
            pipeline.act("pause", clock_ms=0, reason="a look")
        assert is_unwritten(ledger, before + 1)
        put_back(ledger, before)


def test_all_commits_pass_the_one_gate():
    """A module that put a version by itself would write a table that must be refused."""
    top = Path(ebbtide.__file__).parent
    found = set()
    for path in top.rglob("*.py"):
        if ".commit_version(" in path.read_text():
            found.add(path.relative_to(top).as_posix())
    assert found == {"delta/_writer.py"}
