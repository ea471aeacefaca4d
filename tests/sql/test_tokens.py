"""Scripts as statements, with places."""

import pytest

from ebbtide.errors import SqlSyntaxError
from ebbtide.sql._tokens import Place, is_complete, split


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("", []),
        (" ; ;; ", []),
        ("-- nothing; at all\n/* nor; here /* nested; */ */", []),
        ("SELECT ';'; SELECT 1", ["SELECT ';'", "SELECT 1"]),
        ("SELECT 'it''s;'; SELECT 'a\\';'", ["SELECT 'it''s;'", "SELECT 'a\\';'"]),
        ("SELECT r'C:\\'; SELECT 2", ["SELECT r'C:\\'", "SELECT 2"]),
        ('SELECT "a;b", `c;d`; SELECT 3', ['SELECT "a;b", `c;d`', "SELECT 3"]),
        ("SELECT 1 -- one; two\n, 2; SELECT 3", ["SELECT 1 -- one; two\n, 2", "SELECT 3"]),
        (
            "BEGIN SELECT 1; SELECT CASE WHEN a THEN 1 END; END; SELECT 2",
            ["BEGIN SELECT 1; SELECT CASE WHEN a THEN 1 END; END", "SELECT 2"],
        ),
        ("BEGIN IF a THEN SELECT 1; END IF; END; SHOW JOBS", ["BEGIN IF a THEN SELECT 1; END IF; END", "SHOW JOBS"]),
        ("SELECT CASE a WHEN 1 THEN 2 END; SELECT 2", ["SELECT CASE a WHEN 1 THEN 2 END", "SELECT 2"]),
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END; SELECT 3",
            ["EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END", "SELECT 3"],
        ),
    ],
)
def test_script_is_split_at_semicolons_between_statements(script, statements):
    assert [statement.text for statement in split(script)] == statements


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("-- a comment", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; SELECT 2", False),
        ("SELECT ';", False),
        ("SELECT 1 /* ;", False),
        ("BEGIN SELECT 1;", False),
        ("BEGIN SELECT 1; END;", True),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", False),
    ],
)
def test_what_was_typed_is_complete_at_a_semicolon_outside_of_blocks(text, complete):
    assert is_complete(text) is complete


def test_statements_and_tokens_know_their_places():
    one, two = split("SELECT 1;\n  SELECT\n   nope FROM x")
    assert one.place == Place(1, 1)
    assert two.place == Place(2, 3)
    assert [str(two.place_of(token)) for token in two.tokens][:2] == ["line 2, column 3", "line 3, column 4"]


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("SELECT 1;\nSELECT 'abc", "line 2, column 8"),
        ("SELECT `a", "line 1, column 8"),
        ("/* a /* b */", "line 1, column 1"),
        ('\n\n"x', "line 3, column 1"),
    ],
)
def test_what_is_not_closed_is_refused_where_it_begins(script, place):
    with pytest.raises(SqlSyntaxError, match=f"begins at {place} is not closed"):
        split(script)
