"""The components in a project's folder of definitions."""

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from installing import install

import ebbtide
from ebbtide.dagster import MaterializedView, Resources, UpsertPipeline, UpsertPipelines
from ebbtide.dagster.components import SEVERAL_EXAMPLE, STATEFUL_EXAMPLE, UPSERT_EXAMPLE, VIEW_EXAMPLE
from ebbtide.errors import ConfigError

# All of Dagster's own calls.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.parse_obj_as. is deprecated"),
    pytest.mark.filterwarnings("ignore:Class .*CodeReference.* is currently in beta"),
]


@pytest.fixture
def sandbox():
    with create_defs_folder_sandbox() as made:
        yield made


def add(sandbox, folder, **attributes):
    given = {"name": folder, "source": {"path": f"data/{folder}"}, **UPSERT_EXAMPLE, **attributes}
    body = {"type": "ebbtide.dagster.UpsertPipeline", "attributes": given}
    sandbox.scaffold_component(component_cls=UpsertPipeline, defs_path=folder, defs_yaml_contents=body)


def root_of(definitions):
    return definitions.resources["storage"].root


def causes(error):
    while error is not None:
        yield error
        error = error.__cause__


def test_two_specs_with_one_name_are_refused_with_both_folders(sandbox):
    add(sandbox, "a", name="same")
    add(sandbox, "b", name="same")
    with pytest.raises(Exception) as caught, sandbox.build_all_defs():  # noqa: PT011 - Dagster's, around ours
        pass
    [said] = [str(error) for error in causes(caught.value) if isinstance(error, ConfigError)]
    assert said.startswith("Two specs have one name: '")
    assert "/a' and '" in said
    assert "/b'. Got: same." in said


def test_pipelines_bring_resources_until_the_project_has_its_own(sandbox):
    add(sandbox, "a")
    add(sandbox, "b")
    with sandbox.build_all_defs() as definitions:
        assert root_of(definitions) == ".ebbtide"
        assert {dg.AssetKey("a"), dg.AssetKey("b")} <= definitions.resolve_asset_graph().materializable_asset_keys
    body = {"type": "ebbtide.dagster.Resources", "attributes": {"root": "s3://tables"}}
    sandbox.scaffold_component(component_cls=Resources, defs_path="resources", defs_yaml_contents=body)
    with sandbox.build_all_defs() as definitions:
        assert root_of(definitions) == "s3://tables"


@pytest.mark.parametrize(
    ("spec", "example"), [(ebbtide.UpsertPipeline, UPSERT_EXAMPLE), (ebbtide.StatefulPipeline, STATEFUL_EXAMPLE)]
)
def test_what_is_scaffolded_is_a_spec(spec, example):
    assert spec(name="a", source={"path": "data/a"}, **example).key == ["id"]


def test_view_that_is_scaffolded_is_a_spec_and_loads(sandbox):
    assert ebbtide.MaterializedView(name="a", **VIEW_EXAMPLE).key == ["customer_id"]
    body = {"type": "ebbtide.dagster.MaterializedView", "attributes": {"name": "v", **VIEW_EXAMPLE}}
    sandbox.scaffold_component(component_cls=MaterializedView, defs_path="v", defs_yaml_contents=body)
    with sandbox.build_all_defs() as definitions:
        assert dg.AssetKey("v") in definitions.resolve_asset_graph().materializable_asset_keys


def test_several_pipelines_of_one_file_are_assets_each_and_share_no_name_with_others(sandbox):
    body = {"type": "ebbtide.dagster.UpsertPipelines", "attributes": {"name": "shop", **SEVERAL_EXAMPLE}}
    sandbox.scaffold_component(component_cls=UpsertPipelines, defs_path="shop", defs_yaml_contents=body)
    with sandbox.build_all_defs() as definitions:
        assert dg.AssetKey("orders") in definitions.resolve_asset_graph().materializable_asset_keys
        sensors = {sensor.name for sensor in definitions.sensors}
        assert sensors == {"ebbtide_backlog", "shop_topics"}
    add(sandbox, "other", name="orders")
    with pytest.raises(Exception) as caught, sandbox.build_all_defs():  # noqa: PT011 - Dagster's, around ours
        pass
    assert [error for error in causes(caught.value) if isinstance(error, ConfigError)]


def test_component_takes_parts_of_other_packages_with_their_options(sandbox, tmp_path, shell):
    install(tmp_path / "logbook", shell, "logbook")
    install(tmp_path / "documents", shell, "documents")
    parts = {
        "source": {"type": "logbook", "folder": "logs"},
        "format": {"type": "puts"},
        "sink": {"type": "documents", "indent": 2},
    }
    add(sandbox, "a", **parts, order="arrival")
    with sandbox.build_all_defs() as definitions:
        graph = definitions.resolve_asset_graph()
        assert graph.get(dg.AssetKey("a")).kinds == set()
        checks = {key.name for key in graph.asset_check_keys}
        assert checks == {"expiry", "quarantine_rate", "schema_drift", "foreign_writes", "source_loss"}
    add(sandbox, "b", **parts | {"sink": {"type": "documents", "indent": "deep"}}, order="arrival")
    with pytest.raises(Exception) as caught, sandbox.build_all_defs():  # noqa: PT011 - Dagster's, around ours
        pass
    assert any("sink.indent" in str(error) for error in causes(caught.value))
