"""Records of tools are recognised by values of several fields, and a table's own columns are not taken for a tool's."""

import json

import pytest
from inputs.tool_records import WRITERS, lines, records

from ebbtide import UpsertPipeline
from ebbtide.errors import ConfigError
from ebbtide.proposal import Proposal, Sample, Trial


def proposed(values, *, key=("id",), table=None, sequence=(), types=None):
    encoded = [value.encode() if isinstance(value, str) else json.dumps(value).encode() for value in values]
    sample = Sample.take(encoded, 1000, topic=None, table=table)
    proposal = Proposal.of(sample, key=key, sequence=sequence, types=types)
    source = {"path": "in", "records": sample.holds} | ({"table": table} if table else {})
    spec = UpsertPipeline.model_validate({"name": "t", "source": source, **proposal.attributes})
    return proposal.attributes, Trial.of(spec, sample)


def ids_and_amounts(trial):
    rows = [json.loads(row) for row in trial.rows]
    return sorted((str(row["id"]), f"{float(row['total']):.2f}") for row in rows)


def right(rows):
    return sorted((str(row["id"]), f"{row['total']:.2f}") for row in rows)


@pytest.mark.parametrize("name", WRITERS)
def test_history_of_each_tool_is_recognised_and_becomes_its_table(name):
    writer = WRITERS[name]
    written, rows = records(writer, seed=7)
    attributes, trial = proposed(lines(written))
    assert (attributes["format"], trial.n_bad) == ({"type": writer.format}, 0)
    assert attributes["order"] == ({"sequence": list(writer.sequence)} if writer.sequence else "upsert")
    assert ids_and_amounts(trial) == right(rows)


@pytest.mark.parametrize("name", ["maxwell", "ticdc"])
def test_bytes_of_a_tool_that_says_how_it_writes_them_need_no_encoding(name):
    coded = {"a": "AAAA", "\u00fc": "cafe", "01": "AQ=="}
    written, _ = records(WRITERS[name], seed=7)
    for record in written:
        for row in (record.get("data") or {}, record.get("old") or {}):
            if row.get("v"):
                row["v"] = coded.get(row["v"], row["v"])  # records share rows
    attributes, trial = proposed(written, types={"v": "BINARY"})
    assert (attributes["format"], trial.n_bad) == ({"type": name}, 0)
    assert "v BINARY" in attributes["schema"]


@pytest.mark.parametrize("name", ["maxwell", "canal", "ticdc", "dms", "sequin"])
def test_tables_of_a_tool_are_listed_and_chosen(name):
    writer = WRITERS[name]
    written, rows = records(writer, seed=3)
    others = [json.loads(line.replace('"orders"', '"users"')) for line in lines(written)]
    with pytest.raises(ConfigError, match=r"several tables, which make a table each. Got: .*orders \(.*users \("):
        proposed([*written, *others])
    _, trial = proposed([*written, *others], table="orders")
    assert ids_and_amounts(trial) == right(rows)


WORDS = {
    "whole words": ("op", {"insert": "insert", "update": "update", "delete": "delete"}),
    "letters": ("Op", {"insert": "I", "update": "U", "delete": "D"}),
    "of Debezium": ("op", {"insert": "c", "update": "u", "delete": "d"}),
    "in another field": ("meta.what", {"insert": "CREATED", "update": "UPDATED", "delete": "REMOVED"}),
}


def in_words(change, field, words):
    outer, _, inner = field.rpartition(".")
    word = {inner: words[change.kind]}
    return {outer: word} if outer else word


@pytest.mark.parametrize(("field", "words"), WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("row", [None, "data", "after"])
def test_operation_in_words_is_found_by_its_values(field, words, row):
    def write(change):
        mark = in_words(change, field, words)
        return mark | (change.row if row is None else {row: change.row})

    writer = type(WRITERS["dms_s3"])(write, "mapped", sends_old_key=False)
    written, rows = records(writer, seed=5)
    attributes, trial = proposed(lines(written))
    assert ids_and_amounts(trial) == right(rows)
    assert trial.n_bad == 0
    if field == "meta.what":
        assert attributes["format"]["operation"] == {"field": field, **{kind: [word] for kind, word in words.items()}}


def test_words_that_the_sample_lacks_are_known_in_the_manner_of_those_that_it_has():
    attributes, _ = proposed([{"op": "INSERT", "id": 1}])
    assert attributes["format"]["operation"]["delete"] == ["DELETE", "DELETED", "REMOVE", "REMOVED"]
    attributes, _ = proposed([{"op": "u", "id": 1}])
    assert attributes["format"]["operation"]["delete"] == ["d"]


OWN_COLUMNS = {
    "type": {"id": 1, "type": "insert-only", "data": {"a": 1}, "ts": 5},
    "Maxwell's names": {"id": 1, "database": "d", "table": "t", "type": "big", "ts": 5, "data": {"a": 1}},
    "Canal's names": {"id": 1, "database": "d", "table": "t", "type": "INSERTED", "isDdl": "no", "es": 1, "ts": 1},
    "op": {"id": 1, "op": "sum", "value": 5},
    "action": {"id": 1, "action": "click", "record": "x"},
    "metadata": {"id": 1, "metadata": {"operation": "load-test", "table": "t"}},
    "deleted": {"id": 1, "_fivetran_deleted": False},
    "one word in another column": {"id": 1, "state": "deleted"},
    "one word in a column of events": {"id": 1, "type": "created", "action": "update", "event": "remove"},
    "a name within": {"id": 1, "data": {"type": "insert"}},
}


@pytest.mark.parametrize("value", OWN_COLUMNS.values(), ids=OWN_COLUMNS)
def test_columns_of_a_table_are_not_taken_for_a_tool_s(value):
    with pytest.raises(ConfigError, match="not a known changelog"):
        proposed([value])


def kafka(offset, key, value):
    texts = {"key": json.dumps(key), "value": None if value is None else json.dumps(value)}
    return {"topic": "t", "partition": 0, "offset": offset, **texts}


def test_rows_of_a_topic_are_taken_as_they_are_by_their_keys():
    values = [kafka(0, {"id": 1}, {"id": 1, "v": "a"}), kafka(1, {"id": 1}, {"id": 1, "v": "b"})]
    attributes, trial = proposed(values, key=())
    assert (attributes["format"], attributes["key"]) == ({"type": "mapped"}, ["id"])
    assert [json.loads(row) for row in trial.rows] == [{"id": 1, "v": "b"}]
    for other_key in ({"uid": 1}, {"id": 2}, "1", None):
        with pytest.raises(ConfigError, match="not a known changelog"):
            proposed([kafka(0, other_key, {"id": 1})])


def test_columns_that_only_the_key_has_are_columns():
    values = [kafka(0, {"id": 1}, {"v": "a"}), kafka(1, {"id": 1}, {"v": "b"})]
    attributes, trial = proposed(values, key=())
    assert (attributes["schema"].split(), attributes["key"]) == (
        ["id", "BIGINT", "NOT", "NULL,", "v", "STRING"],
        ["id"],
    )
    assert [json.loads(row) for row in trial.rows] == [{"id": 1, "v": "b"}]
    with pytest.raises(ConfigError, match="not a known changelog"):
        proposed([kafka(0, {"id": 1}, {"before": None, "after": {"id": 1}})], key=())


def test_lines_of_kcat_are_read_as_their_values():
    def of_kcat(record):
        payload = record.pop("value")
        return {**record, "payload": payload, "tstype": "create", "ts": 1767225600000, "broker": 1}

    values = [
        kafka(0, {"id": 1}, {"id": 1, "v": "a"}),
        kafka(1, {"id": 1}, {"id": 1, "v": "b"}),
        kafka(2, {"id": 2}, None),
    ]
    attributes, trial = proposed(list(map(of_kcat, values)), key=())
    assert [json.loads(row) for row in trial.rows] == [{"id": 1, "v": "b"}]
    assert attributes["format"] == {"type": "mapped"}
