"""A transform in a spec: what is refused without Spark, and what follows from it."""

import pytest
from local.support import plain, spec
from pydantic import ValidationError

from ebbtide.errors import ConfigError
from ebbtide.sqltext import SqlText, UnfitExpressionError
from ebbtide.testing import MemoryPipeline

SCHEMA = "id BIGINT NOT NULL, amount DECIMAL(12,2), status STRING, tags ARRAY<STRING>, at TIMESTAMP"
NAMES = ["id", "amount", "status", "tags", "at"]
TRANSFORM = {
    "schema": "order_id BIGINT NOT NULL, total DECIMAL(14,2), label STRING",
    "select": {"order_id": "ID", "total": "amount * 2", "label": "upper(status)"},
    "where": "status <> 'void'",
    "key": ["order_id"],
}


def by_sequence(**more):
    return spec(SCHEMA, transform={**TRANSFORM, **more})


def by_arrival(**more):
    return plain(SCHEMA, transform={**TRANSFORM, **more})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("upper(STATUS)", ["status"]),
        ("transform(tags, x -> x || status)", ["status", "tags"]),
        ("tags[0] = 'id'", ["tags"]),
        ("CASE WHEN amount > 0 THEN id END", ["id", "amount"]),
        ("date_format(at, 'yyyy') -- id", ["at"]),
        ("1", []),
        ("`status` RLIKE 'a;b'", ["status"]),
        ("exists(tags, x -> x = 'a')", ["tags"]),
        ("unix_timestamp(status)", ["status"]),
    ],
)
def test_columns_that_an_expression_reads(text, read):
    assert SqlText(text).columns_read(NAMES) == read


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount *", "does not parse"),
        ("", "not one expression|does not parse"),
        ("amount, id", "not one expression"),
        ("id; DROP TABLE t", "not one expression"),
        ("id FROM other", "not one expression"),
        ("DISTINCT id", "not one expression"),
        ("id AS x", "alias"),
        ("*", "a star"),
        ("nothing + id", "no column nothing"),
        ("sum(amount)", "an aggregate"),
        ("row_number() OVER (ORDER BY id)", "a window"),
        ("(SELECT 1)", "a subquery"),
        ("id IN (SELECT 1)", "a subquery"),
        ("explode(tags)", "a generator"),
        ("stack(2, id, id)", "a generator"),
        ("rand()", "RAND"),
        ("uuid()", "UUID"),
        ("now()", "NOW"),
        ("current_timestamp", "CURRENT_TIMESTAMP"),
        ("unix_timestamp()", "CURRENT_TIMESTAMP"),
        ("monotonically_increasing_id()", "MONOTONICALLY_INCREASING_ID"),
        (":id", "a parameter"),
        ("(" * 5000 + "id" + ")" * 5000, "does not parse"),
    ],
)
def test_expression_that_is_not_one_over_a_row_is_unfit(text, why):
    with pytest.raises(UnfitExpressionError, match=why):
        SqlText(text).columns_read(NAMES)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"where": "sum(amount) > 1"}, "transform.where: got sum.*an aggregate; allowed: a Spark SQL expression"),
        ({"select": {**TRANSFORM["select"], "total": "amnt"}}, "transform.select.total: got amnt.*columns: id, amount"),
        ({"select": {**TRANSFORM["select"], "more": "id"}}, "transform.select: got more"),
        ({"select": {"order_id": "id"}}, "got none for total, none for label"),
        ({"key": ["id"]}, "transform.key: got id; allowed: columns of transform.schema"),
        ({"key": ["order_id", "order_id"]}, "each column once"),
        ({"schema": "order_id BIGINT, total DOUBLE, label STRING DEFAULT 'a'"}, "columns without DEFAULT"),
        ({"schema": "order_id BIGINT, total DOUBLE, _out STRING"}, "transform.select|reserve"),
        ({"key": ["label"]}, "transform.key: got label: upper.*another key needs order: arrival"),
        ({"key": ["order_id", "label"]}, "another key needs order: arrival"),
        (
            {"schema": "order_id STRING, total DECIMAL(14,2), label STRING"},
            "got order_id STRING of id BIGINT; allowed: the types that the key has",
        ),
    ],
)
def test_unfit_transform_is_refused_with_field_and_way_out(more, message):
    with pytest.raises((ValidationError, ConfigError), match=message):
        by_sequence(**more)


def test_what_does_not_go_with_a_transform_is_refused():
    with pytest.raises(ValidationError, match="a transform names the columns that it reads"):
        spec(SCHEMA, transform=TRANSFORM, schema_evolution_mode="evolve")
    with pytest.raises(ValidationError, match="does not determine the source's row"):
        spec(SCHEMA, transform=TRANSFORM, ttl={"ttl": "1d", "expire_live": True})
    with pytest.raises(ConfigError, match="which Spark alone evaluates"):
        MemoryPipeline(by_sequence())


def test_by_sequence_the_state_keeps_the_source_and_by_arrival_what_was_selected():
    rows = by_sequence()
    changes = by_arrival(key=["label"], schema="order_id BIGINT, total DECIMAL(14,2), label STRING NOT NULL")
    assert (rows.state_columns.names, rows.state_key, rows.state_key_of) == (NAMES, ["id"], {"order_id": "id"})
    assert changes.state_columns.names == ["order_id", "total", "label"]
    assert (changes.state_key, changes.state_key_of) == (["label"], {"label": "label"})
    assert [field.nullable for field in rows.sink_table.columns] == [False, True, True]
    assert "transform" in rows.migrates
    assert changes.migrates == {"ttl"}
    assert "transform" not in plain(SCHEMA).migrates, "the state would have to get back what was not selected"
    assert changes.identity["transform"]["reads"] == ["id int64", "amount decimal128(12, 2)", "status string"]


def test_a_transform_that_comes_goes_or_changes_misfits_and_a_spec_without_one_has_no_more_identity():
    bare = spec(SCHEMA)
    rows = by_sequence()
    assert "transform" not in bare.identity
    assert rows.misfits(bare.identity) == ["transform"]
    assert bare.misfits(rows.identity) == ["transform"]
    assert by_sequence(where=None).misfits(rows.identity) == ["transform"]
    assert rows.misfits(by_sequence().identity) == []


def test_column_made_of_a_personal_one_is_personal():
    given = spec(SCHEMA, transform=TRANSFORM, columns={"status": {"personal": True}})
    assert given.personal == {"status", "label"}
    assert given.column_sources == {"order_id": ["id"], "total": ["amount"], "label": ["status"]}
