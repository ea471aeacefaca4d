"""The Delta sink where Spark writes it: MERGE, replaced tables and columns, each as one step that is applied once."""

import json
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from local.made_facts import made_facts as facts
from local.made_facts import stands_above
from pyspark.sql import functions as F

from ebbtide.delta import Commit, Definition, Log, Snapshot, Writer
from ebbtide.errors import ConfigError
from ebbtide.ledger import StepFacts
from ebbtide.model import Clear, Restore, Rewrite, SchemaChange
from ebbtide.sessions import executor_of, spark_schema
from ebbtide.tables import SinkTable
from ebbtide.tables._spark_sink import MergeSink

pytestmark = pytest.mark.grid  # pipelines over such sinks are run in short tests

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("a.b", pa.int64())])
SETTINGS = ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata", "merge.materializeSource")


def row_of(id_, n, seq=None, by=None):
    changed_by = {"step": n if by is None else by, "part": 0, "position": 0}
    sequence = {"a.b": n if seq is None else seq, "op": 1}
    return {"id": id_, "n": n, "a.b": n, "_sequence": sequence, "_changed_by": changed_by}


def frame_of(spark, sink, rows, *more):
    """Rows of the sink's columns and some more texts, in another order than its own."""
    texts = [pa.field(name, pa.string()) for name in more]
    columns = spark_schema(pa.schema([*texts, *sink.schema]), nullable=True)
    frame = spark.createDataFrame(rows, columns)
    return frame.select(*(F.col(f"`{name}`") for name in reversed(columns.names)))


class Changes:
    """A change set: what is to be done, and the row."""

    def __init__(self, sink, *changes):
        self.sink, self.changes = sink, changes

    def frame(self, spark):
        rows = [{"_change": kind, **row} for kind, row in self.changes]
        return frame_of(spark, self.sink, rows, "_change")


def of_kind(kind, sink):
    return kind(**{field.name: getattr(sink, field.name) for field in fields(sink)})


@pytest.fixture
def sink_of(spark, tmp_path):
    def make(name="a sink", sequence=("a.b",), **more):
        sink = MergeSink(str(tmp_path / name), COLUMNS, ("id",), sequence, **more)
        sink.create(executor_of(spark))
        return sink

    return make


@pytest.fixture
def sink(sink_of):
    return sink_of()


def newest(sink):
    return Log(sink.path).commit(Log(sink.path).versions()[-1])


def operation(sink):
    return Commit(newest(sink)).info()["operation"]


def marked(sink, step):
    """Whether the newest commit says that it is this step."""
    is_marked = Snapshot.read(sink.path, any_features=True).transactions == {"t/sink": step}
    return is_marked and Commit(newest(sink)).facts()["step"] == step == sink.last_step()


def shown(spark, sink, *names):
    names = names or ("id", "n")
    rows = sink.read(spark, sink.version()).select(*names).collect()
    return sorted(tuple(row) for row in rows)


def test_table_is_made_once_with_the_properties_of_the_spec(spark, sink_of):
    sink = sink_of(properties={"delta.logRetentionDuration": "interval 40 days"})
    made = Snapshot.read(sink.path, any_features=True)
    fields = {field["name"]: field["nullable"] for field in json.loads(made.metadata["schemaString"])["fields"]}
    assert fields == {"id": False, "n": True, "a.b": True, "_sequence": True, "_changed_by": True}
    settings = {name.removeprefix("delta."): value for name, value in made.configuration.items()}
    assert settings["logRetentionDuration"] == "interval 40 days"
    assert settings["enableChangeDataFeed"] == "true"
    assert settings["enableDeletionVectors"] == "false"
    sink.create(executor_of(spark))
    assert sink.version() == 0


@pytest.mark.parametrize("properties", [{"delta.logRetentionDuration": "soon", "delta.appendOnly": "perhaps"}, {}])
def test_table_that_spark_does_not_make_is_named_with_its_properties(sink_of, monkeypatch, properties):
    if not properties:
        monkeypatch.setattr(SinkTable, "stored_properties", {"delta.appendOnly": "perhaps"})
    with pytest.raises(ConfigError) as raised:
        sink_of(properties=properties)
    said = str(raised.value)
    assert said.startswith("Spark does not make the sink '")
    assert "/a sink': " in said
    assert "\n" not in said
    named = ", ".join(properties) or "none"
    assert f"Got: table properties {named}. Correct the spec's sink.table_properties or its schema." in said


def test_step_is_merged_once_and_by_sequence(spark, sink):
    unset = {name: spark.conf.get(f"spark.databricks.delta.{name}", None) for name in SETTINGS}
    first = Changes(sink, *(("I", row_of(id_, 5)) for id_ in (1, 2, 3, 4)))
    sink.apply(executor_of(spark), first, facts(1), only_inserts=True)
    assert (operation(sink), marked(sink, 1)) == ("WRITE", True)
    changes = Changes(
        sink,
        ("U", row_of(1, 6)),
        ("D", row_of(2, 6)),
        ("U", row_of(3, 4)),
        ("D", row_of(4, 4)),
        ("I", row_of(5, 1)),
        ("D", row_of(6, 1)),
    )
    sink.apply(executor_of(spark), changes, facts(2), only_inserts=False)
    assert shown(spark, sink) == [(1, 6), (3, 5), (4, 5), (5, 1)]
    assert (operation(sink), marked(sink, 2)) == ("MERGE", True)
    equal = Changes(sink, ("U", row_of(1, 7, seq=6)))
    sink.apply(executor_of(spark), equal, facts(3), only_inserts=False)
    assert shown(spark, sink)[0] == (1, 7)
    assert shown(spark, sink, "`a.b`", "_sequence.op", "_changed_by.step")[-1] == (7, 1, 7)
    version = sink.version()
    sink.apply(executor_of(spark), Changes(sink, ("D", row_of(1, 9))), facts(3), only_inserts=False)
    sink.apply(executor_of(spark), Changes(sink, ("I", row_of(9, 9))), facts(3), only_inserts=True)
    assert sink.version() == version, "a step is applied once"
    left = [name for name in SETTINGS if spark.conf.get(f"spark.databricks.delta.{name}", None) != unset[name]]
    assert not left, "settings of a step are for its statement alone"


@pytest.mark.parametrize(("sequence", "floor"), [(("a.b",), (5,)), ((), (5, 0, 0))], ids=["by sequence", "by arrival"])
def test_rows_below_a_truncate_go_with_the_merge_that_met_it(spark, sink_of, sequence, floor):
    sink = sink_of(sequence=sequence)
    first = Changes(sink, *(("I", row_of(n, n)) for n in (4, 5, 6)))
    sink.apply(executor_of(spark), first, facts(1), only_inserts=True)
    sink.apply(executor_of(spark), Changes(sink, ("I", row_of(7, 7))), stands_above(2, floor), only_inserts=False)
    assert shown(spark, sink) == [(4, 4), (5, 5), (6, 6), (7, 7)], "an old floor has done its work"
    last = Changes(sink, ("U", row_of(6, 3)), ("I", row_of(8, 8)))
    sink.apply(executor_of(spark), last, facts(3, raises=floor), only_inserts=False)
    assert shown(spark, sink) == [(5, 5), (6, 6 if sequence else 3), (7, 7), (8, 8)]
    rows = Snapshot.read(sink.path, any_features=True).rows(sink.schema)
    is_below = sink.below((*floor[:-1], floor[-1] + 1))(rows)
    assert set(rows.filter(pa.array(is_below))["n"].to_pylist()) <= {3, 5}


def test_row_of_a_table_that_is_adopted_has_no_sequence_and_takes_any_change(spark, tmp_path):
    path = str(tmp_path / "a table")
    Writer().create(path, Definition(COLUMNS), name="theirs", info={})
    spark.createDataFrame([(1, 1, 1), (2, 2, 2)], "id BIGINT, n INT, `a.b` BIGINT").write.format("delta").mode(
        "append"
    ).save(path)
    sink = MergeSink(path, COLUMNS, ("id",), ("a.b",))
    sink.extend(executor_of(spark))
    assert shown(spark, sink, "id", "_sequence", "_changed_by") == [(1, None, None), (2, None, None)]
    made = Snapshot.read(path, any_features=True)
    names = [field["name"] for field in json.loads(made.metadata["schemaString"])["fields"]]
    assert names == ["id", "n", "a.b", "_sequence", "_changed_by"]
    assert made.configuration["delta.enableChangeDataFeed"] == "true"
    assert made.configuration["delta.enableDeletionVectors"] == "false"
    sink.apply(executor_of(spark), Changes(sink, ("U", row_of(1, 0))), facts(1), only_inserts=False)
    assert shown(spark, sink) == [(1, 0), (2, 2)]


def test_keys_with_nulls_are_merged_as_other_values_are(spark, tmp_path):
    columns = pa.schema([("id", pa.int64()), ("a.b", pa.int64()), ("n", pa.int32())])
    sink = MergeSink(str(tmp_path / "sink"), columns, ("id", "a.b"), ())
    sink.create(executor_of(spark))
    keys = [(None, 1), (1, None), (1, 1), (None, None)]
    first = [("I", {**row_of(None, n), "id": id_, "a.b": at}) for n, (id_, at) in enumerate(keys)]
    sink.apply(executor_of(spark), Changes(sink, *first), facts(1), only_inserts=True)
    second = [("U", {**row_of(None, n + 10), "id": id_, "a.b": at}) for n, (id_, at) in enumerate(keys)]
    sink.apply(executor_of(spark), Changes(sink, *second), facts(2), only_inserts=False)
    rows = sink.read(spark, sink.version()).select("n", "id", "`a.b`").collect()
    assert {n: (id_, at) for n, id_, at in rows} == dict(enumerate(keys, start=10))
    assert len(rows) == 4


@dataclass(frozen=True)
class Asked:
    """The input of a rewrite: keys that differ, and the rows that come."""

    spark: Any
    sink: SinkTable
    facts: StepFacts
    coming: list[dict[str, Any]]
    keys: tuple[int, ...] = ()

    @property
    def executor(self):
        return executor_of(self.spark)

    def way_back(self):
        return None

    def take_shown(self, action, take):
        return [take(pa.Table.from_pylist(self.coming, self.sink.schema))] if self.coming else []

    def difference(self, action, take):
        present = pa.table({"id": pa.array(self.keys, pa.int64())})
        return SimpleNamespace(present=present, taken=self.take_shown(action, take))


@pytest.mark.parametrize("kind", [MergeSink, SinkTable])
def test_replaced_keys_have_other_rows(spark, sink_of, kind):
    sink = of_kind(kind, sink_of())
    sink.perform(Rewrite(), Asked(spark, sink, facts(1, "repair"), [row_of(n, n) for n in (1, 2, 3)], (1, 2, 3)))
    sink.perform(Rewrite(), Asked(spark, sink, facts(2, "repair"), [row_of(3, 30), row_of(9, 90)], (2, 3, 9)))
    assert shown(spark, sink) == [(1, 1), (3, 30), (9, 90)]
    assert marked(sink, 2)
    version = sink.version()
    sink.perform(Rewrite(), Asked(spark, sink, facts(2, "repair"), [], (7,)))
    assert (shown(spark, sink), kind is MergeSink or sink.version() == version) == ([(1, 1), (3, 30), (9, 90)], True)


@pytest.mark.parametrize("kind", [MergeSink, SinkTable])
def test_overwritten_table_has_other_rows_and_columns_and_its_history(spark, sink_of, kind):
    sink = of_kind(kind, sink_of())
    everything = Rewrite(overwrites=True)
    sink.perform(everything, Asked(spark, sink, facts(1, "migration"), [row_of(1, 1), row_of(2, 2)]))
    other = replace(sink, columns=pa.schema([*COLUMNS, ("more", pa.string())]))
    step = facts(2, "migration")
    other.perform(everything, Asked(spark, other, step, [{**row_of(5, 5), "more": "m"}]))
    assert shown(spark, other, "id", "n", "more") == [(5, 5, "m")]
    names = ["id", "n", "a.b", "more", "_sequence", "_changed_by"]
    assert other.read(spark, other.version()).columns == names
    assert marked(other, 2)
    assert operation(other) == ("WRITE" if kind is MergeSink else "REPLACE TABLE")
    assert Snapshot.read(sink.path, any_features=True).configuration["delta.enableChangeDataFeed"] == "true"
    version = other.version()
    other.perform(everything, Asked(spark, other, step, []))
    assert other.version() == version, "a step is applied once"
    assert len(sink.read(spark, 1).collect()) == 2


def test_altered_table_is_written_again_under_the_other_columns(spark, sink):
    sink.apply(executor_of(spark), Changes(sink, ("I", row_of(1, 1)), ("I", row_of(2, 2))), facts(1), only_inserts=True)
    columns = pa.schema(
        [COLUMNS.field("id"), ("count", pa.int64()), COLUMNS.field("a.b"), ("more", pa.int32()), ("none", pa.string())]
    )
    wider = replace(sink, columns=columns)
    change = SchemaChange(added={"more": 7, "none": None}, renamed={"count": "n"})
    wider.alter(executor_of(spark), COLUMNS, change, facts(2, "migration"))
    stored = wider.read(spark, wider.version())
    types = {field.name: field.dataType.simpleString() for field in stored.schema}
    assert list(types) == ["id", "count", "a.b", "more", "none", "_sequence", "_changed_by"]
    assert (types["count"], types["more"], types["none"]) == ("bigint", "int", "string")
    assert shown(spark, wider, "id", "count", "more", "none", "_sequence.op") == [
        (1, 1, 7, None, 1),
        (2, 2, 7, None, 1),
    ]
    assert marked(wider, 2)


def test_table_goes_back_is_joined_and_is_emptied_as_steps(spark, sink):
    for number in (1, 2):
        sink.apply(executor_of(spark), Changes(sink, ("I", row_of(number, number))), facts(number), only_inserts=True)
    sink.join_files(executor_of(spark))
    assert (operation(sink), len(Snapshot.read(sink.path, any_features=True).files)) == ("OPTIMIZE", 1)
    sink.perform(Restore(1, changes_rows=True), SimpleNamespace(executor=executor_of(spark), facts=facts(3, "rewind")))
    assert (shown(spark, sink), operation(sink), sink.last_step()) == ([(1, 1)], "RESTORE", 3)
    other = replace(sink, columns=pa.schema([*COLUMNS, ("more", pa.string())]))
    other.perform(Clear(), SimpleNamespace(executor=executor_of(spark), facts=facts(4, "reset")))
    assert shown(spark, other, "id", "more") == []
    assert (Commit(newest(other)).facts()["step"], other.last_step()) == (4, 4)
    assert len(sink.read(spark, 2).collect()) == 2
