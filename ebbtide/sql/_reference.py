"""Statements, client settings, keys and keywords: the source of HELP, of completion and of the docs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An entry of HELP.

    Args:
        syntax: Form of the input.
        meaning: Effect of it, in a sentence.
    """

    syntax: str
    meaning: str


STATEMENTS: Mapping[str, tuple[Entry, ...]] = {
    "Declare": (
        Entry(
            "CREATE SOURCE name (columns, PRIMARY KEY (..)) WITH (..)",
            "Where a changelog comes from.",
        ),
        Entry(
            "CREATE TABLE name (columns, PRIMARY KEY (..)) [WITH (..)]",
            "A table to be kept right.",
        ),
        Entry(
            "CREATE MATERIALIZED VIEW name [(PRIMARY KEY (..))] [REFRESH ..] AS SELECT ..",
            "A query that is kept as a table.",
        ),
        Entry(
            "CREATE FUNCTION name AS 'module:name' [WITH (..)] [DETERMINISTIC]",
            "A Python function; for INSERT INTO with the word.",
        ),
        Entry(
            "DROP SOURCE | TABLE | MATERIALIZED VIEW | FUNCTION [IF EXISTS] name",
            "Removes a declaration.",
        ),
    ),
    "Fill": (
        Entry(
            "INSERT INTO table SELECT .. FROM source",
            "Fills a table from a changelog, as a job.",
        ),
        Entry(
            "EXECUTE STATEMENT SET BEGIN INSERT ..; INSERT ..; END",
            "One job fills several tables.",
        ),
        Entry("REFRESH MATERIALIZED VIEW name", "Brings a view up to date, as a job."),
        Entry("STOP JOB 'id'", "Asks a job to end after its step."),
        Entry("RESTART JOB 'id'", "Begins a job that has ended, or was lost, again."),
    ),
    "Ask": (
        Entry(
            "SELECT ..",
            "The rows as of now. NAME$state, $changes, $changelog, $quarantine, $steps are tables too.",
        ),
        Entry(
            "SELECT .. EMIT CHANGES [FROM 'position']",
            "The rows, then what becomes of them, without end.",
        ),
        Entry(
            "SHOW TABLES | SOURCES | PIPELINES | JOBS | FUNCTIONS | CATALOGS [LIKE '..']",
            "Lists them.",
        ),
        Entry("SHOW STEPS FROM name", "Lists the steps of a pipeline."),
        Entry(
            "SHOW CREATE SOURCE | TABLE | MATERIALIZED VIEW | FUNCTION name",
            "The statement that declares it.",
        ),
        Entry("DESCRIBE name", "Columns and key of a table."),
        Entry("EXPLAIN statement", "What it would do; does nothing."),
    ),
    "Session": (
        Entry("SET [key [= value]]", "Changes a setting; without a value: shows it, or all."),
        Entry("RESET [key]", "Back to what the session began with."),
        Entry("USE name", "The catalog for names."),
    ),
    "Client": (
        Entry("SOURCE 'file'", "Executes the statements of a file."),
        Entry("\\watch SECONDS", "Executes the last query again and again, until Ctrl-C."),
        Entry("HELP", "This list."),
        Entry("CLEAR", "Clears the screen."),
        Entry("QUIT", "Leaves; jobs continue."),
    ),
}
"""Statements by purpose. All other statements are Spark's."""

CLIENT_SETTINGS: tuple[Entry, ...] = (
    Entry(
        "SET result-format = table",
        "A text table; in $PAGER, else less, where it does not fit the terminal. The default.",
    ),
    Entry("SET result-format = tableau", "The same without a pager."),
    Entry("SET result-format = vertical", "A column a line."),
    Entry(
        "SET result-format = csv | json | markdown",
        "Whole cells; JSON is an object a line.",
    ),
    Entry("SET timing = on | off", "How long each statement took. Default: off."),
)
"""Settings of the client."""

PROMPT_KEYS: tuple[Entry, ...] = (
    Entry("Enter", "Executes what ends with a semicolon; else a new line."),
    Entry("Tab", "Completes keywords, tables, columns, functions, settings."),
    Entry("Ctrl-R", "Searches the history."),
    Entry("Ctrl-C", "Clears the line; cancels a statement that runs."),
    Entry("Ctrl-D", "Leaves; jobs continue."),
)
"""Keys at the prompt."""


def help_text() -> str:
    """Return all entries as text, for a terminal."""
    groups = {
        **STATEMENTS,
        "Settings of the client": CLIENT_SETTINGS,
        "Keys at the prompt": PROMPT_KEYS,
    }
    lines = []
    for title, entries in groups.items():
        lines.append(title)
        for entry in entries:
            lines += [f"  {entry.syntax}", f"      {entry.meaning}"]
    lines.append("Statements end with a semicolon; all other statements go to Spark.")
    return "\n".join(lines)


_OF_SPARK = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT RIGHT FULL INNER CROSS ON USING UNION ALL DISTINCT AS AND OR
    NOT NULL IN IS LIKE BETWEEN EXISTS CASE WHEN THEN ELSE END CAST WITH VALUES OVER PARTITION INTERVAL TRUE FALSE DESC
    ASC OF VERSION
    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL STRING BINARY DATE TIMESTAMP ARRAY MAP STRUCT
"""
_IN_CLAUSES = "COMMENT EVERY CHANGE MANUAL STEP"
"""Keywords of ours that HELP leaves out."""
_WORD = re.compile(r"[A-Z]{2,}")


def _of_help() -> list[str]:
    """Return the words in capitals of the statements that HELP lists."""
    words = []
    for entries in STATEMENTS.values():
        for entry in entries:
            words += _WORD.findall(entry.syntax)
    return words


KEYWORDS = tuple(dict.fromkeys([*_OF_SPARK.split(), *_of_help(), *_IN_CLAUSES.split()]))
"""Keywords of Spark and ours, with the types of columns; the likeliest first."""
