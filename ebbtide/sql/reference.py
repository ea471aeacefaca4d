"""What can be typed and set: statements, settings, keys, words. HELP, completion and the docs take them from here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ebbtide.errors import SqlError
from ebbtide.redaction import MASK, is_credential


@dataclass(frozen=True)
class Setting:
    """A setting of ours.

    Args:
        default: Its value at first.
        allowed: What values it takes, in words.
        takes: Whether it takes one.
    """

    default: str
    allowed: str
    takes: Callable[[str], bool]


def _number_from(least: int) -> Callable[[str], bool]:
    return lambda value: value.isdecimal() and int(value) >= least


SPARK = "spark."
FIXED_OF_SPARK = ("spark.sql.variable.substitute", "spark.sql.runSQLOnFiles")
"""Settings of Spark that are what a session's rights say."""
GONE = {
    "dagster-url": "Jobs are processes. To run pipelines in Dagster let it load the same definitions, and switch on the "
    "sensor NAME_backlog or a schedule: docs/how-to/dagster.md."
}
"""Settings of earlier releases, and what to do instead."""

SETTINGS: Mapping[str, Setting] = {
    "max-rows": Setting("10000", "a number from 0 on", _number_from(0)),
    "page-rows": Setting("1000", "a number from 1 on", _number_from(1)),
    "runtime-mode": Setting("batch", "batch, streaming", lambda value: value in ("batch", "streaming")),
    "poll-interval": Setting("1", "a number from 1 on", _number_from(1)),
}
"""The settings that a session has, beside `spark.*`: docs/reference/sql.md. Clients have further ones of their own."""


class Settings:
    """The settings of one session.

    Args:
        initial: What it begins with, beside the defaults.
    """

    def __init__(self, initial: Mapping[str, str]) -> None:
        self._initial = {name: setting.default for name, setting in SETTINGS.items()}
        for key, value in initial.items():
            refuse_unfit(key, value)
            self._initial[key] = value
        self._now = dict(self._initial)

    def __getitem__(self, key: str) -> str:
        """Return the value of one of ours."""
        return self._now[key]

    def set(self, key: str, value: str) -> None:
        """Set one.

        Raises:
            SqlError: there is none of that name, or it does not take the value.
        """
        refuse_unfit(key, value)
        self._now[key] = value

    def reset(self, key: str | None) -> None:
        """Bring one, or all, back to what the session began with.

        Raises:
            SqlError: there is none of that name.
        """
        if key is None:
            self._now = dict(self._initial)
            return
        _refuse_unknown(key)
        self._now.pop(key, None)
        if key in self._initial:
            self._now[key] = self._initial[key]

    def shown(self) -> dict[str, str]:
        """Return all of them, sorted, credentials masked."""
        return {key: MASK if is_credential(key) else value for key, value in sorted(self._now.items())}

    def of_spark(self) -> dict[str, str]:
        """Return those of Spark."""
        return {key: value for key, value in self._now.items() if key.startswith(SPARK)}


def refuse_unfit(key: str, value: str) -> None:
    """Refuse a setting that there is not, or a value that it does not take.

    Raises:
        SqlError: either, or it is fixed.
    """
    _refuse_unknown(key)
    if key in FIXED_OF_SPARK:
        allowed = "what the session's rights say: docs/reference/sql-gateway.md"
        raise SqlError.of(f"The setting '{key}' is fixed.", got=value, allowed=allowed)
    setting = SETTINGS.get(key)
    if setting is not None and not setting.takes(value):
        raise SqlError.of(f"The setting '{key}' does not take this value.", got=value, allowed=setting.allowed)


def _refuse_unknown(key: str) -> None:
    if key not in SETTINGS and not key.startswith(SPARK):
        known = ", ".join(SETTINGS)
        raise SqlError.of(
            "There is no such setting.",
            got=key,
            allowed=f"{known}, {SPARK}*",
            next_step=GONE.get(key),
        )


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

CLIENT_SETTINGS: tuple[Entry, ...] = (
    Entry(
        "SET result-format = table",
        "A text table; in $PAGER, else less, where it does not fit the terminal. The default.",
    ),
    Entry("SET result-format = tableau", "The same without a pager."),
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


def help_text() -> str:
    """Lay out all of it, for a terminal."""
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
    lines.append("Statements end with a semicolon; what is not listed goes to Spark.")
    return "\n".join(lines)


_OF_SPARK = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT RIGHT FULL INNER CROSS ON USING UNION ALL DISTINCT AS AND OR
    NOT NULL IN IS LIKE BETWEEN EXISTS CASE WHEN THEN ELSE END CAST WITH VALUES OVER PARTITION INTERVAL TRUE FALSE DESC
    ASC OF VERSION
    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL STRING BINARY DATE TIMESTAMP ARRAY MAP STRUCT
"""
_IN_CLAUSES = "COMMENT EVERY CHANGE MANUAL STEP"
"""Those of ours that HELP leaves out."""
_WORD = re.compile(r"[A-Z]{2,}")


def _of_help() -> list[str]:
    """Return the words in capitals of the statements that HELP lists."""
    words = []
    for entries in STATEMENTS.values():
        for entry in entries:
            words += _WORD.findall(entry.syntax)
    return words


KEYWORDS = tuple(dict.fromkeys([*_OF_SPARK.split(), *_of_help(), *_IN_CLAUSES.split()]))
"""Spark's and ours, with the types of columns; the likeliest first."""
