"""The Delta sink without Spark: made with its reserved columns, changed once per step, restored and emptied with its history."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError
from frame.limits import set_limits
from local.local_run import SPARK
from local.made_facts import made_facts as facts
from local.made_facts import stands_above

from ebbtide.delta import Commit, Log, Snapshot, Writer
from ebbtide.delta._commit import transaction_mark
from ebbtide.errors import DeltaFeatureError, LeaseLostError, MigrationError
from ebbtide.executors import InProcess
from ebbtide.model import Clear, Restore, SchemaChange
from ebbtide.sessions import OnSpark
from ebbtide.tables import ChangelogTable, SinkTable
from ebbtide.tables._delta_sink import RowFiles

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("seq", pa.int64())])
PUTS = Writer()


class Changes:
    """A change set: of each key what is to be done, and its row."""

    def __init__(self, **rows):
        self.by_key = rows

    def rows(self, columns):
        found = []
        for number, (key, (kind, n)) in enumerate(self.by_key.items()):
            id_ = int(key[1:])
            row = {"_change": kind, "id": id_, "n": n, "seq": n, "_changed_by": order(n, 0, number)}
            found.append(row | {"_sequence": {"seq": n, "op": 1}})
        schema = pa.schema([("_change", pa.string()), *columns])
        return pa.Table.from_pylist(found, schema)

    def pieces(self, columns):
        return [lambda: self.rows(columns)]


def order(step, part, position):
    return {"step": step, "part": part, "position": position}


@pytest.fixture(autouse=True)
def own_copies(shell, tmp_path):
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    set_limits(width=2)


def sink_of(tmp_path, sequence=("seq",), **more):
    sink = SinkTable(str(tmp_path / "sink"), COLUMNS, ("id",), sequence, **more)
    sink.create(SPARK)
    return sink


@pytest.fixture
def sink(tmp_path):
    return sink_of(tmp_path)


def apply(sink, step, *, floor=None, **rows):
    sink.apply(SPARK, Changes(**rows), facts(step, raises=floor))


def perform(sink, action, facts):
    sink.perform(action, SimpleNamespace(executor=SPARK, facts=facts))


def shown(sink):
    rows = Snapshot.read(sink.path).rows(sink.columns).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


def newest(sink):
    return Log(sink.path).commit(sink.version())


def test_table_is_made_once_with_the_reserved_columns_and_the_change_feed(tmp_path):
    sink = sink_of(tmp_path, properties={})
    made = Snapshot.read(sink.path)
    fields = {field["name"]: field["nullable"] for field in json.loads(made.metadata["schemaString"])["fields"]}
    assert fields == {"id": False, "n": True, "seq": True, "_sequence": True, "_changed_by": True}
    assert made.configuration["delta.enableChangeDataFeed"] == "true"
    assert made.configuration["delta.enableDeletionVectors"] == "true"
    assert made.metadata["name"] == "sink"
    sink.create(SPARK)
    assert sink.version() == 0
    rewriting = sink_of(tmp_path / "other", deletes_by="rewrite")
    assert Snapshot.read(rewriting.path).configuration["delta.enableDeletionVectors"] == "false"


def test_sink_that_had_vectors_keeps_the_feature_when_it_is_emptied_for_rewriting(tmp_path):
    sink = sink_of(tmp_path)
    apply(sink, 1, k1=("I", 1), k2=("I", 2))
    apply(sink, 2, k2=("D", 2))
    rewriting = SinkTable(sink.path, COLUMNS, ("id",), ("seq",), deletes_by="rewrite")
    perform(rewriting, Clear(), facts(3))
    made = Snapshot.read(sink.path)
    assert made.configuration["delta.enableDeletionVectors"] == "false"
    assert "deletionVectors" in made.protocol["readerFeatures"], "earlier versions have files with vectors"


@pytest.mark.parametrize("rewrite", [True, False])
def test_sink_whose_files_are_rewritten_is_read_by_a_client_that_knows_no_vectors(tmp_path, rewrite):
    sink = sink_of(tmp_path, deletes_by="rewrite" if rewrite else "vectors")
    apply(sink, 1, k1=("I", 1), k2=("I", 2))
    apply(sink, 2, k1=("U", 3), k2=("D", 2))
    if rewrite:
        assert DeltaTable(sink.path).to_pyarrow_table(columns=["id", "n"]).to_pylist() == [{"id": 1, "n": 3}]
    else:
        with pytest.raises(DeltaProtocolError, match="deletionVectors"):
            DeltaTable(sink.path).to_pyarrow_table()


def test_step_inserts_updates_and_deletes_and_is_marked_with_its_number(sink):
    assert sink.last_step() == 0
    apply(sink, 1, k1=("I", 1), k2=("I", 2))
    apply(sink, 2, k1=("U", 3), k2=("D", 2), k7=("D", 7))
    assert shown(sink) == {1: 3}
    assert sink.last_step() == SinkTable(sink.path, COLUMNS, ("id",), ("seq",)).last_step() == 2
    assert Snapshot.read(sink.path).transactions == {"t/sink": 2}
    assert Commit(newest(sink)).facts()["step"] == 2
    version = sink.version()
    apply(sink, 2, k1=("D", 9))
    assert (shown(sink), sink.version()) == ({1: 3}, version), "a step is applied once"
    with pytest.raises(LeaseLostError):
        apply(sink, 1, k1=("D", 9))


@pytest.mark.parametrize(
    ("sequence", "floor", "left"),
    [
        (("seq",), (5,), {5, 9, 10}),
        ((), (5, 0, 0), {5, 9, 10}),
        ((), (5, 0, 5), {9, 10}),
        ((), (5, 1, 0), {9, 10}),
        ((), (4, 9, 9), {5, 9, 10}),
    ],
)
def test_rows_below_a_truncate_are_deleted_with_its_step(tmp_path, sequence, floor, left):
    sink = sink_of(tmp_path, sequence)
    apply(sink, 1, **{f"k{n}": ("I", n) for n in (1, 4, 5, 9)})
    sink.apply(SPARK, Changes(), stands_above(2, floor))
    assert shown(sink).keys() == {1, 4, 5, 9}, "the floor of an earlier step deletes nothing"
    apply(sink, 3, floor=floor, k10=("I", 10))
    assert shown(sink).keys() == left


def test_restored_sink_has_the_rows_of_the_version_and_keeps_its_history(sink):
    apply(sink, 1, k1=("I", 1))
    first = sink.version()
    apply(sink, 2, k1=("U", 2), k2=("I", 2))
    back = facts(3, "rewind")
    perform(sink, Restore(first, changes_rows=True), back)
    assert shown(sink) == {1: 1}
    assert Commit(newest(sink)).info()["operation"] == "RESTORE"
    assert all(action["add"]["dataChange"] for action in newest(sink) if "add" in action)
    assert Snapshot.read(sink.path).transactions == {"t/sink": 3}
    version = sink.version()
    perform(sink, Restore(first, changes_rows=True), back)
    assert sink.version() == version
    assert Snapshot.read(sink.path, first + 1).rows(sink.columns).num_rows == 2


def test_sink_restored_by_an_undone_migration_changes_no_row(sink):
    apply(sink, 1, k1=("I", 1))
    first = sink.version()
    apply(sink, 2, k1=("U", 2))
    perform(sink, Restore(first, changes_rows=False), facts(3, "migration"))
    changes = [action["add"]["dataChange"] for action in newest(sink) if "add" in action]
    assert changes == [False]


def test_emptied_sink_has_the_spec_s_columns_and_its_history(sink):
    apply(sink, 1, k1=("I", 1))
    wider = replace(sink, columns=pa.schema([*COLUMNS, ("more", pa.string())]))
    perform(wider, Clear(), facts(2, "reset"))
    assert shown(sink) == {}
    made = Snapshot.read(sink.path)
    names = [field["name"] for field in json.loads(made.metadata["schemaString"])["fields"]]
    assert names == ["id", "n", "seq", "more", "_sequence", "_changed_by"]
    assert made.configuration["delta.enableChangeDataFeed"] == "true"
    assert Commit(newest(sink)).info()["operation"] == "REPLACE TABLE"
    assert (sink.last_step(), made.transactions) == (2, {"t/sink": 2})
    assert Snapshot.read(sink.path, 1).rows(sink.columns).num_rows == 1


def test_small_files_are_joined_by_size_class_and_all_of_them_on_request(sink):
    apply(sink, 1, k1=("I", 1))
    sink.fold(InProcess())
    assert sink.version() == 1, "one file is not joined with itself"
    apply(sink, 2, k2=("I", 2))
    sink.fold(InProcess())
    assert len(Snapshot.read(sink.path).files) == 1
    apply(sink, 3, k3=("I", 3))
    set_limits(width=100)
    sink.fold(InProcess())
    assert len(Snapshot.read(sink.path).files) == 2
    sink.join_files(SPARK)
    assert len(Snapshot.read(sink.path).files) == 1
    assert shown(sink) == {1: 1, 2: 2, 3: 3}
    assert Commit(newest(sink)).info()["operation"] == "OPTIMIZE"


@pytest.mark.parametrize("table", [SinkTable, ChangelogTable])
def test_last_step_is_read_from_the_mark_if_the_commit_has_no_facts(sink, tmp_path, table):
    """As in a commit of Spark, or after a cleanup of the log."""
    name = "sink" if table is SinkTable else "changelog"
    if table is ChangelogTable:
        sink = ChangelogTable(str(tmp_path / "changelog"), COLUMNS)
        sink.create()
    PUTS.commit_version(sink.path, 1, [transaction_mark(f"t/{name}", 7)], {"operation": "WRITE"})
    assert sink.last_step() == 7


def test_sink_with_foreign_columns_or_features_cannot_be_altered(sink):
    absent = replace(sink, path=sink.path + "-absent")
    absent.refuse_unalterable(COLUMNS)
    sink.refuse_unalterable(COLUMNS)
    with pytest.raises(MigrationError) as raised:
        sink.refuse_unalterable(pa.schema([*COLUMNS, ("more", pa.string())]))
    assert str(raised.value) == (
        f"The sink '{sink.path}' has other columns than the pipeline has given it."
        " Got: id, n, seq, _sequence, _changed_by. Allowed: id, n, seq, more, _sequence, _changed_by."
        " Undo the change (ALTER TABLE), or run 'ebbtide refresh' to rebuild the sink from the source."
    )
    made = Snapshot.read(sink.path)
    metadata = {**made.metadata, "configuration": {**made.configuration, "delta.appendOnly": "true"}}
    PUTS.commit_version(sink.path, made.version + 1, [{"metaData": metadata}], {"operation": "SET TBLPROPERTIES"})
    with pytest.raises(DeltaFeatureError, match=f"{sink.path}.*appendOnly"):
        sink.refuse_unalterable(COLUMNS)
    features = {"readerFeatures": ["fromLater"], "writerFeatures": ["fromLater"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    PUTS.commit_version(sink.path, sink.version() + 1, [{"protocol": protocol}], {"operation": "UPGRADE"})
    with pytest.raises(DeltaFeatureError, match="fromLater"):
        sink.refuse_unalterable(COLUMNS)


def test_altered_sink_has_its_rows_under_the_new_columns(sink):
    apply(sink, 1, k1=("I", 1), k2=("I", 2))
    wider = replace(sink, columns=pa.schema([*COLUMNS, ("more", pa.int32())]))
    change = SchemaChange(added={"more": 7})
    step = facts(2, "migration")
    wider.alter(SPARK, COLUMNS, change, step)
    rows = Snapshot.read(sink.path).rows(wider.schema).to_pylist()
    assert [(row["id"], row["n"], row["more"], row["_sequence"]) for row in rows] == [
        (1, 1, 7, {"seq": 1, "op": 1}),
        (2, 2, 7, {"seq": 2, "op": 1}),
    ]
    files = [action.get("add") or action.get("remove") for action in newest(sink)]
    assert [file["dataChange"] for file in files if file] == [False, False]
    assert Snapshot.read(sink.path).transactions == {"t/sink": 2}
    statistics = [json.loads(action["add"]["stats"]) for action in newest(sink) if "add" in action]
    assert statistics[0]["minValues"]["more"] == 7
    assert Commit(newest(sink)).info()["operation"] == "CHANGE COLUMNS"
    version = sink.version()
    wider.alter(SPARK, COLUMNS, change, step)
    assert sink.version() == version


def test_table_of_few_bytes_is_altered_without_a_job(sink):
    for number in (1, 2):
        apply(sink, number, **{f"k{number}": ("I", number)})
    n_bytes = sum(file.size for file in Snapshot.read(sink.path).files.values())
    set_limits(little_bytes=n_bytes)
    wider = replace(sink, columns=pa.schema([*COLUMNS, ("more", pa.int32())]))
    on_spark = OnSpark(object)  # a job would fail on it
    wider.alter(on_spark, COLUMNS, SchemaChange(added={"more": 7}), facts(3, "migration"))
    rows = Snapshot.read(sink.path).rows(wider.columns).to_pylist()
    assert sorted((row["id"], row["more"]) for row in rows) == [(1, 7), (2, 7)]


def test_rows_of_a_task_become_data_files_of_the_table(sink):
    rows = Changes(k1=("I", 1), k2=("I", 2)).rows(sink.schema).drop_columns("_change")
    write_rows = RowFiles(sink.path, sink.schema, sink.bounded, ())
    written = [*write_rows(rows), *write_rows(rows.slice(1))]
    assert [json.loads(action["add"]["stats"])["numRecords"] for action in written] == [2, 1]
    statistics = json.loads(written[0]["add"]["stats"])
    assert (statistics["minValues"]["id"], statistics["maxValues"]["seq"]) == (1, 2)
    names = [action["add"]["path"] for action in written]
    assert all(name.startswith("part-") and name.endswith(".parquet") for name in names)
    PUTS.commit(Snapshot.read(sink.path), written[:1], {"operation": "WRITE"})
    assert shown(sink) == {1: 1, 2: 2}


def test_only_the_first_columns_that_are_not_personal_have_statistics(tmp_path):
    columns = pa.schema([(f"c{number}", pa.int64()) for number in range(40)])
    sink = SinkTable(str(tmp_path), columns, ("c0",), (), personal=frozenset({"c0", "c39"}))
    rows = pa.Table.from_pylist([dict.fromkeys(columns.names, 1)], columns)
    [action] = RowFiles(sink.path, columns, sink.bounded, ())(rows)
    assert json.loads(action["add"]["stats"])["minValues"].keys() == set(columns.names[1:32])


def test_column_without_values_is_added_without_writing_a_file(sink):
    apply(sink, 1, k1=("I", 1))
    wider = replace(sink, columns=pa.schema([*COLUMNS, ("more", pa.int32())]))
    wider.alter(SPARK, COLUMNS, SchemaChange(added={"more": None}), facts(2, "migration"))
    assert not [action for action in newest(sink) if "add" in action or "remove" in action]
