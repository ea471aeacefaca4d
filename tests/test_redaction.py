"""Planted credentials and personal values: none of them is in an error, on a terminal, in Dagster or in the quarantine's texts."""

import json

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from local.support import plain, spec

from ebbtide.cli import main
from ebbtide.dagster import Resources, StorageResource
from ebbtide.dagster.supervise import supervised
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.redaction import LEAST_LENGTH, hide, is_credential, printable, redacted, shown
from ebbtide.sessions._settings import resolved
from ebbtide.testing import MemoryPipeline

SECRET = "Planted0/Value+1"  # noqa: S105 - it opens nothing
ATTRIBUTES = {
    "name": "t",
    "source": {"path": "in"},
    "format": {"type": "debezium"},
    "schema": "id BIGINT",
    "key": ["id"],
    "order": {"sequence": ["_lsn"]},
}
URIS = [
    f"{scheme}://{user}:{SECRET}@bucket/in"
    for scheme, user in [("s3", "AKIA1"), ("s3a", "AKIA1"), ("gs", "k"), ("abfss", "k"), ("http", "u"), ("ftp", "")]
]  # fmt: skip
URIS.append("hdfs://k:Planted0@host/in")
NAMES = ["password", "aws_secret_access_key", "spark.hadoop.fs.s3a.secret.key", "api.token", "sas-token", "private_key", "credentials", "signature"]  # fmt: skip
IN_A_SPEC = [
    *({"source": {"path": uri}} for uri in URIS),
    *({"source": {"path": "in", name: SECRET}} for name in NAMES[:4]),
    *({name: SECRET} for name in NAMES),
    *({"sink": {"table_properties": {name: SECRET}}} for name in NAMES if name != "sas-token"),
    {"sink": {"table_properties": {"location": URIS[0]}}},
    {"sink": {"table_properties": {"note": f"password={SECRET}"}}},
    {"quarantine": {"access_key": SECRET}},
    {"options": {"password": SECRET}},
]
PERSONAL = {"email": {"personal": True}}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """What one test hides, others show."""
    monkeypatch.setattr("ebbtide.redaction._hidden", set())


def test_at_least_40_are_planted():
    assert len(IN_A_SPEC) + len(URIS) + len(NAMES) >= 40


@pytest.mark.parametrize("fields", IN_A_SPEC, ids=map(repr, range(len(IN_A_SPEC))))
def test_credential_in_a_spec_is_refused_and_not_shown(tmp_path, fields):
    document = {"type": "ebbtide.UpsertPipeline", "attributes": ATTRIBUTES | fields}
    (tmp_path / "defs.yaml").write_text(yaml.safe_dump(document))
    result = CliRunner().invoke(main, ["status", str(tmp_path), "--json"])
    assert result.exit_code == 2, result.output
    assert "Planted0" not in result.output
    assert "defs.yaml" in result.output


@pytest.mark.parametrize("uri", URIS)
def test_credential_in_the_root_is_refused_and_not_shown(uri):
    result = CliRunner().invoke(main, ["status", "specs", "--root", uri])
    assert (result.exit_code, "Planted0" in result.output) == (2, False)


@pytest.mark.parametrize("name", NAMES)
def test_credential_among_the_settings_of_spark_comes_from_the_environment_only(name, shell):
    with pytest.raises(ConfigError, match="which can be read") as caught:
        Resources(spark={name: SECRET}).build_defs(None)
    assert SECRET not in str(caught.value)
    shell.export(PLANTED=SECRET)
    definitions = Resources(spark={name: "${PLANTED}"}).build_defs(None)
    assert SECRET not in repr(definitions.resources["spark"])
    assert resolved({name: "${PLANTED}"}) == {name: SECRET}
    assert str(EbbtideError(f"The store refused '{SECRET}'.")) == "The store refused '***'."


@pytest.mark.parametrize("uri", URIS)
def test_credential_in_the_root_of_resources_is_refused_before_dagster_shows_it(uri, shell):
    with pytest.raises(ConfigError, match=r"^root ") as caught:
        Resources(root=uri).build_defs(None)
    shell.export(EBBTIDE_ROOT=uri)
    with pytest.raises(ConfigError, match=r"^EBBTIDE_ROOT ") as from_environment:
        StorageResource()
    assert "Planted0" not in f"{caught.value} {from_environment.value}"


def test_setting_that_names_no_variable_is_refused():
    with pytest.raises(ConfigError, match="names a variable that is not set"):
        resolved({"spark.x": "${EBBTIDE_NO_SUCH_VARIABLE}"})


def test_error_of_others_reaches_dagster_without_credentials():
    hide(SECRET)

    def fail(report, stop):
        raise RuntimeError(f"403 for {SECRET}")

    with pytest.raises(dg.Failure) as caught:
        supervised(fail)
    assert caught.value.description == "RuntimeError: 403 for ***"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("s3://k:s/e+c@bucket/in", "s3://***@bucket/in"),
        ("abfs://container@account/in", "abfs://container@account/in"),
        ("{'password': 'a b', 'x': 1}", "{'password': ***, 'x': 1}"),
        ("fs.s3a.access.key=AKIA, n=1", "fs.s3a.access.key=***, n=1"),
        ("key: got id; allowed: columns", "key: got id; allowed: columns"),
        ("ttl: 30d", "ttl: 30d"),
    ],
)
def test_credentials_are_masked_and_nothing_else(text, want):
    assert redacted(text) == want
    assert redacted(want) == want


PLANTED = "Plant3d.Value-1/x+y=="
CREDENTIALS = [
    "password", "passwd", "pwd", "pass", "passphrase", "db_password", "spark.hadoop.fs.s3a.secret.key", "client_secret",
    "token", "session-token", "x-amz-security-token", "X-Amz-Signature", "X-Amz-Credential", "api_key", "apikey",
    "api-key", "API.KEY", "apiKey", "x-api-key", "AWS_SECRET_ACCESS_KEY", "AccountKey", "SharedAccessKey", "SharedAccessSignature",
    "master_key", "private-key", "sas", "sas-token", "blob_sas", "sig", "x-sig", "auth", "Authorization", "credential", "signature",
]  # fmt: skip
"""Names of credentials, as clouds, brokers and databases spell them."""
FORMS = [
    "{name}={value}", "{name}: {value}", "{name} = {value}", "{name}='{value}'", '{name}="{value}"', "'{name}': '{value}'", '"{name}": "{value}"',
    '\\"{name}\\": \\"{value}\\"', "('{name}', '{value}')", "b'{name}': b'{value}'", "{name}: Bearer {value}", "{name}: Basic {value}",
    "https://host/in?a=1&{name}={value}&b=2", "https://host/in#{name}%3D{value}", "jdbc:x://host;{name}={value};b=2", "{name} => '{value}'",
    "{name}='a '' {value}'", "{name}='a \\' {value}'", "{name}='{value}", "{name}:\t{value}\nb=2", "<{name}={value}>",
]  # fmt: skip
"""Forms in which settings, headers, queries and messages have a name and its value."""
HOLDERS = [
    f"{scheme}://{user}:{{value}}@host{rest}"
    for scheme in ("s3", "https", "jdbc:postgresql", "mongodb+srv", "amqp")
    for user in ("", "user", "AKIA1")
    for rest in ("", "/in", ":5432/db?a=1", "/a,b")
]
HOLDERS += ["Bearer {value}", "authorization bearer  {value}", "-H 'Authorization: Bearer {value}'"]


def test_value_of_any_credential_is_masked_in_any_form():
    for name in CREDENTIALS:
        for form in FORMS:
            text = form.format(name=name, value=PLANTED)
            once = redacted(f"before {text} after")
            assert "Plant3d" not in once, text
            assert "Value-1" not in once, text
            assert once.startswith("before "), text
            assert redacted(once) == once, text


@pytest.mark.parametrize("value", [PLANTED, "p@ss", "p@Plant3d@x", "p:Plant3d", "pä/Plant3d"])
def test_credential_of_a_uri_or_a_header_is_masked(value):
    for form in HOLDERS:
        once = redacted(f"before {form.format(value=value)} after")
        assert "Plant3d" not in once, form
        assert "@ss" not in once, form
        assert redacted(once) == once, form


@pytest.mark.parametrize(
    "text",
    ["sasl.mechanism=SCRAM", "design=3", "passed: 3", "compass: north", "assignment=1", "key: id", "keys=3", "https://host:80/a", "author: me", "primary_key: id"],
)  # fmt: skip
def test_names_that_only_sound_like_credentials_stay(text):
    assert redacted(text) == text


@pytest.mark.parametrize("text", ["://x", "://a:", "://a@", "password", "password='", "a", "\\", "Bearer ", "sig=\\'"])
def test_long_text_is_looked_through_in_linear_time(text):
    assert redacted(text * (200_000 // len(text)) + "s" * 100_000)


def test_short_value_is_not_hidden_where_it_would_blacken_words():
    hide("a" * (LEAST_LENGTH - 1))
    assert redacted("aaaa") == "aaaa"


def test_characters_that_a_terminal_obeys_are_escaped_and_lines_stay():
    assert printable("a\x1b[2J\u202eb\n") == "a\\x1b[2J\\u202eb\\n"
    assert shown("a\x07\nb") == "a\\x07\nb"
    assert is_credential("AWS_SECRET_ACCESS_KEY")


BAD = {
    "wrong type": ({"id": 1, "email": [SECRET]}, "email: got ***; allowed: string"),
    "of another column": ({"id": "x", "email": SECRET}, "id: got 'x'; allowed: int64"),
    "row that is none": (SECRET, "row: got ***; allowed: an object"),
    "row in a list": ([{"email": SECRET}], "row: got ***; allowed: an object"),
    "key is null": ({"id": None, "email": SECRET}, "id: got null; allowed: a value in every key column"),
}


@pytest.mark.parametrize("case", BAD)
def test_personal_value_is_in_no_detail_of_the_quarantine(case):
    row, detail = BAD[case]
    pipeline = MemoryPipeline(plain("id BIGINT, email STRING", columns=PERSONAL))
    line = json.dumps({"kind": "+I", "row": row})
    pipeline.step([line])
    assert [(bad["_detail"], bad["_raw"]) for bad in pipeline.quarantine] == [(detail, line.encode())]


@pytest.mark.parametrize("line", [json.dumps([SECRET]), f'{{"kind": "{SECRET}"}}', f'{{"x": "{SECRET}"'])
def test_record_in_no_form_shows_nothing_where_columns_are_personal(line):
    pipeline = MemoryPipeline(
        spec("id BIGINT, email STRING", columns=PERSONAL, source={"path": "in", "records": "value"})
    )
    pipeline.step([line])
    [bad] = pipeline.quarantine
    assert SECRET not in bad["_detail"]
