from pathlib import Path

from ebbtide.sql._parsing import _READERS
from ebbtide.sql._reference import STATEMENTS, help_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sql-shell.md"
OTHER_NAMES = {"BEGIN", "DESC", "EXIT"}
"""Further first words of statements."""


def test_help_lists_every_statement_of_ours():
    listed = {entry.syntax.split()[0] for entries in STATEMENTS.values() for entry in entries}
    ours = {beginning.split()[0] for beginning in _READERS}
    assert listed - {"SELECT", "\\watch"} == ours - OTHER_NAMES


def test_page_has_the_statements_of_the_client():
    page = PAGE.read_text(encoding="utf-8")
    assert {entry.syntax for entry in STATEMENTS["Client"] if f"`{entry.syntax}`" not in page} <= {
        "HELP",
        "CLEAR",
        "QUIT",
    }
    assert {"`HELP`", "`CLEAR`, `QUIT`"} == {name for name in ("`HELP`", "`CLEAR`, `QUIT`") if name in page}
    assert "SOURCE 'file'" in help_text()
