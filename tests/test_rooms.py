"""Imports go downward only: what each room may import."""

import ast
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("ebbtide", "pipelines", "assets", "resources", "expectations")
STDLIB = set(sys.stdlib_module_names) | {"__future__"}
SPARK = {"pyspark", "delta", "py4j"}
MODEL = {"pydantic", "pyarrow", "numpy"}
PRODUCT = MODEL | SPARK | {"pydantic_core", "yaml", "ebbtide"}

ALLOWED = {
    "ebbtide": PRODUCT,
    "ebbtide/model": MODEL | {"ebbtide"},
    "expectations": {"great_expectations", "pyspark", "ebbtide", "expectations"},  # and `dagster` in the adapter
    "resources": {"dagster", "pydantic", "pyspark", "ebbtide", "resources"},
    "assets": {"dagster", "pydantic", "resources", "expectations", "ebbtide", "assets"},
    "pipelines": {"dagster", "ebbtide", "assets", "resources", "expectations", "pipelines"},
}
ALONE = {
    "dagster": "expectations/adapter.py",
    "click": "ebbtide/cli/",
    "sqlglot": "ebbtide/streaming/ddl.py",
    "rocksdict": "ebbtide/store/rocksdb",
    "numba": "ebbtide/model/compiled.py",
}
"""Libraries that one place has to itself."""

BELOW = ("model", "sources", "store", "sinks", "streaming", "rules", "maintenance")
"""Rooms of the product; each may import those before it and itself. Paths and errors belong to all but the model."""


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path):
    """(top-level module, full module) of every import in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        yield from ((name.partition(".")[0], name) for name in names)


def outside(path, allowed):
    here = str(path.relative_to(ROOT))
    alone = {name for name, place in ALONE.items() if here.startswith(place)}
    return {name for top, name in imports(path) if top not in STDLIB | allowed | alone}


@pytest.mark.parametrize("folder", ALLOWED)
def test_room_imports_nothing_but_what_it_may(folder):
    found = {str(path.relative_to(ROOT)): outside(path, ALLOWED[folder]) for path in sources(folder)}
    assert {path: names for path, names in found.items() if names} == {}
    assert found, "the room is there"


def test_model_imports_of_the_product_the_model_only():
    for path in sources("ebbtide/model"):
        assert {
            name for top, name in imports(path) if top == "ebbtide" and not name.startswith("ebbtide.model")
        } == set(), path


@pytest.mark.parametrize("room", BELOW)
def test_product_rooms_import_downward_only(room):
    above = tuple(f"ebbtide.{other}" for other in BELOW[BELOW.index(room) + 1 :])
    for path in sources(f"ebbtide/{room}"):
        assert {name for _, name in imports(path) if name.startswith(above)} == set(), path


def test_environment_is_read_by_session_and_java_only():
    def reads(path):
        text = path.read_text(encoding="utf-8")
        return "os.environ" in text or "getenv" in text

    assert {str(p.relative_to(ROOT)) for p in sources("ebbtide") if reads(p)} <= {
        "ebbtide/streaming/session.py",
        "ebbtide/java.py",
    }


def test_our_names_are_no_other_distributions():
    for name in OURS:
        assert set(packages_distributions().get(name, ["ebbtide"])) == {"ebbtide"}
