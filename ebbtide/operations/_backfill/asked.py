"""The request for a backfill, the spec that builds it, and the conditions under which a pipeline can have one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.delta import Snapshot
from ebbtide.errors import BackfillError, ConfigError
from ebbtide.ledger import StepFacts
from ebbtide.model import StoredDocument
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline, SourceStart
from ebbtide.storage import Location

ASKED = "asked.json"
"""Name of the file with the request, next to the backfill's tables."""
MAY_CHANGE = frozenset({"format", "ttl", "transform", "states", "columns"})
"""Parts of a spec's identity that a backfill may change. `columns` are those of the state's rows; the sink's are compared separately
and must stay."""


class Asked(BaseModel):
    """The request for a backfill."""

    model_config = ConfigDict(frozen=True)

    start: str | SourceStart = Field(description="Start of reading: earliest, or a time or offsets of a topic.")
    snapshot: str | None = Field(
        default=None,
        description="Topic with a snapshot that is read completely before the source; None: no such topic.",
    )

    @property
    def text(self) -> str:
        """Description of the request."""
        if self.snapshot:
            return f"topic {self.snapshot}, then {self._place}"
        return self._place

    @property
    def _place(self) -> str:
        if isinstance(self.start, str):
            return self.start
        if self.start.timestamp is not None:
            return self.start.timestamp.isoformat()
        offsets = self.start.offsets or {}
        pairs = [f"{partition}={offset}" for partition, offset in sorted(offsets.items())]
        return ",".join(pairs)


def start_of(text: str) -> str | SourceStart:
    """Parse the start of a backfill.

    Args:
        text: `earliest`, a time in ISO 8601, or offsets as `0=12,1=40`.

    Raises:
        ConfigError: it is none of these.

    Example:
        >>> start_of("0=12,1=40").offsets
        {0: 12, 1: 40}
    """
    if text == "earliest":
        return text
    try:
        if "=" in text:
            pairs = [pair.split("=") for pair in text.split(",")]
            offsets = {int(partition): int(offset) for partition, offset in pairs}
            return SourceStart(offsets=offsets)
        time = datetime.fromisoformat(text)
        return SourceStart(timestamp=time)
    except ValueError as error:
        raise ConfigError.of(
            "The start of the backfill cannot be read.",
            got=text,
            allowed="earliest, a time as 2026-01-31T12:00:00, or offsets as 0=12,1=40",
        ) from error


def asked_of(tables: Plan) -> Asked | None:
    """Return the request of a pipeline's backfill; None if there is none."""
    location = Location(tables.backfills) / ASKED
    raw = location.read_bytes()
    if raw is None:
        return None
    stored = StoredDocument("The request for the backfill", location)
    return stored.read(Asked, stored.parsed(raw))


def beside_of(spec: Pipeline, asked: Asked, max_records_per_second: int | None = None) -> Pipeline:
    """Return the spec of a pipeline's backfill."""
    backfill_spec = spec.without_outputs().at_rate(max_records_per_second).model_copy(update={"run": "bounded"})
    if backfill_spec.source.by_position:
        return backfill_spec.with_source(start=asked.start)
    return backfill_spec


def of_topic(backfill_spec: Pipeline, topic: str) -> Pipeline:
    """Return the spec of a backfill that reads a snapshot."""
    return backfill_spec.with_source(topic=topic, start="earliest")


def has_read_snapshot(tables: Plan, backfill_spec: Pipeline) -> bool:
    """Return whether a backfill has read its snapshot and continued with the pipeline's source."""
    commit = Plan.under(tables.backfills, backfill_spec).state.last()
    if commit is None:
        return False
    _, last = commit
    source = last.state.spec["source"]
    return bool(source == backfill_spec.source.identity)


def is_swapped(tables: Plan, last: StepFacts, asked: Asked | None) -> bool:
    """Return whether the last step has swapped the backfill in, or the backfill no longer exists."""
    swapped = last.decision.swapped
    if swapped is None:
        return False
    # Publishing deletes the folder: a swap whose backfill is gone has been published.
    turn = tables.backfill.ledger.turn
    if turn is None:
        return asked is None
    return turn.incarnation == swapped


def refuse_unfit(tables: Plan) -> None:
    """Refuse a pipeline that cannot have a backfill."""
    spec = tables.spec
    if spec.is_view:
        raise BackfillError.of(
            f"'{spec.name}' is a materialized view: it has no source to read again.",
            next_step="Run 'ebbtide refresh' to compute it whole.",
        )
    commit = tables.state.last()
    if commit is None:
        raise BackfillError.of(
            f"'{spec.name}' has made no step yet: there are no tables to replace.",
            next_step="Run 'ebbtide run'.",
        )
    _, last = commit
    # The sink's rows are compared by key and replaced in one commit, so key, order and columns must not change.
    refused = [name for name in spec.misfits(last.state.spec) if name not in MAY_CHANGE]
    if refused or not _has_columns_of_sink(tables):
        raise BackfillError.of(
            f"The spec of '{spec.name}' does not fit the existing sink.",
            got=f"other {', '.join(refused) or 'columns'}",
            allowed="the same source, key, order and columns of the sink; another format, transform, function or ttl",
            next_step="Give it another name, or run 'ebbtide refresh' to rebuild the sink from the source.",
        )


def refuse_other_columns(tables: Plan, backfill: Plan) -> None:
    """Refuse a backfill whose sink has other columns than the pipeline's.

    This happens when one of them has added a new column of its records and the other has not.

    Args:
        backfill: The backfill.

    Raises:
        BackfillError: it has other columns.
    """
    own = Snapshot.read(tables.sink.path, any_features=True)
    other = Snapshot.read(backfill.sink.path, any_features=True)
    if own is None or other is None:
        return
    columns = own.column_types
    other_columns = other.column_types
    names = sorted({*columns, *other_columns})
    differing = [name for name in names if columns.get(name) != other_columns.get(name)]
    if differing:
        raise BackfillError.of(
            f"The backfill of '{tables.spec.name}' has other columns than the sink.",
            got=", ".join(differing),
            allowed="the same columns",
            next_step="Add them to the spec's schema, then 'ebbtide migrate' and begin the backfill again.",
        )


def log_begins_of(tables: Plan) -> tuple[int, ...]:
    """Return the event times at which a pipeline's source log restarted, epoch ms, ascending."""
    commit = tables.state.last()
    return commit[1].frontier.log_begins if commit else ()


def refuse_other_log(tables: Plan, backfill: Plan) -> None:
    """Refuse a backfill that was begun before a restart of the source's log was acknowledged.

    Args:
        backfill: The backfill.

    Raises:
        BackfillError: it has made steps without the acknowledgement.
    """
    has_step = backfill.state.last() is not None
    if not has_step or log_begins_of(backfill) == log_begins_of(tables):
        return
    raise BackfillError.of(
        f"The acknowledged log restarts of '{tables.spec.name}' have changed since its backfill was begun.",
        got="a backfill that orders changes of the old and the new log differently",
        next_step="Run 'ebbtide backfill drop', and begin it again.",
    )


def _has_columns_of_sink(tables: Plan) -> bool:
    """Return whether the sink has the spec's columns."""
    stored = Snapshot.read(tables.sink.path, any_features=True)
    if stored is None:
        return True
    definition = tables.delta_sink.definition(stored)
    [metadata] = [action["metaData"] for action in definition if "metaData" in action]
    return stored.column_types == replace(stored, metadata=metadata).column_types
