import pytest

from ebbtide.sql._masking import masked
from ebbtide.sql._shell.prompt import MaskedHistory, history_at

HIDDEN = "hunter2"


@pytest.mark.parametrize(
    "statement",
    [
        "SET spark.hadoop.fs.s3a.secret.key = {};",
        "SET spark.hadoop.fs.s3a.secret.key={} and more {};",
        "SET 's3.access-key' = '{}';",
        "SET my-token = it's {}'s;",
        "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH ('password' = '{}', path = 'in');",
        "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH ('sasl.password' = 'it''s {}');",
        'CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (\'sasl.password\' = "a\\"{}");',
        "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (api_token = {});",
        "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (path = 's3://user:{}@bucket/x');",
        "CREATE TABLE t USING jdbc OPTIONS ('password' '{}', url 'x');",
        "CREATE TABLE t USING jdbc OPTIONS (password /* the old one */ = '{}');",
        "SELECT 1;\n  SET a.secret = '{}';\nSELECT 2;",
        "SET a.password = 'never closed {}",
    ],
)
def test_credentials_are_not_kept(statement):
    kept = masked(statement.replace("{}", HIDDEN))
    assert HIDDEN not in (kept or "")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM orders WHERE id = 3 AND name = 'x';",
        "SET max-rows = 10;\nSELECT 'a'; -- all\n",
        "CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (path = 'in', format = 'plain');",
        "SELECT 'never closed",
    ],
)
def test_all_else_is_kept_as_it_was_typed(statement):
    assert masked(statement) == statement


def test_values_beside_credentials_are_kept():
    text = "CREATE SOURCE s (id INT, PRIMARY KEY (id)) WITH ('password' = 'a, b', path = 'in', token = x);"
    assert masked(text) == (
        "CREATE SOURCE s (id INT, PRIMARY KEY (id)) WITH ('password' = ***, path = 'in', token = ***);"
    )


def test_history_is_of_one_session_alone_where_no_file_can_be_written(tmp_path):
    (tmp_path / "ebbtide").write_text("a file")
    assert not isinstance(history_at(tmp_path), MaskedHistory)


def test_history_does_not_follow_a_link(tmp_path):
    (tmp_path / "ebbtide").mkdir()
    (tmp_path / "elsewhere").touch()
    (tmp_path / "ebbtide" / "sql_history").symlink_to(tmp_path / "elsewhere")
    assert not isinstance(history_at(tmp_path), MaskedHistory)


def test_history_that_other_users_could_read_is_made_private(tmp_path):
    file = tmp_path / "ebbtide" / "sql_history"
    file.parent.mkdir()
    file.touch(mode=0o644)
    history_at(tmp_path).append_string("SELECT 1;")
    assert file.stat().st_mode & 0o077 == 0
    assert list(history_at(tmp_path).load_history_strings()) == ["SELECT 1;"]
