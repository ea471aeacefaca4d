import pytest

from ebbtide.errors import ConfigError, SqlError
from ebbtide.sql import EmbeddedSession, read_environment


@pytest.mark.demand("sql-environment")
def test_environment_declares_sources_functions_variables_and_settings(tmp_path):
    file = tmp_path / "env.yaml"
    file.write_text("""
sources:
  log: {columns: id BIGINT, key: [id], options: {path: in, header: true}}
functions: {tidy: "rules:tidy", hide: {target: "rules:hide", deterministic: true}}
variables: {day: 2026-01-01}
settings: {max-rows: 100}
""")
    found = read_environment(file)
    assert (found.variables, found.settings) == ({"day": "2026-01-01"}, {"max-rows": "100"})
    entries = found.catalogs(str(tmp_path / "root"), str(tmp_path / "defs"))["default"].entries()
    log = entries["log"]
    assert (log.columns, log.key, log.options) == ("id BIGINT", ("id",), {"path": "in", "header": "true"})
    functions = [(entries[name].target, entries[name].deterministic) for name in ("tidy", "hide")]
    assert functions == [("rules:tidy", False), ("rules:hide", True)]


def test_no_file_says_nothing():
    nothing = read_environment(None)
    assert (nothing.given, nothing.variables, nothing.settings) == ((), {}, {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "tables: {}",
            "Got: tables: Extra.* Allowed: sources, functions, variables, settings, catalogs, external_catalogs",
        ),
        ("sources: [a]", "sources"),
        ("sources: {a: {colums: x}}", "a: colums. Allowed: columns, key, options, comment"),
        ("functions: {f: {module: x}}", "f: module. Allowed: target, constructor, deterministic"),
        ("functions: {f: {target: 'a:b', constructor: [1]}}", "Got: f.constructor. Allowed: parameters by name"),
        (
            "functions: {mask: 'rules:mask'}",
            "as Spark does: queries would call Spark's. Got: functions.mask. Allowed: a name that",
        ),
        ("functions: {Upper: 'rules:upper'}", "functions.Upper"),
        ("catalogs: {Lab: lab/defs}", "catalogs.Lab.*: lower-case letters"),
        ("catalogs: {default: lab/defs}", "catalogs.default.*not 'default' and 'spark_catalog'"),
        ("catalogs: {1: lab/defs}", "catalogs.1.*: Input should be a valid string"),
        ("catalogs: {lab: {root: lab}}", "catalogs.lab.defs: Field required"),
        ("catalogs: {lab: {folder: lab}}", "catalogs.lab.folder: Extra"),
        ("external_catalogs: {shop: {options: {a: b}}}", "external_catalogs.shop.class: Field required"),
        ("external_catalogs: {shop: {class: 'a b'}}", "external_catalogs.shop.class: String should match"),
        ("external_catalogs: {spark_catalog: {class: a.B}}", "external_catalogs.spark_catalog"),
        ("external_catalogs: {shop: {class: a.B, options: {token: hunter2}}}", "Got: spark.sql.catalog.shop.token."),
        ("external_catalogs: {shop: {class: a.B, options: {token: '${NO_SUCH}'}}}", "NO_SUCH"),
        ("{catalogs: {shop: defs}, external_catalogs: {shop: {class: a.B}}}", "names a catalog twice. Got: shop"),
        ("- a", "the file"),
        ("{", "cannot be read"),
    ],
)
@pytest.mark.demand("sql-functions")
def test_what_must_not_be_there_is_refused(tmp_path, text, says):
    file = tmp_path / "env.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_environment(file)


PIPELINE = """
type: ebbtide.UpsertPipeline
attributes:
  {name: orders, source: {path: in}, format: {type: plain}, schema: id BIGINT, key: [id], order: arrival}
"""


@pytest.fixture
def session(tmp_path):
    """A session with a catalog beside its own that shares the root, and one that has its own."""
    for folder in ("defs", "same", "lab"):
        (tmp_path / folder / "orders").mkdir(parents=True)
        (tmp_path / folder / "orders" / "defs.yaml").write_text(PIPELINE)
    file = tmp_path / "env.yaml"
    file.write_text(f"""
functions: {{twice: "row_rules:twice"}}
catalogs:
  same: {tmp_path / "same"}
  lab: {{defs: {tmp_path / "lab"}, root: {tmp_path / "lab_root"}}}
  empty: {tmp_path / "empty"}
""")
    environment = read_environment(file)
    catalogs = environment.catalogs(str(tmp_path / "root"), str(tmp_path / "defs"))
    session = EmbeddedSession(catalogs, environment.settings)
    yield session
    session.close()


def test_external_catalog_is_known_by_settings_of_spark_whose_credentials_come_from_the_environment(tmp_path, shell):
    file = tmp_path / "env.yaml"
    file.write_text("""
external_catalogs: {shop: {class: a.b.Catalog, options: {type: rest, token: "${SHOP_TOKEN}"}}}
""")
    shell.export(SHOP_TOKEN="hunter2-of-a-shop")
    settings = read_environment(file).settings
    prefix = "spark.sql.catalog.shop"
    assert settings == {prefix: "a.b.Catalog", f"{prefix}.type": "rest", f"{prefix}.token": "hunter2-of-a-shop"}
    session = EmbeddedSession(read_environment(None).catalogs(str(tmp_path), str(tmp_path)), settings)
    assert session.settings[f"{prefix}.token"] == "***"
    assert [row[:2] for row in session.execute("SHOW CATALOGS").page(0, 60).rows][1:] == [["shop", "a.b.Catalog"]]
    session.close()


@pytest.mark.demand("sql-catalogs")
def test_catalogs_of_the_file_are_listed_and_used(session, tmp_path):
    rows = session.execute("SHOW CATALOGS").page(0, 60).rows
    root = str(tmp_path / "root")
    assert rows == [
        ["default", str(tmp_path / "defs"), root, True],
        ["same", str(tmp_path / "same"), root, False],
        ["lab", str(tmp_path / "lab"), str(tmp_path / "lab_root"), False],
        ["empty", str(tmp_path / "empty"), root, False],
    ]
    for name, tables in (("lab", ["orders"]), ("empty", []), ("default", ["orders"])):
        session.execute(f"USE {name}").result(60)
        assert session.catalog_name == name
        assert [row[0] for row in session.execute("SHOW TABLES").page(0, 60).rows] == tables
        assert [row[0] for row in session.execute("SHOW FUNCTIONS").page(0, 60).rows] == ["twice"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nope", "There is no such catalog. Got: nope. Allowed: default, same, lab, empty"),
        ("same", "The catalog 'default' has a pipeline of one name, and the same root. Got: orders"),
    ],
)
def test_catalog_that_is_not_there_or_would_share_tables_is_refused(session, name, says):
    with pytest.raises(SqlError, match=says):
        session.execute(f"USE {name}").result(60)
    assert session.catalog_name == "default"


def test_table_is_not_filled_in_one_catalog_where_another_has_it_below_the_same_root(session, tmp_path):
    for text in (
        "USE empty",
        f"CREATE SOURCE log (id BIGINT, PRIMARY KEY (id)) WITH (path = '{tmp_path}', format = plain)",
        "CREATE TABLE orders (id BIGINT, PRIMARY KEY (id))",
    ):
        session.execute(text).result(60)
    with pytest.raises(SqlError, match=r"'default' has a pipeline of one name, and the same root. Got: orders"):
        session.execute("INSERT INTO orders SELECT * FROM log").result(60)
    assert session.execute("SHOW PIPELINES").page(0, 60).rows == []
