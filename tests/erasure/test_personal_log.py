"""No value of a personal column is in the log of a table: neither in statistics, nor in facts, nor in checkpoints."""

import json
import secrets
from pathlib import Path

import pytest
from deltalake import DeltaTable
from frame.thinned import graded
from inputs.byte_scan import scan
from local.local_pipeline import LATER, LocalPipeline
from local.local_run import HOUR, SPARK, make_partitioned
from local.support import change

import ebbtide
from ebbtide.delta import Definition, Snapshot
from ebbtide.errors import ConfigError, DeltaFeatureError

COLUMNS = "delta.dataSkippingStatsColumns"


TEXTS = "id STRING, mail STRING, n BIGINT"
PERSONAL = {"id": {"personal": True}, "mail": {"personal": True}}
KINDS = {
    "sequence": {"order": {"sequence": ["n"]}},
    "arrival": {"order": "arrival", "materializer": {"emission": "every"}},
    "rewrite": {"order": {"sequence": ["n"]}, "sink": {"write": "rewrite", "change_feed": "images"}},
    "function": {"function": "ebbtide.functions:LagLead", "output_key": ["id", "n"], "options": {"order_by": ["n"]}},
}


def canaries(n):
    return [secrets.token_hex(16) for _ in range(n)]


def row(kind, id_, mail, n):
    return change(kind, id=id_, mail=mail, n=n)


def played(pipeline, planted):
    """Insert, update, delete, give bad records, and maintain; each commit is followed by a checkpoint."""
    ids = planted[:8]
    mails = planted[8:]
    pipeline.put(*(row("+I", id_, mails[number], number) for number, id_ in enumerate(ids)))
    pipeline.put(row("+I", ids[0], [mails[8]], 20), f'{{"kind": "+I", "row": {{"id": "{mails[9]}"')
    retracts = [row("-U", ids[1], mails[1], 1)] if pipeline.spec.retracts else []
    pipeline.put(*retracts, row("+U", ids[1], mails[10], 30), row("-D", ids[2], mails[2], 2))
    pipeline.do("run", checkpoints=1, width=2)
    pipeline.do("compaction", LATER + HOUR, checkpoints=1)


def logs_of(pipeline):
    return list(Path(pipeline.root).rglob("_delta_log"))


def logs(pipeline):
    folders = logs_of(pipeline)
    names = {path.parent.name for path in folders}
    assert {"state", "sink", "quarantine"} <= names
    assert any(path.suffix == ".parquet" for folder in folders for path in folder.iterdir()), "checkpoints"
    return folders


@pytest.mark.parametrize("kind", graded(KINDS, ("arrival", "rewrite")))
def test_log_has_no_value_of_a_personal_column(tmp_path, kind):
    planted = canaries(20)
    pipeline = LocalPipeline(tmp_path, schema=TEXTS, columns=PERSONAL, **KINDS[kind])
    played(pipeline, planted)
    assert scan(logs(pipeline), planted) == []
    assert scan([pipeline.home / "sink"], planted), "the rows have it"


def test_sink_that_is_partitioned_by_a_personal_column_is_refused_before_a_step(tmp_path):
    pipeline = LocalPipeline(tmp_path, schema=TEXTS, columns=PERSONAL)
    sink = pipeline.plan.delta_sink
    make_partitioned(sink.path, Definition(sink.stored_schema, sink.stored_properties), "n", "mail")
    pipeline.put(row("+I", "a", "b", 1))
    with pytest.raises(DeltaFeatureError, match=r"is partitioned by personal columns: .* Got: mail\."):
        pipeline.run()
    with pytest.raises(DeltaFeatureError, match="is partitioned by personal columns"):
        sink.extend(SPARK)
    assert Snapshot.read(sink.path).version == 0


def test_values_of_columns_that_are_not_personal_are_found_in_the_log(tmp_path):
    planted = canaries(20)
    pipeline = LocalPipeline(tmp_path, schema=TEXTS)
    played(pipeline, planted)
    assert {hit.path.rpartition(".")[2] for hit in scan(logs(pipeline), planted)} == {"json", "parquet"}


def statistics(pipeline, name):
    """Yield the columns with bounds of each data file."""
    for file in Snapshot.read(pipeline.plan.at(name)).files.values():
        yield set(file.stats["minValues"])


def test_table_that_was_made_before_keeps_values_out_of_the_log_from_then_on(tmp_path):
    first, second = canaries(2), canaries(2)
    pipeline = LocalPipeline(tmp_path, schema=TEXTS)
    pipeline.read(row("+I", *first, 1))
    pipeline.spec = pipeline.with_fields(columns=PERSONAL)
    pipeline.read(row("+I", *second, 2))
    assert {hit.canary for hit in scan(logs_of(pipeline), [*first, *second])} == set(first)
    for name in ("state", "sink"):
        listed = Snapshot.read(pipeline.plan.at(name)).configuration[COLUMNS]
        assert "`id`" not in listed
        assert "`mail`" not in listed


def test_columns_that_are_not_personal_keep_their_statistics(tmp_path):
    pipeline = LocalPipeline(tmp_path, schema=TEXTS, columns=PERSONAL)
    pipeline.read(row("+I", "a", "b", 1))
    assert list(statistics(pipeline, "sink")) == [{"n"}]
    assert all("_step" in found and "id" not in found for found in statistics(pipeline, "state"))


def test_sequence_that_is_personal_is_not_listed_for_other_writers(tmp_path):
    columns = {"n": {"personal": True}}
    pipeline = LocalPipeline(tmp_path, schema=TEXTS, columns=columns)
    pipeline.read(row("+I", "a", "b", 1))
    assert Snapshot.read(pipeline.plan.at("sink")).configuration[COLUMNS] == "`id`,`mail`,`_changed_by`"


def test_choice_of_the_columns_with_statistics_is_refused_where_columns_are_personal(tmp_path):
    properties = {"sink": {"table_properties": {COLUMNS: "mail"}}}
    LocalPipeline(tmp_path, schema=TEXTS, **properties)
    with pytest.raises((ConfigError, ValueError), match="none if columns are personal"):
        LocalPipeline(tmp_path, schema=TEXTS, columns=PERSONAL, **properties)


def test_null_counts_are_no_values(tmp_path):
    pipeline = LocalPipeline(tmp_path, schema=TEXTS, columns=PERSONAL)
    pipeline.read(row("+I", "a", None, 1))
    [action] = [
        json.loads(line)["add"]
        for path in (Path(pipeline.plan.sink.path) / "_delta_log").glob("*1.json")
        for line in path.read_text().splitlines()
        if line.startswith('{"add"')
    ]
    assert set(json.loads(action["stats"])["nullCount"]) == {"n"}


@pytest.mark.spark
@pytest.mark.parametrize(
    "joined", [{"sink"}, pytest.param({"state", "sink", "changelog", "quarantine"}, marks=pytest.mark.grid)], ids=len
)
def test_other_writers_keep_to_it_also_in_checkpoints(spark, tmp_path, joined):
    planted = canaries(20)
    more = {"order": "arrival", "materializer": {"emission": "every"}}
    pipeline = LocalPipeline(tmp_path, schema=TEXTS, columns=PERSONAL, **more)
    for number in range(2):
        pipeline.put(*(row("+I", planted[i], planted[i + 4], i) for i in range(number * 4, number * 4 + 4)))
        pipeline.put(row("+I", planted[18], [planted[19]], 20))
    assert ebbtide.run(SPARK, pipeline.spec, pipeline.root).steps
    for folder in logs_of(pipeline):
        path = str(folder.parent)
        if folder.parent.name in joined:
            spark.sql(f"OPTIMIZE delta.`{path}`")
        if folder.parent.name != "ledger":
            DeltaTable(path).create_checkpoint()
    assert len(list(pipeline.home.glob("*/_delta_log/*.checkpoint.parquet"))) >= 4
    assert scan(logs_of(pipeline), planted) == []
