"""Functions of a project: what they return, what is refused, and by what changes of their code are known."""

import importlib
import sys

import pytest
import yaml

from ebbtide import UpsertPipeline, load
from ebbtide.errors import ConfigError
from ebbtide.spec import UnfitFunctionError, UserFunction

ARROW = 250
PANDAS = 200


SPEC = """
type: ebbtide.UpsertPipeline
attributes:
  name: shown
  source: {path: in}
  format: {type: plain}
  schema: id BIGINT NOT NULL, v STRING
  key: [id]
  order: {sequence: [id]}
  transform:
    schema: id BIGINT NOT NULL, v STRING
    select: {id: id, v: tidy(v)}
    key: [id]
    functions: {tidy: "my_rules:tidy"}
"""


@pytest.fixture
def project(tmp_path):
    """A project with a spec and a function in modules of its own."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "my_rules.py").write_text("from my_parts import trim\n\ndef tidy(v: str) -> str:\n    return trim(v)\n")
    (tmp_path / "my_parts.py").write_text("def trim(v):\n    return v.strip()\n")
    (tmp_path / "defs" / "shown").mkdir(parents=True)
    (tmp_path / "defs" / "shown" / "defs.yaml").write_text(SPEC)
    yield tmp_path
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]
    for name in ("my_rules", "my_parts"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("name", "returns"),
    [
        ("number", "BIGINT"),
        ("twice", "BIGINT"),
        ("parts", "ARRAY<STRING>"),
        ("price", "DECIMAL(38,18)"),
    ],
)
def test_annotation_says_what_a_function_returns(name, returns):
    assert UserFunction.load(f"row_rules:{name}").returns == returns


@pytest.mark.parametrize(("name", "eval_type"), [("pandas_number", PANDAS), ("arrow_number", ARROW)])
def test_function_of_pyspark_says_it_by_itself(name, eval_type):
    function = UserFunction.load(f"row_rules:{name}")
    assert (function.returns.simpleString(), function.eval_type) == ("bigint", eval_type)
    assert callable(function.call)


def test_call_with_other_arguments_is_refused():
    with pytest.raises(UnfitFunctionError, match=r"got 2 arguments .* allowed: those of \(n: 'int'\)|\(n: int\)"):
        UserFunction.load("row_rules:twice").refuse_arguments(2)


def test_function_that_returns_no_value_per_row_is_refused_in_a_transform():
    with pytest.raises(UnfitFunctionError, match="not return one value per row but is of the kind aggregate; allowed"):
        UserFunction.load("row_rules:total").refuse_unless_of_rows()


def test_spec_loads_with_functions_of_its_project(project):
    spec = load(project / "defs" / "shown")
    assert spec.transform.row_function("tidy").call(" a ") == "a"


@pytest.mark.parametrize("module", ["my_rules.py", "my_parts.py"])
def test_changed_code_of_a_function_or_of_what_it_imports_is_another_transform(project, module):
    before = load(project / "defs" / "shown").identity["transform"]
    assert before == load(project / "defs" / "shown").identity["transform"]
    with (project / module).open("a") as file:
        file.write("# changed\n")
    after = load(project / "defs" / "shown").identity["transform"]
    assert before["functions"]["tidy"][0] == after["functions"]["tidy"][0] == "my_rules:tidy"
    assert before != after


def test_name_of_a_function_of_spark_is_refused_when_the_spec_is_loaded():
    fields = yaml.safe_load(SPEC)["attributes"]
    fields["transform"]["select"]["v"] = "mask(v)"
    fields["transform"]["functions"] = {"mask": "row_rules:twice"}
    with pytest.raises(
        ValueError, match=r"transform\.functions\.mask: got mask, a function of Spark; allowed: another name"
    ):
        UpsertPipeline(**fields)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"tidy": "no_such_module:f"}, "No module named 'no_such_module'"),
        ({"tidy": "row_rules:untyped"}, "which has no type"),
        ({"tidy": "row_rules:changing"}, "declares that it is not deterministic"),
        ({"tidy": "row_rules:twice", "other": "row_rules:twice"}, "other"),
        ({}, None),
    ],
)
def test_function_that_cannot_be_called_is_refused_when_the_spec_is_loaded(functions, message):
    fields = yaml.safe_load(SPEC)["attributes"]
    fields["transform"]["functions"] = functions
    if message is None:
        assert UpsertPipeline(**fields).transform.identity.get("functions") is None
        return
    with pytest.raises((ValueError, ConfigError)) as raised:
        UpsertPipeline(**fields)
    assert message in str(raised.value)
