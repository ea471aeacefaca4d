"""The catalog's tables as Spark's: each of a statement is a view of one moment, so that all that it reads belongs together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.errors import SqlError
from ebbtide.inspect.state import state
from ebbtide.runtime.plan import Plan
from ebbtide.sinks import quarantine
from ebbtide.sql.catalog import Entry, Filled, Part, filled, queryable
from ebbtide.sql.listing import steps
from ebbtide.sql.references import PinKind, Reference
from ebbtide.state_table.columns import spark_schema

FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


@dataclass(frozen=True)
class Names:
    """What names stand for in one statement: its definitions are read once.

    Args:
        root: Folder of all pipelines' tables.
        entries: The catalog's, by name.
    """

    root: str
    entries: Mapping[str, Entry]

    def queryable(self) -> list[str]:
        """Return those that a query may mean."""
        return queryable(self.entries)

    def filled(self, name: str) -> Filled:
        """Return a table that has a pipeline.

        Raises:
            SqlError: it has none.
        """
        return filled(self.entries, name)


def frame(
    spark: SparkSession,
    names: Names,
    reference: Reference,
    versions: Mapping[str, int],
) -> DataFrame:
    """Read a table, or a part of one, as of a moment.

    Args:
        spark: The session.
        names: What they stand for.
        reference: The table.
        versions: Name of a table to the version of its sink that is now.

    Raises:
        SqlError: it does not exist yet, or no more.
    """
    entry = names.filled(reference.table)
    plan = Plan.under(names.root, entry.spec)
    match reference.part:
        case None:
            is_now = reference.pin is None
            version = versions[reference.table] if is_now else _version(plan, reference)
            rows = _at(spark, plan.at("sink"), version)
            return _shown(entry, rows)
        case Part.STATE:
            step = _step(plan, reference)
            return state(spark, entry.spec, names.root, as_of_step=step)
        case Part.STEPS:
            return _steps(spark, plan)
        case Part.CHANGES:
            changes = _feed(spark, plan.at("sink"), reference)
            return _shown(entry, changes, *FEED_COLUMNS)
        case Part.QUARANTINE if not log.versions(plan.quarantine.path):
            nothing = spark_schema(quarantine.COLUMNS)
            return spark.createDataFrame([], nothing)  # made with its first bad record
        case _:
            location = _existing(plan, reference)
            return _at(spark, location, _newest(location))


def sink_version(names: Names, name: str) -> int:
    """Return the version of a pipeline's sink that is now.

    Raises:
        SqlError: it has none yet.
    """
    entry = names.filled(name)
    plan = Plan.under(names.root, entry.spec)
    return _newest(_existing(plan, Reference(name)))


def _steps(spark: SparkSession, plan: Plan) -> DataFrame:
    columns, rows = steps(plan)
    fields = [f"`{column.name}` {column.type}" for column in columns]
    return spark.createDataFrame(
        [tuple(row) for row in rows],
        schema=", ".join(fields),
    )


def _existing(plan: Plan, reference: Reference) -> str:
    location = plan.at("sink" if reference.part is None else reference.part)
    if not log.versions(location):
        raise SqlError.of(
            f"There is no table '{reference.view}' yet.",
            got=location,
            next_step=f"SHOW JOBS tells whether a job fills '{reference.table}' just now; else run it: INSERT INTO, or 'ebbtide run'.",
        )
    return location


def _newest(location: str) -> int:
    return log.versions(location)[-1]


def _at(spark: SparkSession, location: str, version: int) -> DataFrame:
    reader = spark.read.format("delta")
    return reader.option("versionAsOf", version).load(location)


def _shown(entry: Filled, rows: DataFrame, *further: str) -> DataFrame:
    """Leave out the reserved columns."""
    names = entry.spec.sink_table.columns.names
    own = [f"`{name}`" for name in names]
    return rows.select(*own, *further)


def _version(plan: Plan, reference: Reference) -> int:
    """Return the version of the sink that a pin means: of a step the one after it."""
    pin = reference.pin
    location = _existing(plan, reference)
    if pin is None:
        return _newest(location)
    if pin.kind is PinKind.VERSION:
        return pin.number
    for version, facts in log.own_commits(location):
        if int(facts["step"]) <= pin.number:
            return version
    return 0


def _step(plan: Plan, reference: Reference) -> int | None:
    pin = reference.pin
    if pin is None:
        return None
    if pin.kind is PinKind.STEP:
        return pin.number
    facts = log.facts(plan.at("state"), pin.number)
    if facts is None:
        raise SqlError.of(f"No step made version {pin.number} of the state of '{reference.table}'.")
    return int(facts["step"])


def _feed(spark: SparkSession, location: str, reference: Reference) -> DataFrame:
    """Read the change feed, from the first commit on that is still there."""
    if reference.pin is not None:
        raise SqlError.of(
            f"'{reference.view}' has no moment: it is the changes of all.",
            next_step="Filter by _commit_version.",
        )
    first = log.versions(location)[0]
    options: dict[str, str | int] = {
        "readChangeFeed": "true",
        "startingVersion": first,
    }
    reader = spark.read.format("delta")
    return reader.options(**options).load(location)
