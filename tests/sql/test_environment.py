import pytest

from ebbtide.errors import ConfigError
from ebbtide.sql.catalog import Declared, DeclaredKind
from ebbtide.sql.environment import Environment, read_environment


def test_environment_declares_sources_functions_variables_and_settings(tmp_path):
    file = tmp_path / "env.yaml"
    file.write_text("""
sources:
  log: {columns: id BIGINT, key: [id], options: {path: in, header: true}}
functions: {tidy: "rules:tidy", mask: {target: "rules:mask", deterministic: true}}
variables: {day: 2026-01-01}
settings: {max-rows: 100}
""")
    assert read_environment(file) == Environment(
        (
            Declared(DeclaredKind.SOURCE, "log", "id BIGINT", ("id",), {"path": "in", "header": "true"}),
            Declared(DeclaredKind.FUNCTION, "tidy", target="rules:tidy"),
            Declared(DeclaredKind.FUNCTION, "mask", target="rules:mask", is_deterministic=True),
        ),
        {"day": "2026-01-01"},
        {"max-rows": "100"},
    )


def test_no_file_says_nothing():
    assert read_environment(None) == Environment()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tables: {}", "Got: tables. Allowed: sources, functions, variables, settings"),
        ("sources: [a]", "sources"),
        ("sources: {a: {colums: x}}", "sources.a: colums"),
        ("functions: {f: {module: x}}", "functions.f: module"),
        ("- a", "the file"),
        ("{", "cannot be read"),
    ],
)
def test_what_must_not_be_there_is_refused(tmp_path, text, said):
    file = tmp_path / "env.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_environment(file)
