"""The components in a project's folder of definitions."""

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from frame.installing import install

import ebbtide
from ebbtide.dagster import MaterializedView, Resources, StatefulPipeline, UpsertPipeline, UpsertPipelines
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


def scaffold(sandbox, component, folder, **attributes):
    """Write what `dg scaffold` does, with some other attributes."""
    path = sandbox.scaffold_component(component_cls=component, defs_path=folder)
    written = yaml.safe_load((path / "defs.yaml").read_text())
    body = written | {"attributes": written["attributes"] | attributes}
    (path / "defs.yaml").write_text(yaml.safe_dump(body))
    return body["attributes"]


def add(sandbox, folder, **attributes):
    scaffold(sandbox, UpsertPipeline, folder, **attributes)


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
    ("spec", "component"), [(ebbtide.UpsertPipeline, UpsertPipeline), (ebbtide.StatefulPipeline, StatefulPipeline)]
)
def test_what_is_scaffolded_is_a_spec(sandbox, spec, component):
    assert spec(**scaffold(sandbox, component, "a")).key == ["id"]


def test_view_that_is_scaffolded_is_a_spec_and_loads(sandbox):
    assert ebbtide.MaterializedView(**scaffold(sandbox, MaterializedView, "v")).key == ["customer_id"]
    with sandbox.build_all_defs() as definitions:
        assert dg.AssetKey("v") in definitions.resolve_asset_graph().materializable_asset_keys


def test_several_pipelines_of_one_file_are_assets_each_and_share_no_name_with_others(sandbox):
    scaffold(sandbox, UpsertPipelines, "shop")
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
        assert checks == {"next_run", "expiry", "quarantine_rate", "schema_drift", "foreign_writes", "source_loss"}
    add(sandbox, "b", **parts | {"sink": {"type": "documents", "indent": "deep"}}, order="arrival")
    with pytest.raises(Exception) as caught, sandbox.build_all_defs():  # noqa: PT011 - Dagster's, around ours
        pass
    assert any("sink.indent" in str(error) for error in causes(caught.value))
