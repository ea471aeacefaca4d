"""The changelog without Spark: each step's emissions are appended once, under columns that may change."""

import json

import pyarrow as pa
import pytest
from frame.limits import set_limits
from local.local_run import SPARK
from local.made_facts import made_facts as facts
from local.made_facts import stands_above

from ebbtide.delta import Snapshot
from ebbtide.model import SchemaChange
from ebbtide.tables import ChangelogTable

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("seq", pa.int64())])


def order(step, part, position):
    return {"step": step, "part": part, "position": position}


@pytest.fixture
def changelog(tmp_path):
    set_limits(width=2)
    return ChangelogTable(str(tmp_path / "changelog"), COLUMNS)


def emitted(changelog, *kinds):
    rows = [{"_kind": kind, "id": 1, "n": at, "_order": order(1, 0, at), "_number": 0} for at, kind in enumerate(kinds)]
    return pa.Table.from_pylist(rows, changelog.schema)


def emissions(changelog):
    rows = Snapshot.read(changelog.path).rows(changelog.schema).to_pylist()
    return [(row["_kind"], row["id"], tuple(row["_order"].values())) for row in rows]


def test_emissions_of_a_step_and_its_truncate_are_appended_once(changelog):
    assert changelog.last_step() == 0
    changelog.append(emitted(changelog, "+I", "-D"), facts(1))
    changelog.append(emitted(changelog, "+I"), facts(1))
    assert emissions(changelog) == [("+I", 1, (1, 0, 0)), ("-D", 1, (1, 0, 1))]
    assert changelog.last_step() == 1
    made = Snapshot.read(changelog.path)
    assert (made.metadata["name"], made.transactions) == ("changelog", {"t/changelog": 1})
    changelog.append(emitted(changelog), stands_above(2, (2, 0, 5)))
    assert len(emissions(changelog)) == 2, "the floor of an earlier step is not appended again"
    changelog.append(emitted(changelog, "+I"), facts(3, raises=(3, 1, 5)))
    assert max(emissions(changelog)) == ("T", None, (3, 1, 5))
    assert len(Snapshot.read(changelog.path).files) < 3, "small files are joined"
    assert len(emissions(changelog)) == 4


def test_only_kinds_have_statistics(changelog):
    changelog.append(emitted(changelog, "+I", "-D"), facts(1))
    [file] = Snapshot.read(changelog.path).files.values()
    assert json.loads(file.add["stats"])["minValues"] == {"_kind": "+I"}


def test_emptied_changelog_has_the_spec_s_columns(changelog):
    changelog.append(emitted(changelog, "+I"), facts(1))
    wider = ChangelogTable(changelog.path, pa.schema([*COLUMNS, ("more", pa.string())]))
    wider.empty(facts(2, "reset"))
    assert emissions(wider) == []
    made = Snapshot.read(changelog.path)
    assert (wider.last_step(), made.transactions) == (2, {"t/changelog": 2})
    assert "more" in made.metadata["schemaString"]
    ChangelogTable(changelog.path + "-absent", COLUMNS).empty(facts(2, "reset"))


def test_altered_changelog_has_its_emissions_under_the_new_columns(changelog):
    changelog.append(emitted(changelog, "+I"), facts(1))
    wider = ChangelogTable(changelog.path, pa.schema([*COLUMNS, ("more", pa.int32())]))
    wider.alter(SPARK, COLUMNS, SchemaChange(added={"more": 7}), facts(2, "migration"))
    [row] = Snapshot.read(changelog.path).rows(wider.schema).to_pylist()
    assert (row["_kind"], row["id"], row["more"], row["_order"]) == ("+I", 1, 7, order(1, 0, 0))
    assert Snapshot.read(changelog.path).transactions == {"t/changelog": 2}
    [file] = Snapshot.read(changelog.path).files.values()
    assert json.loads(file.add["stats"])["minValues"] == {"_kind": "+I"}
