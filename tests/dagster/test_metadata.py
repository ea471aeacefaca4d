"""Names and descriptions that Dagster is given."""

import dagster as dg
import pytest
from spark_support import plain_spec

from ebbtide.dagster.components import DEFAULT_RESOURCES as RESOURCES
from ebbtide.dagster.definitions import pipeline_definitions
from ebbtide.dagster.metadata import source_key, valid_in_keys


@pytest.mark.parametrize("folder", ["Größen 2026", "李小龍", "a*b", "%20", "in (old)"])
def test_source_folder_of_any_name_is_an_asset(tmp_path, folder):
    spec = plain_spec(tmp_path / folder)
    dg.Definitions.merge(pipeline_definitions(spec), dg.Definitions(resources=RESOURCES)).resolve_asset_graph()
    assert source_key(spec).path[0] == "source"


def test_names_that_dagster_takes_stay_and_others_never_become_one():
    assert valid_in_keys("shop.public.orders") == "shop.public.orders"
    assert len({valid_in_keys(name) for name in ("a b", "a_b", "a  b", "ä b", "é b", "")}) == 6
