"""Names and descriptions that Dagster is given."""

import dagster as dg
import pytest
from clusters.spark_support import plain_spec
from local.support import plain

from ebbtide import MaterializedView
from ebbtide.cron import Cron
from ebbtide.dagster import pipeline_definitions
from ebbtide.dagster.components import DEFAULT_RESOURCES as RESOURCES
from ebbtide.dagster.metadata import column_schema, on_engine, source_key, valid_in_keys


@pytest.mark.parametrize("folder", ["Größen 2026", "李小龍", "a*b", "%20", "in (old)"])
def test_source_folder_of_any_name_is_an_asset(tmp_path, folder):
    spec = plain_spec(tmp_path / folder)
    dg.Definitions.merge(pipeline_definitions(spec), dg.Definitions(resources=RESOURCES)).resolve_asset_graph()
    assert source_key(spec).path[0] == "source"


def test_names_that_dagster_takes_stay_and_others_never_become_one():
    assert valid_in_keys("shop.public.orders") == "shop.public.orders"
    assert len({valid_in_keys(name) for name in ("a b", "a_b", "a  b", "ä b", "é b", "")}) == 6


@pytest.mark.parametrize("refresh", ["on_change", "manual", {"every": "5m"}])
def test_view_follows_the_sinks_that_it_reads_as_its_refresh_says(refresh):
    view = MaterializedView(
        name="totals", query="SELECT id FROM plain", inputs=["plain"], schema="id BIGINT", key=["id"], refresh=refresh
    )
    definitions = pipeline_definitions(view)
    graph = dg.Definitions.merge(definitions, dg.Definitions(resources=RESOURCES)).resolve_asset_graph()
    sink, state = dg.AssetKey("totals"), dg.AssetKey("totals_state")
    assert graph.get(state).parent_keys == {dg.AssetKey("plain")}
    assert graph.get(sink).parent_keys == {state}
    assert "SELECT id FROM plain" in graph.get(sink).description
    follows = refresh == "on_change"
    assert (graph.get(sink).automation_condition is not None) == follows
    assert (graph.get(state).automation_condition is not None) == follows
    schedules = {each.name: each.cron_schedule for each in definitions.schedules}
    every_five_minutes = Cron.of("H/5 * * * *", "totals").text
    assert schedules.get("totals_schedule") == (every_five_minutes if isinstance(refresh, dict) else None)
    assert "ebbtide_cleanup_schedule" in schedules


def test_columns_without_a_comment_are_described_by_their_role(tmp_path):
    schema = "id BIGINT NOT NULL, v STRING COMMENT 'Its name', seq BIGINT, mail STRING"
    fields = {"schema": schema, "order": {"sequence": ["seq"]}, "ttl": "1d", "columns": {"mail": {"personal": True}}}
    columns = column_schema(plain_spec(tmp_path, **fields)).columns
    assert {column.name: column.description for column in columns} == {
        "id": "Key of the row.",
        "v": "Its name",
        "seq": "Orders the changes of a key.",
        "mail": "Personal.",
    }


@pytest.mark.parametrize(
    ("fields", "engine", "kinds"),
    [
        ({}, None, set()),
        ({"engine": "spark"}, None, {"spark"}),
        ({"engine": "local"}, None, {"python"}),
        ({"engine": "local"}, "spark", {"spark"}),
        ({}, "spark", {"spark"}),
    ],
)
def test_kinds_say_which_engine_makes_a_table(fields, engine, kinds):
    of_spec = dg.Definitions.merge(pipeline_definitions(plain(**fields)), dg.Definitions(resources=RESOURCES))
    definitions = on_engine(of_spec, engine)
    graph = definitions.resolve_asset_graph()
    assert [graph.get(dg.AssetKey(name)).kinds for name in ("t", "t_state")] == [{"deltalake", *kinds}] * 2
