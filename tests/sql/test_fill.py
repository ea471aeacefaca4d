"""INSERT INTO makes the `defs.yaml` of a pipeline, and refuses queries that no pipeline can apply."""

import pytest
import yaml

from ebbtide import load
from ebbtide.errors import SqlError
from ebbtide.sql import parse_text
from ebbtide.sql._fill import plan_insert, write_filling

pytestmark = pytest.mark.usefixtures("declared")


def filled(catalog, text):
    return plan_insert(catalog, parse_text(text))


@pytest.mark.demand("sql-ddl", "sql-retention")
def test_columns_as_they_are_make_a_pipeline_that_reads_no_others(catalog, tmp_path):
    filling = filled(catalog, "INSERT INTO kept SELECT id, v, at FROM log")
    folder = write_filling(catalog, filling)
    spec = load(folder)
    assert spec.name == "kept"
    assert spec.table.columns.names == ["id", "v", "at"]
    assert (spec.key, spec.sequence, spec.ttl.ttl.days) == (["id"], ("at", "id"), 30)
    assert spec.source.path == str(tmp_path / "in")
    assert spec.description == "what happened"
    assert list(catalog.pipelines()) == ["kept"]
    assert not (tmp_path / "defs" / "kept" / "table.yaml").exists()


def test_columns_may_be_named_in_any_order(catalog):
    filling = filled(catalog, "INSERT INTO kept (v, at, id) SELECT v, at, id FROM log AS l")
    assert "transform" not in filling.attributes


SELECTED = "CREATE TABLE shown (no BIGINT NOT NULL, label STRING, amount INT, PRIMARY KEY (no))"


@pytest.mark.parametrize(
    ("query", "select", "where"),
    [
        ("SELECT id, upper(v), amount::int FROM log", ("id", "upper(v)", "amount::int"), None),
        ("SELECT l.id AS no, `l`.v label, l.amount FROM log l", ("id", "v", "amount"), None),
        (
            "SELECT id, concat_ws(',', v, 'a FROM b'), -- sum\n case when amount > 1 then 1 end x FROM log WHERE v IS DISTINCT FROM 'x' AND log.id > 1",
            ("id", "concat_ws(',', v, 'a FROM b')", "case when amount > 1 then 1 end"),
            "v IS DISTINCT FROM 'x' AND id > 1",
        ),
        (
            "SELECT id, v is distinct from 'a' AS label, year(at) FROM log",
            ("id", "v is distinct from 'a'", "year(at)"),
            None,
        ),
        (
            "SELECT id, trim(both ' ' from v), extract(year from at) FROM log",
            ("id", "trim(both ' ' from v)", "extract(year from at)"),
            None,
        ),
    ],
)
def test_expressions_and_condition_are_a_transform_as_they_were_written(do, catalog, query, select, where):
    do(SELECTED)
    attributes = filled(catalog, f"INSERT INTO shown {query}").attributes
    transform = attributes["transform"]
    assert tuple(transform["select"].values()) == select
    assert transform.get("where") == where
    assert list(transform["select"]) == ["no", "label", "amount"]
    assert (attributes["key"], transform["key"]) == (["id"], ["no"])
    spec = load(write_filling(catalog, filled(catalog, f"INSERT INTO shown {query}")))
    assert spec.sink_table.columns.names == ["no", "label", "amount"]
    assert filled(catalog, f"INSERT INTO shown {query}").existing is not None


def test_declared_functions_that_are_called_go_into_the_transform(do, catalog):
    do(SELECTED)
    do("CREATE FUNCTION twice AS 'row_rules:twice' DETERMINISTIC")
    do("CREATE FUNCTION parts AS 'row_rules:parts' DETERMINISTIC")
    query = "INSERT INTO shown SELECT id, upper(v), twice(CAST(amount AS INT)) FROM log WHERE twice(id) > 2"
    attributes = filled(catalog, query).attributes
    assert attributes["transform"]["functions"] == {"twice": "row_rules:twice"}
    spec = load(write_filling(catalog, filled(catalog, query)))
    assert spec.transform.identity["functions"]["twice"][0] == "row_rules:twice"


def test_function_that_is_not_declared_deterministic_is_refused_before_anything_is_made(do, catalog):
    do(SELECTED)
    do("CREATE FUNCTION twice AS 'row_rules:twice'")
    with pytest.raises(SqlError, match=r"'twice' is not declared deterministic.*CREATE OR REPLACE FUNCTION twice"):
        filled(catalog, "INSERT INTO shown SELECT id, v, twice(id) FROM log")
    assert catalog.pipelines() == {}


def test_column_that_orders_changes_need_not_be_in_the_table(do, catalog):
    do("CREATE TABLE few (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id))")
    spec = load(write_filling(catalog, filled(catalog, "INSERT INTO few SELECT id, v FROM log")))
    assert spec.sequence == ("at", "id")
    assert spec.sink_table.columns.names == ["id", "v"]


def test_default_of_the_source_is_not_lost_where_the_table_has_none(do, catalog, tmp_path):
    do(f"""CREATE SOURCE tiers (id BIGINT, tier STRING DEFAULT 'basic', PRIMARY KEY (id))
        WITH (path = '{tmp_path / "in"}', format = plain, sequence = id)""")
    do("CREATE TABLE without (id BIGINT, tier STRING, PRIMARY KEY (id))")
    do("CREATE TABLE with_it (id BIGINT, tier STRING DEFAULT 'basic', PRIMARY KEY (id))")
    attributes = filled(catalog, "INSERT INTO without SELECT * FROM tiers").attributes
    assert "DEFAULT 'basic'" in attributes["schema"]
    assert attributes["transform"]["select"] == {"id": "id", "tier": "tier"}
    assert "transform" not in filled(catalog, "INSERT INTO with_it SELECT * FROM tiers").attributes


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT id, rand(), 1 FROM log", "rand"),
        ("SELECT id, nope, 1 FROM log", "nope"),
        ("SELECT id, max(v), 1 FROM log", "max"),
        ("SELECT amount, v, 1 FROM log", "transform.key"),
        ("SELECT id, explode(array(v)), 1 FROM log", "explode"),
    ],
)
def test_expression_that_is_not_over_a_row_is_refused(do, catalog, query, says):
    do(SELECTED)
    with pytest.raises(SqlError) as raised:
        filled(catalog, f"INSERT INTO shown {query}")
    assert says in str(raised.value)


def test_the_same_statement_again_finds_the_pipeline_and_another_is_refused(catalog):
    text = "INSERT INTO kept SELECT id, v, at FROM log"
    folder = write_filling(catalog, filled(catalog, text))
    written = (catalog.folder / "kept" / "defs.yaml").read_text()
    again = filled(catalog, text)
    assert write_filling(catalog, again) == folder
    assert (catalog.folder / "kept" / "defs.yaml").read_text() == written
    document = yaml.safe_load(written)
    document["attributes"]["source"]["path"] = "elsewhere"
    (catalog.folder / "kept" / "defs.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(SqlError, match=r"filled by another statement already. Got: source"):
        filled(catalog, text)


def test_statement_set_is_checked_whole_before_anything_is_written(do, catalog):
    with pytest.raises(SqlError, match="no source 'nope'"):
        do("BEGIN STATEMENT SET; INSERT INTO kept SELECT id, v, at FROM log; INSERT INTO kept SELECT * FROM nope; END")
    assert catalog.pipelines() == {}


@pytest.mark.demand("sql-explain")
def test_plan_is_shown_and_nothing_is_done(do, catalog):
    [[plan]] = do("EXPLAIN INSERT INTO kept SELECT id, v, at FROM log")
    assert yaml.safe_load(plan)["name"] == "kept"
    assert catalog.pipelines() == {}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT id, v, at FROM nope", "There is no source 'nope'. Allowed: log"),
        ("SELECT id, v, at FROM kept", "There is no source 'kept'"),
        ("SELECT id, v FROM log", "Got: 2 expressions. Allowed: 3: id, v, at"),
        ("SELECT 1, 2, 3", "no source or several"),
        ("SELECT l.id, l.v, l.at FROM log l JOIN log m ON l.id = m.id", "Got: JOIN"),
        ("SELECT l.id, l.v, l.at FROM log l, log m", "Got: JOIN"),
        ("SELECT id, v, at FROM log WHERE id IN (SELECT id FROM log)", "no source or several"),
        ("SELECT id, v, at FROM (SELECT * FROM log)", "no source or several"),
        ("SELECT id, max(v), max(at) FROM log GROUP BY id", "Got: GROUP BY"),
        ("SELECT DISTINCT id, v, at FROM log", "Got: DISTINCT"),
        ("SELECT id, v, at FROM log ORDER BY id", "Got: ORDER BY"),
        ("SELECT id, v, at FROM log LIMIT 1", "Got: LIMIT"),
        ("WITH x AS (SELECT 1) SELECT id, v, at FROM log", "Got: WITH"),
        ("SELECT id, v, at FROM log UNION ALL SELECT id, v, at FROM log", "Got: UNION"),
        ("VALUES (1, 'a', null)", "Got: VALUES"),
        ("SELECT id, v, at FROM log WHERE", "cannot be read"),
        ("SELECT id, v,, at FROM log", "cannot be read. Got: , ,. Allowed: one comma"),
        ("SELECT id, v, at, FROM log", "cannot be read. Got: , FROM."),
        ("SELECT , id, v, at FROM log", "cannot be read. Got: SELECT ,."),
    ],
)
def test_query_that_no_pipeline_can_apply_is_refused(catalog, query, says):
    with pytest.raises(SqlError) as raised:
        filled(catalog, f"INSERT INTO kept {query}")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("into", "says"),
    [
        ("nope", "There is no table 'nope'. Got: nothing of this name"),
        ("log", "There is no table 'log'. Got: a source"),
        ("kept (id, v)", "does not fill"),
        ("kept (id, v, nope)", "are not the table's. Got: id, v, nope. Allowed: id, v, at"),
        ("kept (id, v, v)", "are not the table's"),
    ],
)
def test_table_that_cannot_be_filled_is_refused(catalog, into, says):
    with pytest.raises(SqlError) as raised:
        filled(catalog, f"INSERT INTO {into} SELECT id, v, at FROM log")
    assert says in str(raised.value)


def test_pipeline_with_a_condition_is_not_the_one_of_the_same_statement_without(do, catalog):
    do("CREATE TABLE whole (id BIGINT NOT NULL, v STRING, at TIMESTAMP, amount DECIMAL(12,2), PRIMARY KEY (id))")
    write_filling(catalog, filled(catalog, "INSERT INTO whole SELECT * FROM log WHERE id > 1"))
    with pytest.raises(SqlError, match=r"filled by another statement already. Got: transform"):
        filled(catalog, "INSERT INTO whole SELECT * FROM log")


@pytest.mark.parametrize(
    "options",
    [
        "checks.expiry_grace = '1h', checks = '{expiry_grace: 2h}'",
        "checks = '{expiry_grace: 2h}', checks.expiry_grace = '1h'",
    ],
)
def test_option_that_would_replace_another_is_refused(do, catalog, options):
    do(f"CREATE TABLE twice (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id)) WITH ({options})")
    with pytest.raises(SqlError, match="contradicts"):
        filled(catalog, "INSERT INTO twice SELECT id, v FROM log")


def test_pipeline_that_has_not_run_is_dropped_with_its_folder(do, catalog):
    write_filling(catalog, filled(catalog, "INSERT INTO kept SELECT id, v, at FROM log"))
    assert do("DROP TABLE kept") == "Dropped table 'kept'."
    assert not (catalog.folder / "kept").exists()
