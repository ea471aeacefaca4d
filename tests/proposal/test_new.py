"""`ebbtide new`: from records to a spec and a test that holds."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from servers.mariadb import TABLES

from ebbtide import UpsertPipeline
from ebbtide.cli import main
from ebbtide.ddl import parse_ddl
from ebbtide.definitions import load_all

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = str(ROOT / "data/shop/capture")
JOIN = str(ROOT / "data/shop/join")


@pytest.fixture
def project(tmp_path, shell):
    (tmp_path / "pyproject.toml").touch()
    shell.cd(tmp_path)
    return tmp_path


def new(*arguments):
    return CliRunner().invoke(main, ["new", *arguments])


def records(project, *values):
    folder = project / "in"
    folder.mkdir()
    (folder / "1.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    return "in"


def flattened(**row):
    return {"__op": "c", "__lsn": 1, "__table": "t", **row}


def test_orders_become_the_spec_that_a_person_would_write(project):
    result = new("orders", "--path", CAPTURE, "--topic", "shop.public.orders", "--sample", "3000", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["bad_records"] == 0
    spec = UpsertPipeline.load("pipelines/defs/orders")
    by_hand = UpsertPipeline.load(ROOT / "pipelines/defs/shop/orders")
    assert (spec.key, spec.order, spec.format) == (by_hand.key, by_hand.order, by_hand.format)
    types = {field.name: str(field.type) for field in spec.table.columns}
    types_by_hand = {field.name: str(field.type).replace("(14", "(38") for field in by_hand.table.columns}
    assert types == types_by_hand
    assert spec.table.defaults == {"discount": None}  # it came later: the first rows lack it


def test_the_test_that_it_writes_passes_and_can_fail(project):
    assert new("balances", "--path", JOIN, "--key", "order_id", "--sample", "50").exit_code == 0
    written = project / "tests/pipelines/balances"
    broken = shutil.copytree(written, written.with_name("broken"))
    with (broken / "sample.jsonl").open("a") as sample:
        sample.write('{"kind": "?"}\n')
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "--import-mode=importlib"]
    said = subprocess.run([*command, written, broken], check=False, capture_output=True, text=True).stdout
    verdicts = re.findall(r"^(PASSED|FAILED) .*/(balances|broken)/", said, re.MULTILINE)
    assert sorted(verdicts) == [("FAILED", "broken"), ("PASSED", "balances")], said


@pytest.mark.parametrize(
    ("table", "wider"),
    [
        ("orders", {"flags": "int64"}),
        ("price_list", {"level": "int16"}),
        ("customers", {"vip": "int16", "since": "int32"}),
    ],
)
def test_records_with_schemas_tell_types_and_order(project, table, wider):
    """Bits are integers without a type of their own; the connector sends TINYINT as int16, and a year as int32."""
    (project / "in").mkdir()
    shutil.copy(ROOT / "tests/data/mariadb/with_schemas/shop.jsonl.gz", project / "in")
    result = new(table, "--path", "in", "--topic", f"shop.shop.{table}", "--sample", "100", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["bad_records"] == 0
    spec = UpsertPipeline.load(f"pipelines/defs/{table}")
    assert spec.sequence == ("_file", "_pos", "_row")
    _, by_hand, _ = TABLES[table]
    columns_by_hand = parse_ddl(by_hand).columns
    types = {field.name: str(field.type) for field in spec.table.columns}
    assert types == {name: str(columns_by_hand.field(name).type) for name in types} | wider


def test_a_path_in_the_project_is_written_as_seen_from_there(project):
    path = records(project, flattened(id=1))
    assert new("t", "--path", path, "--key", "id").exit_code == 0
    spec = (project / "pipelines/defs/t/defs.yaml").read_text()
    assert "  source: {path: in, records: value}\n" in spec


def test_a_column_without_one_kind_of_value_is_left_out_and_said(project):
    path = records(project, flattened(id=1, x="a"), flattened(id=2, x=1))
    result = new("t", "--path", path, "--key", "id", "--json")
    assert "x: left out: its values are of several kinds (number, text)" in json.loads(result.stdout)["notes"]
    assert UpsertPipeline.load("pipelines/defs/t").ignored_columns == ["x"]


def test_lines_that_are_no_objects_are_counted(project):
    (project / "in").mkdir()
    lines = ["[", json.dumps(flattened(id=1)) + ",", json.dumps(flattened(id=2)), "]", "", "null"]
    (project / "in" / "1.json").write_text("\n".join(lines))
    notes = json.loads(new("t", "--path", "in", "--key", "id", "--json").stdout)["notes"]
    assert any("3 lines without a JSON object" in note and "without the brackets" in note for note in notes)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ([flattened(id=1)], [], "so the table's primary key is unknown. Allowed: --key with some of id."),
        ([flattened(id=1)], ["--key", "no"], "The key has columns that the records do not have. Got: no. Allowed: id."),
        ([{"a": 1}], [], "not a known changelog. Got: fields a."),
        (
            [{"ts_ms": 1}, {"ts_ms": 2}],
            [],
            "No JSON records found. Got: 0 lines without a JSON object; 2 events of Debezium that change no row: heartbeats,",
        ),
        ([[1], "x"], [], "No JSON records found. Got: 2 lines without a JSON object."),
        (
            [flattened(id=1), flattened(id=1) | {"__table": "u"}],
            [],
            "several tables, which make a table each. Got: t (1), u (1).",
        ),
        (
            [flattened(id=1)],
            ["--table", "u"],
            "No JSON records found. Got: 0 lines without a JSON object; tables t (1).",
        ),
        ([{"__op": "d", "__lsn": 1, "id": 1}], [], "No record of the sample adds a row"),
        ([flattened(id=1)], ["--key", "id", "--sequence", "no"], "is not usable. order.sequence: got no"),
    ],
)
def test_what_it_cannot_tell_is_refused_before_anything_is_written(project, values, options, said):
    result = new("t", "--path", records(project, *values), *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (project / "pipelines").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bootstrap-servers", "broker"], "a source. bootstrap_servers: got broker; allowed: HOST:PORT"),
        (["--registry", "nonsense"], "registry.url: got nonsense; allowed: http://HOST"),
        (["--property", "foo=bar"], "properties: got foo; allowed: broker.address.family"),
        (["--property", "sasl.password=x"], "properties: got sasl.password; allowed: credentials as ${NAME}"),
    ],
)
@pytest.mark.parametrize("topic", ["--topic", "--topic-pattern"])
def test_option_of_a_topic_that_is_not_usable_is_named(project, options, said, topic):
    result = new("t", "--bootstrap-servers", "127.0.0.1:1", topic, "t", *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_several_topics_are_listed(project):
    result = new("t", "--path", CAPTURE, "--sample", "1000")
    assert result.exit_code == 2
    assert "several topics" in result.stderr
    assert "--topic shop.public." in result.stderr


def test_what_is_there_is_not_overwritten(project):
    path = records(project, flattened(id=1))
    assert new("t", "--path", path, "--key", "id").exit_code == 0
    again = new("t", "--path", path, "--key", "id")
    assert again.exit_code == 2
    assert "There is 'pipelines/defs/t/defs.yaml'." in again.stderr
    spec = project / "pipelines/defs/t/defs.yaml"
    spec.unlink()
    over_test = new("t", "--path", path, "--key", "id")
    assert "There is 'tests/pipelines/t/test_t.py'." in over_test.stderr
    assert not spec.exists(), "half of it was written"


def test_a_name_that_a_pipeline_cannot_have_is_refused(project):
    result = new("Ab c", "--path", records(project, flattened(id=1)), "--key", "id")
    assert result.exit_code == 2
    assert "name" in result.stderr
    assert not (project / "pipelines").exists()


MONEY = [flattened(id=1, total="AU74"), flattened(id=2, total="/w=="), flattened(id=3, total="1234")]


@pytest.mark.parametrize(
    "totals",
    [["AU74"], ["AU74", "BBcg"], ["/w==", "1234", None], [{"scale": 2, "value": "AU74"}], ["AQI="]],
)
def test_base64_without_a_schema_is_refused_until_its_type_is_given(project, totals):
    path = records(project, *(flattened(id=n, total=total) for n, total in enumerate(totals)))
    result = new("t", "--path", path, "--key", "id")
    assert result.exit_code == 2
    assert (
        f"Columns hold base64, and the records have no schema that says of what. Got: total ({totals[0]!r})"
        in result.stderr
    )
    assert "'total DECIMAL(12,2)' of decimal.handling.mode=precise" in result.stderr
    assert not (project / "pipelines").exists()


@pytest.mark.parametrize(
    "texts", [["paid", "open"], ["Anna", "ABCD", "2024"], ["1234"], ["abcdefgh", "AB12345"], ["a"]]
)
def test_words_and_numbers_are_text_though_some_are_base64(project, texts):
    path = records(project, *(flattened(id=n, x=text) for n, text in enumerate(texts)))
    assert new("t", "--path", path, "--key", "id").exit_code == 0
    assert str(UpsertPipeline.load("pipelines/defs/t").table.columns.field("x").type) == "string"


@pytest.mark.parametrize(
    ("type_", "encodings", "rows"),
    [
        ("DECIMAL(12,2)", {"total": "precise"}, ["857.52", "-0.01", "-26588.24"]),
        ("BIGINT", {"total": "bits"}, [16272897, 255, 16281047]),
        ("BINARY", {"total": "base64"}, [r"b'\x01N\xf8'", r"b'\xff'", r"b'\xd7m\xf8'"]),
        ("STRING", {}, ["AU74", "/w==", "1234"]),
    ],
)
def test_given_type_says_what_base64_is_of(project, type_, encodings, rows):
    result = new("t", "--path", records(project, *MONEY), "--key", "id", "--column", f"total {type_}", "--json")
    assert result.exit_code == 0, result.output
    said = any("base64 without a schema ('AU74')" in note for note in json.loads(result.stdout)["notes"])
    assert said == bool(encodings)
    assert UpsertPipeline.load("pipelines/defs/t").format.encodings == encodings
    written = (project / "tests/pipelines/t/rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["total"] for row in written] == rows


@pytest.mark.parametrize("op", ["r", "c", "u"])
def test_flattened_rows_without_a_position_are_refused_and_the_ways_out_are_said(project, op):
    path = records(project, {"__op": op, "__table": "t", "id": 1, "at": 5})
    result = new("t", "--path", path, "--key", "id")
    assert result.exit_code == 2
    assert (
        "nothing orders them. Allowed: records with that place, by ExtractNewRecordState's add.fields: op,lsn"
        in result.stderr
    )
    assert "write the spec by hand, with order: upsert" in result.stderr
    assert not (project / "pipelines").exists()
    assert new("t", "--path", path, "--key", "id", "--sequence", "at").exit_code == 0


def test_spec_that_does_not_take_its_sample_is_written_to_be_mended_and_fails(project):
    source = {"schema": "public", "table": "t", "ts_ms": 1}
    rows = [{"id": 1, "n": 1}, None, None]
    events = [{"op": op, "before": None, "after": row, "source": source} for op, row in zip("cuu", rows, strict=True)]
    result = new("t", "--path", records(project, *events), "--key", "id")
    assert result.exit_code == 1
    assert "bad: 2." in result.stdout
    assert "Next: correct the spec by these reasons" in result.stdout
    assert "# LOOK AT NOT TAKEN: missing_after: " in (project / "pipelines/defs/t/defs.yaml").read_text()


TAKEN = {
    "shop/t/defs.yaml": "type: ebbtide.dagster.UpsertPipeline\nattributes: {name: t}\n",
    "shop/defs.yaml": "type: ebbtide.dagster.UpsertPipelines\nattributes: {name: shop, pipelines: [{name: t}]}\n",
    "t/table.yaml": "columns: id BIGINT\n",
}


@pytest.mark.parametrize("file", TAKEN)
@pytest.mark.parametrize("defs", ["pipelines/defs", "pipelines/defs/mine"])
def test_name_that_is_in_use_in_the_project_is_refused_before_anything_is_written(project, file, defs):
    taken = project / "pipelines/defs" / file
    taken.parent.mkdir(parents=True)
    taken.write_text(TAKEN[file])
    result = new("t", "--path", records(project, flattened(id=1)), "--key", "id", "--defs", defs)
    assert result.exit_code == 2
    assert f"The name 't' is in use. Got: '{taken}'" in result.stderr
    assert list(project.rglob("*.yaml")) == [taken]
    assert not (project / "tests").exists()


@pytest.fixture
def database(project):
    """A folder of folders, a table each."""
    for table, row in {"shop.orders": {"id": 1, "total": "1.50"}, "shop.users": {"id": 1, "mail": "a@b"}}.items():
        (project / "data" / table).mkdir(parents=True)
        (project / "data" / table / "1.jsonl").write_text(json.dumps(flattened(**row)) + "\n")
    (project / "data/shop.empty").mkdir()
    return project


def test_folders_of_a_pattern_become_one_file_with_a_pipeline_and_a_test_of_each(database):
    result = new("shop", "--path", "data/shop.*", "--key", "id", "--json")
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["rows"] for line in result.stdout.splitlines()] == [1, 1]
    text = (database / "pipelines/defs/shop/defs.yaml").read_text()
    assert "folders: data/shop.*\n" in text
    assert "# LOOK AT folder data/shop.empty: left out: No file in " in text
    found = dict(load_all(["pipelines/defs/shop"]))
    assert [spec.name for spec in found.values()] == ["orders", "users"]
    assert [spec.source_path for spec in found.values()] == ["data/shop.orders", "data/shop.users"]
    assert {spec.source.records for spec in found.values()} == {"value"}
    tests = sorted(path.name for path in (database / "tests").rglob("test_*.py"))
    assert tests == ["test_orders.py", "test_users.py"]


def test_folder_that_is_new_is_proposed_as_lines_and_taken_once_they_are_added(database):
    assert new("shop", "--path", "data/shop.*", "--key", "id").exit_code == 0
    (database / "data/shop.empty/1.jsonl").write_text(json.dumps(flattened(id=7, n=1)) + "\n")
    spec = database / "pipelines/defs/shop/defs.yaml"
    before = spec.read_text()
    lag = CliRunner().invoke(main, ["lag", "pipelines/defs/shop"])
    assert f"no pipeline reads: {database}/data/shop.empty; ebbtide new shop prints the lines to add" in lag.stdout
    proposed = new("shop", "--path", "data/shop.*", "--key", "id")
    assert proposed.exit_code == 0, proposed.output
    assert spec.read_text() == before
    spec.write_text(before + proposed.stdout)
    assert [one.name for _, one in load_all(["pipelines/defs/shop"])] == ["orders", "users", "empty"]
    again = new("shop", "--path", "data/shop.*", "--key", "id")
    assert (again.exit_code, "reads all folders like 'data/shop.*'" in again.stderr) == (2, True)


def test_pattern_without_a_folder_and_two_patterns_are_refused(database):
    nothing = new("shop", "--path", "data/none.*", "--key", "id")
    assert (nothing.exit_code, "No folder like 'data/none.*' has usable records" in nothing.stderr) == (2, True)
    both = new("shop", "--path", "data/*", "--topic-pattern", "shop.*", "--bootstrap-servers", "b:1")
    assert (both.exit_code, "Got --path and --topic-pattern. Allowed: one of them." in both.stderr) == (2, True)


def test_spec_has_a_comment_above_each_field_and_guesses_where_they_belong(project):
    path = records(project, flattened(id=1, created_at=1_700_000_000_000))
    assert new("t", "--path", path, "--key", "id").exit_code == 0
    lines = (project / "pipelines/defs/t/defs.yaml").read_text().splitlines()
    above = dict(zip(lines[1:], lines, strict=False))
    assert above["  key: [id]"] == "  # The table has one row per key."
    assert above["  schema: |"].startswith("  # LOOK AT created_at: guessed by its name and range")
    assert above["  ttl: 30d"].startswith("  # LOOK AT ttl: 30d is a guess")


def test_spec_of_a_subfolder_is_written_to_the_project(project, shell):
    path = Path(records(project, flattened(id=1))).resolve()
    (project / "deep").mkdir()
    shell.cd(project / "deep")
    assert new("t", "--path", str(path), "--key", "id").exit_code == 0
    assert (project / "pipelines/defs/t/defs.yaml").is_file()
    assert (project / "tests/pipelines/t/test_t.py").is_file()


def test_columns_of_any_name_are_taken_and_those_that_none_can_have_are_left_out(project):
    row = {"id": 1, "select": 1, "tick`s": 2, "a.b": 3, "in": {"like": 4, "x`y": 5}}
    unusable = {".path": 1, "_sequence": 2, "ID": 3, "tab\t": 4}
    path = records(project, flattened(**row, **unusable))

    result = new("t", "--path", path, "--key", "id", "--json")

    assert result.exit_code == 0, result.output
    [made] = (project / "tests/pipelines/t/rows.jsonl").read_text().splitlines()
    assert json.loads(made) == row
    spec = UpsertPipeline.load("pipelines/defs/t")
    assert spec.ignored_columns == [".path", "_sequence", "ID"], "the last one cannot be written"
    assert "ID: left out: readers of Delta take it for id, which comes before it" in json.loads(result.stdout)["notes"]
