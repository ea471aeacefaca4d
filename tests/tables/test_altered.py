"""Tables that another client alters between any two of our puts: written as they are then, or refused by the feature's name."""

import json
import random
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from frame.limits import set_limits
from local.altering import REFUSED, altered
from local.made_facts import made_facts as facts

from ebbtide.delta import DataFile, Definition, Log, Snapshot, Transaction, Writer
from ebbtide.errors import DeltaFeatureError, TableMismatchError
from ebbtide.executors import InProcess
from ebbtide.ledger import _writers as ledger_writers
from ebbtide.model import Restore
from ebbtide.tables._replaced_rows import Upsert
from ebbtide.tables._step_commits import commit_and_join, commit_stage, restore_stage
from ebbtide.tables._upsert import Upserter

COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string())])
HARMLESS = {
    "": {"delta.logRetentionDuration": "interval 3 days"},
    "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
    "domainMetadata": {},  # a feature that nothing uses
    "checkConstraints": {},
}


@dataclass
class AlteringWriter(Writer):
    """A writer that another client is ahead of: what waits is done right before the next one."""

    waiting: list = field(default_factory=list)

    def put_if_absent(self, location, data, behind=()):
        while self.waiting:
            self.waiting.pop()()
        return super().put_if_absent(location, data, behind)


@pytest.fixture
def puts(monkeypatch):
    altering = AlteringWriter()
    monkeypatch.setattr(ledger_writers, "Writer", lambda: altering)
    return altering


def rows(*ids):
    return pa.table({"id": list(ids), "v": [f"v{id_}" for id_ in ids]}, COLUMNS)


class Staged:
    """What adds files as a stage of a step, such as TRUNCATE or RESTORE."""

    def __init__(self, path, puts):
        self.path = path

    def write(self, step, ids):
        commit_stage(self.path, self._actions_of(step, ids), facts(step), "sink", "RESTORE")

    def _actions_of(self, step, ids):
        return lambda found: [DataFile.write(self.path, f"{step}-{found.version}.parquet", rows(*ids), bounded=["id"])]


class Appended(Staged):
    """A changelog or a quarantine: files are appended and joined."""

    def write(self, step, ids):
        commit_and_join(self.path, COLUMNS, self._actions_of(step, ids), ["id"], facts(step), "changelog")


class Upserted:
    """A sink: rows replace those of their keys, and files are joined."""

    def __init__(self, path, puts):
        self.upserter = Upserter(path, COLUMNS, ["id"], puts)

    def write(self, step, ids):
        new = rows(*ids)
        self.upserter.apply(Upsert(new.select(["id"]), new), Transaction("app", step, {"operation": "MERGE"}))
        self.upserter.fold(InProcess())


WRITERS = [Appended, Upserted, Staged]


def made(tmp_path):
    path = str(tmp_path / "t")
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    Writer().create(path, Definition(COLUMNS, properties), name="t", info={})
    return path


def commits_after_refused(path):
    """The operations of commits behind the one that switched on what is refused."""
    operations = [Log(path).commit(version).info().get("operation") for version in Log(path).versions()]
    return operations[operations.index("ALTER") + 1 :]


@pytest.mark.parametrize("feature", REFUSED)
@pytest.mark.parametrize("of", WRITERS)
@pytest.mark.parametrize("is_race", [False, True], ids=["before", "lost race"])
def test_table_with_a_feature_that_is_not_written_gets_no_commit(tmp_path, puts, is_race, of, feature):
    path = made(tmp_path)
    writer = of(path, puts)
    writer.write(1, [1])
    puts.waiting = [lambda: altered(path, feature, REFUSED[feature])]
    if not is_race:
        puts.waiting.pop()()
    with pytest.raises(DeltaFeatureError, match=feature):
        writer.write(2, [2])
    assert commits_after_refused(path) == []


def partitioned_by_v(path):
    """Commit that a table is empty and partitioned, as CREATE OR REPLACE TABLE does."""
    found = Snapshot.read(path)
    metadata = {**found.metadata, "partitionColumns": ["v"]}
    actions = DataFile.replacing(found.files.values(), [{"metaData": metadata}])
    Writer().commit_version(path, found.version + 1, actions, {"operation": "REPLACE TABLE"})


def test_files_that_were_written_before_a_table_was_partitioned_are_not_committed_and_written_again(tmp_path, puts):
    path = made(tmp_path)
    Upserted(path, puts).write(1, [1])
    puts.waiting = [lambda: partitioned_by_v(path)]
    with pytest.raises(TableMismatchError, match=r"has partitioned .* run it again: its files are written again"):
        Upserted(path, puts).write(2, [2])
    assert Snapshot.read(path).files == {}
    Upserted(path, puts).write(2, [2])
    [file] = Snapshot.read(path).files.values()
    assert file.partition == {"v": "v2"}
    assert Snapshot.read(path).rows(COLUMNS).to_pylist() == rows(2).to_pylist()


@pytest.mark.parametrize("of", [Appended, Staged])
def test_table_that_only_a_sink_may_be_partitioned_like_gets_no_file(tmp_path, puts, of):
    path = made(tmp_path)
    partitioned_by_v(path)
    with pytest.raises(TableMismatchError, match="has partitioned"):
        of(path, puts).write(1, [1])
    assert Snapshot.read(path).files == {}


def test_rule_for_a_nested_field_is_refused(tmp_path, puts):
    path = made(tmp_path)
    found = Snapshot.read(path)
    schema = json.loads(found.metadata["schemaString"])
    inner = {"name": "x", "type": "long", "nullable": True, "metadata": {"delta.invariants": "x > 0"}}
    listed = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}, "containsNull": True}
    schema["fields"].append({"name": "n", "type": listed, "nullable": True, "metadata": {}})
    metadata = {**found.metadata, "schemaString": json.dumps(schema)}
    Writer().commit_version(path, 1, [{"metaData": metadata}], {"operation": "ALTER"})
    with pytest.raises(DeltaFeatureError, match="invariants"):
        Staged(path, puts).write(1, [1])


def test_table_that_takes_no_deletes_is_appended_to_and_joined(tmp_path, puts):
    set_limits(width=2)
    path = made(tmp_path)
    altered(path, "", {"delta.appendOnly": "true"})
    writer = Appended(path, puts)
    for step in (1, 2):
        writer.write(step, [step])
    assert len(Snapshot.read(path).files) == 1
    with pytest.raises(DeltaFeatureError, match="appendOnly"):
        commit_stage(path, _all_removed, facts(3), "changelog")


def test_restore_of_a_version_with_a_rule_for_writers_is_refused(tmp_path, puts):
    path = made(tmp_path)
    altered(path, "", {"delta.constraints.c": "id < 3"})
    found = Snapshot.read(path)
    without = {**found.metadata, "configuration": {}}
    Writer().commit_version(path, 2, [{"metaData": without}], {"operation": "DROP CONSTRAINT"})
    with pytest.raises(DeltaFeatureError, match="checkConstraints"):
        restore_stage(path, Restore(1, changes_rows=True), facts(1), "sink")
    restore_stage(path, Restore(0, changes_rows=True), facts(1), "sink")
    assert Log(path).versions()[-1] == 3


def _all_removed(found):
    return [file.removed(0, data_change=True) for file in found.files.values()]


def test_fold_that_lost_to_an_altered_table_is_given_up(tmp_path, puts):
    path = made(tmp_path)
    writer = Upserted(path, puts)
    for step in (1, 2):
        writer.write(step, [step])
    puts.waiting = [lambda: altered(path, "", {"delta.dataSkippingStatsColumns": "id"})]
    writer.upserter.fold(InProcess(), everything=True)
    assert commits_after_refused(path) == []
    writer.upserter.fold(InProcess(), everything=True)
    assert commits_after_refused(path) == ["OPTIMIZE"], "the next one finds the table as it is"


def walk(tmp_path, puts, seed):
    """Write steps while another client alters the table before or between the puts, at last so that it must be refused."""
    chance = random.Random(seed)
    set_limits(width=2)
    path = made(tmp_path)
    writer = chance.choice(WRITERS)(path, puts)
    versions = []

    def alter_soon(feature, properties):
        def alter():
            altered(path, feature, properties)
            versions.append(Log(path).versions()[-1])

        is_race = chance.random() < 0.5
        puts.waiting = [alter] if is_race else []
        if not is_race:
            alter()

    n_steps = chance.randrange(1, 9)
    for step in range(1, n_steps):
        if chance.random() < 0.7:
            alter_soon(*chance.choice(list(HARMLESS.items())))
        writer.write(step, [step])
        assert ids(path) == list(range(1, step + 1))
    feature, properties = chance.choice(list(REFUSED.items()))
    alter_soon(feature, properties)
    with pytest.raises(DeltaFeatureError, match=feature):
        writer.write(n_steps, [n_steps])
    assert Log(path).versions()[-1] == versions[-1], "nothing was committed behind it"


def ids(path):
    """The ids that both we and delta-rs read."""
    ours = Snapshot.read(path).rows(COLUMNS)["id"].to_pylist()
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id FROM t")
    theirs = pa.table(query.read_all())["id"].to_pylist()
    assert sorted(ours) == sorted(theirs)
    return sorted(ours)


@pytest.mark.parametrize("seed", range(4))
def test_altered_table_is_written_right_or_refused(tmp_path, puts, seed):
    walk(tmp_path, puts, seed)


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(4, 100))
def test_altered_table_is_written_right_or_refused_in_many_walks(tmp_path, puts, seed):
    walk(tmp_path, puts, seed)
