"""Parsed statements: a class for each kind of ours, and one for all that Spark executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ebbtide.sql._tokens import Place, Statement


class ObjectKind(StrEnum):
    """Kind of an object of the catalog, as statements name it."""

    SOURCE = "SOURCE"
    TABLE = "TABLE"
    MATERIALIZED_VIEW = "MATERIALIZED VIEW"
    FUNCTION = "FUNCTION"


class Shown(StrEnum):
    """Kind of the objects that SHOW lists."""

    TABLES = "TABLES"
    SOURCES = "SOURCES"
    PIPELINES = "PIPELINES"
    JOBS = "JOBS"
    STEPS = "STEPS"
    FUNCTIONS = "FUNCTIONS"
    CATALOGS = "CATALOGS"


class IfThere(StrEnum):
    """Behaviour of CREATE if there is an object of the name."""

    FAIL = "FAIL"
    KEEP = "IF NOT EXISTS"
    REPLACE = "OR REPLACE"


@dataclass(frozen=True)
class Option:
    """The value of an option in WITH, with the place of the option."""

    value: str
    place: Place


Options = Mapping[str, Option]


@dataclass(frozen=True)
class Declaration:
    """Declaration of a source or a table.

    Args:
        name: Name of the source or table.
        columns: Columns as DDL.
        key: Names of the columns that identify a row.
        options: Options of WITH.
        comment: Description for people.
        if_there: Behaviour if there is an object of the name.
    """

    name: str
    columns: str
    key: tuple[str, ...]
    options: Options = field(default_factory=dict)
    comment: str = ""
    if_there: IfThere = IfThere.FAIL


class CreateSource(Declaration):
    """`CREATE SOURCE name (columns, PRIMARY KEY (..)) WITH (..)`: declares the place and the rows of a changelog."""


class CreateTable(Declaration):
    """`CREATE TABLE name (columns, PRIMARY KEY (..)) WITH (..)`: declares a table for INSERT INTO."""


@dataclass(frozen=True)
class CreateView:
    """`CREATE MATERIALIZED VIEW name [(PRIMARY KEY (..))] REFRESH .. AS SELECT ..`: a query that is kept as a table.

    Args:
        name: Name of the view.
        query: The SELECT, as it was written.
        key: Names of the columns that identify a row; empty: the key of the query.
        refresh: `ON CHANGE`, `MANUAL`, or the interval of EVERY.
        options: Options of WITH.
        comment: Description for people.
        if_there: Behaviour if there is an object of the name.
    """

    name: str
    query: Statement
    key: tuple[str, ...] = ()
    refresh: str = "ON CHANGE"
    options: Options = field(default_factory=dict)
    comment: str = ""
    if_there: IfThere = IfThere.FAIL


@dataclass(frozen=True)
class RefreshView:
    """`REFRESH MATERIALIZED VIEW name`: brings the view up to date, as a job."""

    name: str


@dataclass(frozen=True)
class CreateFunction:
    """`CREATE FUNCTION name AS 'module:name' [WITH (parameter = value)] [DETERMINISTIC]`.

    Args:
        name: Name of the function in statements.
        target: `module:name` of the function in Python.
        constructor: Parameters of the call of `target` that returns the function.
        if_there: Behaviour if there is an object of the name.
        is_deterministic: Whether the value follows from the arguments alone.
    """

    name: str
    target: str
    constructor: Options = field(default_factory=dict)
    if_there: IfThere = IfThere.FAIL
    is_deterministic: bool = False


@dataclass(frozen=True)
class Drop:
    """`DROP SOURCE | TABLE | MATERIALIZED VIEW | FUNCTION [IF EXISTS] name`."""

    kind: ObjectKind
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Insert:
    """`INSERT INTO table SELECT .. FROM source ..`: fills a table from a changelog, as a job.

    Args:
        table: Name of the table.
        columns: Columns after the name; empty: all, in order.
        query: The SELECT, as it was written.
    """

    table: str
    columns: tuple[str, ...]
    query: Statement


@dataclass(frozen=True)
class StatementSet:
    """`EXECUTE STATEMENT SET BEGIN INSERT ..; INSERT ..; END`: one job fills several tables."""

    inserts: tuple[Insert, ...]


@dataclass(frozen=True)
class Show:
    """`SHOW TABLES | SOURCES | PIPELINES | JOBS | STEPS [FROM name] | FUNCTIONS | CATALOGS [LIKE 'pattern']`."""

    what: Shown
    of: str | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class ShowCreate:
    """`SHOW CREATE SOURCE | TABLE | MATERIALIZED VIEW | FUNCTION name`."""

    kind: ObjectKind
    name: str


@dataclass(frozen=True)
class Describe:
    """`DESCRIBE [TABLE | FUNCTION] name`.

    Args:
        name: Name to be described.
        statement: The whole statement, for names that Spark describes.
        is_function: It is the name of a function.
    """

    name: str
    statement: Statement
    is_function: bool = False


@dataclass(frozen=True)
class Explain:
    """`EXPLAIN statement`: shows the effect of a statement without executing it.

    Args:
        statement: Statement to be explained.
        whole: The whole statement, for those that Spark explains.
    """

    statement: Statement
    whole: Statement


@dataclass(frozen=True)
class StopJob:
    """`STOP JOB 'id'`: asks a job to end after its step.

    Args:
        job: Id of the job, or the name of a pipeline, whose newest job is meant.
    """

    job: str


@dataclass(frozen=True)
class RestartJob:
    """`RESTART JOB 'id'`: begins a job that has ended again, as a new one.

    Args:
        job: See `StopJob`.
    """

    job: str


@dataclass(frozen=True)
class SetOption:
    """`SET key = value`; without a value it shows the setting, or all."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class Reset:
    """`RESET [key]`: sets a setting, or all, back to the initial value."""

    key: str | None = None


@dataclass(frozen=True)
class Use:
    """`USE name`: changes the catalog in use."""

    catalog: str


@dataclass(frozen=True)
class RunScript:
    """`SOURCE 'file'`: executes the statements of a file."""

    file: str


class Client(StrEnum):
    """Statements of the client alone."""

    HELP = "HELP"
    CLEAR = "CLEAR"
    QUIT = "QUIT"


@dataclass(frozen=True)
class Select:
    """A query for rows as of now, or for their changes.

    Args:
        statement: The query as it was written, without `EMIT CHANGES`.
        emits_changes: `EMIT CHANGES`: the rows, then their changes.
        position: `EMIT CHANGES FROM 'position'`: only the changes after it.
    """

    statement: Statement
    emits_changes: bool = False
    position: str | None = None


@dataclass(frozen=True)
class SparkStatement:
    """Any other statement."""

    statement: Statement


Parsed = (
    CreateSource
    | CreateTable
    | CreateView
    | RefreshView
    | CreateFunction
    | Drop
    | Insert
    | StatementSet
    | Show
    | ShowCreate
    | Describe
    | Explain
    | StopJob
    | RestartJob
    | SetOption
    | Reset
    | Use
    | RunScript
    | Client
    | Select
    | SparkStatement
)
