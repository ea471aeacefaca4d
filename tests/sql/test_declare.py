"""CREATE, DROP, SHOW and DESCRIBE, from files alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from frame.installing import install

from ebbtide import load
from ebbtide.definitions._load import KINDS, SEVERAL
from ebbtide.errors import ConfigError, EbbtideError, SqlError
from ebbtide.sql import parse_text
from ebbtide.sql._catalog import TYPES
from ebbtide.sql._fill import plan_insert, write_filling


@pytest.mark.usefixtures("declared")
@pytest.mark.demand("sql-describe")
def test_what_is_declared_is_listed_described_and_written_again(do, catalog):
    assert do("SHOW TABLES") == [["kept", "table, not filled yet", ""]]
    assert do("SHOW SOURCES LIKE 'l%'") == [["log", "what happened"]]
    assert do("SHOW SOURCES LIKE 'x%'") == []
    assert do("DESCRIBE kept") == [
        ["id", "BIGINT", False, True, ""],
        ["v", "STRING", True, False, ""],
        ["at", "TIMESTAMP", True, False, ""],
    ]
    [[statement]] = do("SHOW CREATE SOURCE log")
    before = catalog.entries()["log"]
    do("DROP SOURCE log")
    assert do(statement) == "Created source 'log'."
    assert catalog.entries()["log"] == before


def test_topic_is_declared_and_written_again_with_the_names_of_its_secrets(do, catalog):
    options = "type = 'kafka', bootstrap_servers = 'b:9092', topic = 'orders', start.offsets = '{0: 12}', "
    options += "registry.url = 'https://r:8081', registry.username = 'u', registry.password = '${REGISTRY_PASSWORD}', "
    options += "properties.sasl.password = '${KAFKA_PASSWORD}', format = plain"
    do(f"CREATE SOURCE orders (id BIGINT, PRIMARY KEY (id)) WITH ({options})")
    before = catalog.entries()["orders"]
    [[statement]] = do("SHOW CREATE SOURCE orders")
    do("DROP SOURCE orders")
    do(statement)
    assert catalog.entries()["orders"] == before
    assert "${KAFKA_PASSWORD}" in statement
    do("CREATE TABLE kept (id BIGINT, PRIMARY KEY (id)) WITH (sequence = '_lsn')")
    with pytest.raises(SqlError, match="is a credential"):
        do(f"CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH ({options.replace('${KAFKA_PASSWORD}', 'hunter22')})")


@pytest.mark.usefixtures("declared")
def test_name_that_is_taken_is_refused_kept_or_replaced(do, tmp_path):
    again = "(id BIGINT, PRIMARY KEY (id)) WITH (path = 'in', format = debezium)"
    with pytest.raises(SqlError, match="There is a source 'log' already"):
        do(f"CREATE SOURCE log {again}")
    assert do(f"CREATE SOURCE IF NOT EXISTS log {again}") == "There is a source 'log' already."
    assert len(do("DESCRIBE log")) == 4
    assert do(f"CREATE OR REPLACE SOURCE log {again}") == "Created source 'log'."
    assert len(do("DESCRIBE log")) == 1
    with pytest.raises(SqlError, match="There is a table 'kept' already"):
        do(f"CREATE OR REPLACE SOURCE kept {again}")


@pytest.mark.usefixtures("declared")
@pytest.mark.demand("sql-functions", "sql-describe-function")
def test_function_is_declared_and_dropped(do):
    assert do("CREATE FUNCTION twice AS 'row_rules:twice' DETERMINISTIC") == "Created function 'twice'."
    assert do("SHOW FUNCTIONS") == [["twice", "row_rules:twice", True]]
    described = [["name", "twice"], ["target", "row_rules:twice"], ["deterministic", "true"]]
    assert do("DESCRIBE FUNCTION twice") == described
    assert do("SHOW CREATE FUNCTION twice") == [["CREATE FUNCTION twice AS 'row_rules:twice' DETERMINISTIC;"]]
    assert do("DROP FUNCTION twice") == "Dropped function 'twice'."
    assert do("DROP FUNCTION IF EXISTS twice") == "There is no function 'twice'."
    with pytest.raises(SqlError, match=r"There is no function 'kept'. Got: a table"):
        do("DROP FUNCTION kept")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (format = debezium)", "source: Field required"),
        ("CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (path = x)", "format: Field required"),
        ("CREATE SOURCE s (id BIGINT, PRIMARY KEY (no)) WITH (path = x, format = debezium)", "key: got no; allowed"),
        ("CREATE SOURCE s (id MONEY, PRIMARY KEY (id)) WITH (path = x, format = debezium)", "MONEY"),
        ("CREATE SOURCE s (id BIGINT, id INT, PRIMARY KEY (id)) WITH (path = x, format = debezium)", "id"),
        ("CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (path = x, format = xml)", "format at line 1, column 63"),
        (
            "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (path = x, format = debezium, sequence = nope)",
            "order.sequence: got nope",
        ),
        (
            "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (path = x, format = debezium, max_files_per_step = -1)",
            "source.max_files_per_step at line 1, column 82",
        ),
        (
            "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (pth = x)",
            "no option 'pth' of a source, at line 1, column 53",
        ),
        ("CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (path = '[x')", "not a list or object"),
        ("CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (name = x)", "no option 'name'"),
        (
            "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (format = debezium, format.type = plain)",
            "set twice. Got: format.type",
        ),
        (
            "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (order = arrival, sequence = x)",
            "'order.sequence' contradicts 'order'",
        ),
        ("CREATE TABLE t (id BIGINT, PRIMARY KEY (id)) WITH (path = x)", "no option 'path' of a table"),
        ("CREATE TABLE t (id BIGINT, PRIMARY KEY (no))", "columns that it lacks. Got: no. Allowed: id"),
        ("CREATE TABLE t (nonsense, PRIMARY KEY (id))", "schema"),
        ("CREATE TABLE `a b` (id BIGINT, PRIMARY KEY (id))", "not the name of a table"),
        ("CREATE TABLE `../x` (id BIGINT, PRIMARY KEY (id))", "not the name of a table"),
        ("CREATE FUNCTION f AS 'os.system'", "is not declared by a function"),
        ("CREATE FUNCTION f AS '../x:y'", "is not declared by a function"),
        ("CREATE FUNCTION f AS 'no_such_module:f'", "No module named 'no_such_module'; allowed: 'module:name'"),
        ("CREATE FUNCTION f AS 'row_rules:nope'", "has no attribute 'nope'"),
        ("CREATE FUNCTION f AS 'os:system'", "standard library cannot be declared"),
        ("CREATE FUNCTION f AS 'row_rules:untyped'", "row_rules:untyped, which has no type; allowed: a function"),
        ("CREATE FUNCTION f AS 'row_rules:of_a_set'", "returns set[str]; allowed: bool, int, float, str"),
        ("CREATE FUNCTION upper AS 'row_rules:twice'", "got upper, a function of Spark; allowed: another name"),
        ("CREATE FUNCTION mask AS 'row_rules:twice'", "got mask, a function of Spark; allowed: another name"),
        ("CREATE FUNCTION f AS 'row_rules:changing' DETERMINISTIC", "declares that it is not deterministic"),
        ("DROP TABLE no", "There is no table 'no'"),
        ("SHOW STEPS", "lists the steps of one pipeline"),
        ("SHOW STEPS FROM no", "There is no pipeline 'no'"),
        ("SHOW CREATE TABLE no", "There is no table 'no'"),
        ("STOP JOB '1'", "There is no such job"),
        ("SET nope = 1", "no such setting. Got: nope"),
        ("SET max-rows = many", "does not take this value. Got: many. Allowed: a number"),
        (
            "SET dagster-url = 'http://127.0.0.1:1'",
            "Jobs are processes. To run pipelines in Dagster let it load the same definitions",
        ),
        ("RESET nope", "no such setting"),
        ("USE elsewhere", "no such catalog. Got: elsewhere. Allowed: default"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "reads no table of a pipeline"),
        ("QUIT", "executed by the client"),
    ],
)
def test_what_is_not_usable_is_refused_before_a_file_is_written(do, catalog, statement, says):
    with pytest.raises(EbbtideError, match=re.escape(says)):
        do(statement)
    assert not list(catalog.folder.rglob("*.yaml"))


@pytest.mark.parametrize("option", ["password", "source.secret_key", "api-token"])
def test_credential_in_an_option_is_refused_and_not_shown(do, option):
    with pytest.raises(SqlError) as raised:
        do(f"CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH ('{option}' = 'hunter2-secret')")
    assert "hunter2" not in str(raised.value)
    assert option in str(raised.value)


@pytest.mark.demand("sql-settings")
def test_settings_are_set_shown_and_reset(do):
    assert ["max-rows", "10000"] in do("SET")
    do("SET 'sql-client.execution.max-table-result.rows' = 6")
    assert do("SET sql-client.execution.max-table-result.rows") == [["max-rows", "6"]]
    do("SET max-rows = 5")
    do("SET spark.hadoop.fs.s3a.secret.key = hunter2-secret")
    assert do("SET max-rows") == [["max-rows", "5"]]
    assert ["spark.hadoop.fs.s3a.secret.key", "***"] in do("SET")
    do("RESET")
    assert do("SET max-rows") == [["max-rows", "10000"]]


@pytest.mark.usefixtures("declared")
def test_a_name_that_is_there_twice_and_a_file_that_is_not_usable_are_refused(do, catalog):
    other = catalog.folder / "group" / "log" / "source.yaml"
    other.parent.mkdir(parents=True)
    other.write_text(yaml.safe_dump({"columns": "id INT", "key": ["id"]}))
    with pytest.raises(SqlError, match="The name 'log' occurs twice"):
        do("SHOW TABLES")
    other.write_text("colums: id INT")
    with pytest.raises(ConfigError, match=r"log/source.yaml' is not usable. Got: log: colums"):
        do("SHOW TABLES")


def test_types_of_pipelines_are_those_of_specs():
    assert {*KINDS, *SEVERAL} == TYPES


def test_tables_of_specs_that_are_not_usable_are_listed(do, catalog):
    def write(folder, type_, attributes):
        file = catalog.folder / folder / "defs.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(yaml.safe_dump({"type": type_, "attributes": attributes}))

    write("plain", "ebbtide.UpsertPipeline", {"name": "plain", "description": "one"})
    write("seen", "ebbtide.dagster.MaterializedView", {"name": "seen"})
    pipelines = [{"name": "a", "description": "its own"}, {"name": "b"}]
    write(
        "some", "ebbtide.UpsertPipelines", {"name": "some", "shared": {"description": "of all"}, "pipelines": pipelines}
    )
    assert do("SHOW TABLES") == [
        ["a", "table", "its own"],
        ["b", "table", "of all"],
        ["plain", "table", "one"],
        ["seen", "materialized view", ""],
    ]
    write("nameless", "ebbtide.UpsertPipeline", {"description": "two"})
    with pytest.raises(ConfigError, match=r"nameless/defs.yaml' is not usable"):
        do("SHOW TABLES")


def test_listing_of_tables_loads_no_models_and_no_arrow(catalog):
    code = f"""
import sys
from ebbtide.sql import Target
session = Target({catalog.root!r}, "pipelines/defs").open()
assert len(session.execute("SHOW TABLES").page(0, 60).rows) > 1
print(*sys.modules)"""
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "ebbtide.sql._session" in loaded
    assert {"pydantic", "pyarrow", "numpy", "pyspark"} & set(loaded) == set()


@pytest.mark.parametrize("is_project", [True, False])
def test_relative_path_belongs_to_the_project_else_to_the_current_folder(do, catalog, tmp_path, shell, is_project):
    shell.cd(tmp_path)
    if is_project:
        (tmp_path / "pyproject.toml").touch()
    do("CREATE SOURCE clicks (id BIGINT, PRIMARY KEY (id)) WITH (path = 'in/clicks', format = plain)")
    written = catalog.entries()["clicks"].options["path"]
    assert written == ("in/clicks" if is_project else str((tmp_path / "in" / "clicks").resolve()))
    do("CREATE TABLE seen (id BIGINT, PRIMARY KEY (id))")
    folder = write_filling(catalog, plan_insert(catalog, parse_text("INSERT INTO seen SELECT * FROM clicks")))
    assert load(folder).source.path == str((tmp_path / "in" / "clicks").resolve())


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE FUNCTION upper AS 'leaves_a_mark:f'",
        "CREATE FUNCTION taken AS 'leaves_a_mark:f'",
        "CREATE FUNCTION `a b` AS 'leaves_a_mark:f'",
    ],
)
def test_module_of_a_function_that_is_refused_is_not_imported(do, tmp_path, shell, statement):
    mark = tmp_path / "mark"
    (tmp_path / "leaves_a_mark.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef f(v: str) -> str: return v\n")
    shell.put_on_path(tmp_path)
    do("CREATE TABLE taken (id BIGINT, PRIMARY KEY (id))")
    with pytest.raises(SqlError):
        do(statement)
    assert not mark.exists()
    do("CREATE FUNCTION fine AS 'leaves_a_mark:f'")
    assert mark.exists()
    del sys.modules["leaves_a_mark"]


def test_module_of_the_standard_library_is_not_imported(do):
    with pytest.raises(SqlError, match="standard library"):
        do("CREATE FUNCTION f AS 'antigravity:fly'")
    assert "antigravity" not in sys.modules


def test_source_format_and_sink_of_other_packages_take_their_own_options(do, catalog, tmp_path, shell):
    install(tmp_path / "site-1", shell, "logbook")
    install(tmp_path / "site-2", shell, "documents")
    folder = tmp_path / "logs"
    options = f"type = 'logbook', folder = '{folder}', max_records_per_step = 7, format = puts, format.put = 'set', sequence = n"
    do(f"CREATE SOURCE logged (id BIGINT NOT NULL, n BIGINT, PRIMARY KEY (id)) WITH ({options})")
    before = catalog.entries()["logged"]
    [[statement]] = do("SHOW CREATE SOURCE logged")
    do("DROP SOURCE logged")
    do(statement)
    assert catalog.entries()["logged"] == before
    do(
        "CREATE TABLE written (id BIGINT NOT NULL, n BIGINT, PRIMARY KEY (id)) WITH (sink.type = documents, sink.indent = 2)"
    )
    asked = parse_text("INSERT INTO written SELECT id, n FROM logged")
    spec = load(Path(write_filling(catalog, plan_insert(catalog, asked))) / "defs.yaml")
    assert (spec.source.options.folder, spec.source.max_records_per_step) == (str(folder), 7)
    assert (spec.format.options.put, spec.sink.options.indent) == ("set", 2)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            "type = 'logbook', path = '/x', format = puts",
            r"at line 1, column \d+: source.folder: Field required; source.path: Extra inputs",
        ),
        (
            "type = 'logbook', folder = '/x', file = '/y', format = puts",
            "There is no option 'file' of a source, at line",
        ),
        (
            "type = 'nowhere', folder = '/x', format = puts",
            "There is no such source.*got nowhere; allowed: .*'ebbtide.sources'",
        ),
        ("path = '/x', folder = '/y', format = plain", "There is no option 'folder' of a source"),
    ],
)
def test_option_that_no_package_models_is_refused(do, tmp_path, shell, options, why):
    install(tmp_path / "site", shell, "logbook")
    with pytest.raises(SqlError, match=why):
        do(f"CREATE SOURCE logged (id BIGINT NOT NULL, PRIMARY KEY (id)) WITH ({options})")
