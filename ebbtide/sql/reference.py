"""What can be typed: statements, settings of the client, keys. HELP and the docs take them from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One thing that can be typed.

    Args:
        syntax: How it is typed.
        meaning: What it does.
    """

    syntax: str
    meaning: str


STATEMENTS: Mapping[str, tuple[Entry, ...]] = {
    "Declare": (
        Entry("CREATE SOURCE name (columns, PRIMARY KEY (..)) WITH (..)", "Where a changelog comes from."),
        Entry("CREATE TABLE name (columns, PRIMARY KEY (..)) [WITH (..)]", "A table to be kept right."),
        Entry(
            "CREATE MATERIALIZED VIEW name [(PRIMARY KEY (..))] [REFRESH ..] AS SELECT ..",
            "A query that is kept as a table.",
        ),
        Entry(
            "CREATE FUNCTION name AS 'module:name' [DETERMINISTIC]",
            "A Python function; for INSERT INTO with the word.",
        ),
        Entry("DROP SOURCE | TABLE | MATERIALIZED VIEW | FUNCTION [IF EXISTS] name", "Removes a declaration."),
    ),
    "Fill": (
        Entry("INSERT INTO table SELECT .. FROM source", "Fills a table from a changelog, as a job."),
        Entry("EXECUTE STATEMENT SET BEGIN INSERT ..; INSERT ..; END", "One job fills several tables."),
        Entry("REFRESH MATERIALIZED VIEW name", "Brings a view up to date, as a job."),
        Entry("STOP JOB 'id'", "Asks a job to end after its step."),
    ),
    "Ask": (
        Entry("SELECT ..", "The rows as of now. NAME$state, $changes, $changelog, $quarantine, $steps are tables too."),
        Entry("SELECT .. EMIT CHANGES [FROM 'position']", "The rows, then what becomes of them, without end."),
        Entry("SHOW TABLES | SOURCES | PIPELINES | JOBS | FUNCTIONS | CATALOGS [LIKE '..']", "Lists them."),
        Entry("SHOW STEPS FROM name", "Lists the steps of a pipeline."),
        Entry("SHOW CREATE SOURCE | TABLE | MATERIALIZED VIEW | FUNCTION name", "The statement that declares it."),
        Entry("DESCRIBE name", "Columns and key of a table."),
        Entry("EXPLAIN statement", "What it would do; does nothing."),
    ),
    "Session": (
        Entry("SET [key [= value]]", "Changes a setting; without a value: shows it, or all."),
        Entry("RESET [key]", "Back to what the session began with."),
        Entry("USE name", "The catalog that names stand for."),
    ),
    "Client": (
        Entry("SOURCE 'file'", "Executes the statements of a file."),
        Entry("\\watch SECONDS", "Executes the last query again and again, until Ctrl-C."),
        Entry("HELP", "This list."),
        Entry("CLEAR", "Clears the screen."),
        Entry("QUIT", "Leaves; jobs go on."),
    ),
}
"""By what they are for. All other statements are Spark's."""

SETTINGS: tuple[Entry, ...] = (
    Entry("SET result-format = table", "Pages of rows with keys, where they do not fit the terminal. The default."),
    Entry("SET result-format = tableau", "A plain text table; long cells are cut."),
    Entry("SET result-format = vertical", "A column a line."),
    Entry("SET result-format = csv | json | markdown", "Whole cells; JSON is an object a line."),
    Entry("SET timing = on | off", "How long each statement took. Default: off."),
)
"""Those of the client."""

PROMPT_KEYS: tuple[Entry, ...] = (
    Entry("Enter", "Executes what ends with a semicolon; else a new line."),
    Entry("Tab", "Completes keywords, tables, columns, functions, settings."),
    Entry("Ctrl-R", "Searches the history."),
    Entry("Ctrl-C", "Clears the line; cancels a statement that runs."),
    Entry("Ctrl-D", "Leaves; jobs go on."),
)
"""At the prompt."""

VIEW_KEYS: tuple[Entry, ...] = (
    Entry("Up, Down, Page Up, Page Down, Home, End", "Move by rows and pages; End in changes follows those to come."),
    Entry("Left, Right", "Move by columns."),
    Entry("Enter", "The row, a column a line; Enter or q: back."),
    Entry("/", "Searches; n: the next match."),
    Entry("r", "Executes the query again."),
    Entry("q", "Back to the prompt."),
)
"""In the pages of a result."""


def help_text() -> str:
    """Lay out all of it, for a terminal."""
    groups = {
        **STATEMENTS,
        "Settings of the client": SETTINGS,
        "Keys at the prompt": PROMPT_KEYS,
        "Keys in a result's pages": VIEW_KEYS,
    }
    lines = []
    for title, entries in groups.items():
        lines.append(title)
        for entry in entries:
            lines += [f"  {entry.syntax}", f"      {entry.meaning}"]
    lines.append("Statements end with a semicolon; what is not listed goes to Spark.")
    return "\n".join(lines)
