"""Parsed statements: a class for each kind of ours, and one for all that Spark executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ebbtide.sql.tokens import Place, Statement


class ObjectKind(StrEnum):
    """What the catalog holds, as statements name it."""

    SOURCE = "SOURCE"
    TABLE = "TABLE"
    MATERIALIZED_VIEW = "MATERIALIZED VIEW"
    FUNCTION = "FUNCTION"


class Shown(StrEnum):
    """What SHOW lists."""

    TABLES = "TABLES"
    SOURCES = "SOURCES"
    PIPELINES = "PIPELINES"
    JOBS = "JOBS"
    STEPS = "STEPS"
    FUNCTIONS = "FUNCTIONS"
    CATALOGS = "CATALOGS"


class IfThere(StrEnum):
    """What becomes of an object of the same name."""

    FAIL = "FAIL"
    KEEP = "IF NOT EXISTS"
    REPLACE = "OR REPLACE"


@dataclass(frozen=True)
class Option:
    """The value of an option in WITH, and where it stands."""

    value: str
    place: Place


Options = Mapping[str, Option]


@dataclass(frozen=True)
class Declaration:
    """What a source and a table are declared by.

    Args:
        name: Its own.
        columns: As DDL.
        key: Names of the columns that identify a row.
        options: Of WITH.
        comment: For people.
        if_there: See there.
    """

    name: str
    columns: str
    key: tuple[str, ...]
    options: Options = field(default_factory=dict)
    comment: str = ""
    if_there: IfThere = IfThere.FAIL


class CreateSource(Declaration):
    """`CREATE SOURCE name (columns, PRIMARY KEY (..)) WITH (..)`: where a changelog comes from, and what its rows are."""


class CreateTable(Declaration):
    """`CREATE TABLE name (columns, PRIMARY KEY (..)) WITH (..)`: a table to be kept right, filled by INSERT INTO."""


@dataclass(frozen=True)
class CreateView:
    """`CREATE MATERIALIZED VIEW name [(PRIMARY KEY (..))] REFRESH .. AS SELECT ..`: a query that is kept as a table.

    Args:
        name: Of the view.
        query: The SELECT, as it was written.
        key: Names of the columns that identify a row; none: those that follow from the query.
        refresh: `ON CHANGE`, `MANUAL`, or the interval of EVERY.
        options: Of WITH.
        comment: For people.
        if_there: See there.
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
    """`REFRESH MATERIALIZED VIEW name`: brings it up to date, as a job."""

    name: str


@dataclass(frozen=True)
class CreateFunction:
    """`CREATE FUNCTION name AS 'module:name' [DETERMINISTIC]`.

    Args:
        name: Of the function in statements.
        target: Where it is, `module:name`.
        if_there: See there.
        is_deterministic: The same arguments always give the same value.
    """

    name: str
    target: str
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
        table: Its name.
        columns: Those named behind it; none: all, in order.
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
    """`DESCRIBE [TABLE] name`.

    Args:
        name: Of what is described.
        statement: All of it: Spark describes what the catalog lacks.
    """

    name: str
    statement: Statement


@dataclass(frozen=True)
class Explain:
    """`EXPLAIN statement`: what it would do; does nothing.

    Args:
        statement: What is explained.
        whole: With EXPLAIN: Spark explains what is not ours.
    """

    statement: Statement
    whole: Statement


@dataclass(frozen=True)
class StopJob:
    """`STOP JOB 'id'`: asks a job to end after its step."""

    job: str


@dataclass(frozen=True)
class SetOption:
    """`SET key = value`; without a value: shows it, or all."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class Reset:
    """`RESET [key]`: back to what the session began with."""

    key: str | None = None


@dataclass(frozen=True)
class Use:
    """`USE name`: the catalog that names stand for from now on."""

    catalog: str


@dataclass(frozen=True)
class RunScript:
    """`SOURCE 'file'`: executes the statements of a file."""

    file: str


class Client(StrEnum):
    """What is the client's alone."""

    HELP = "HELP"
    CLEAR = "CLEAR"
    QUIT = "QUIT"


@dataclass(frozen=True)
class Select:
    """A query for rows: as of now, or as they change.

    Args:
        statement: The query as it was written, without what is ours.
        emits_changes: `EMIT CHANGES`: the rows, then what becomes of them.
        position: `EMIT CHANGES FROM 'position'`: only what came after it.
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
    | SetOption
    | Reset
    | Use
    | RunScript
    | Client
    | Select
    | SparkStatement
)
