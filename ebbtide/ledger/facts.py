"""What each commit says of its step, as JSON in Delta's `userMetadata`.

`{"ebbtide": 1, "pipeline": ..., "step": ..., ...}`: the fields of `StepFacts`. The newest commit of the state table with
such facts is the pipeline's last step. Commits of the ledger hold `LedgerFacts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.delta.log import STEP
from ebbtide.model import stored
from ebbtide.model.schema_change import SchemaChange
from ebbtide.model.step import Frontier, StepKind

STATE_FORMAT = stored.FORMAT
"""Version of the stored formats: state table, sink's reserved columns, facts."""

IN_ALL_FORMATS = (
    "pipeline",
    "incarnation",
    "epoch",
    "step",
    "now_ms",
    "downtime_ms",
    "state_version",
    "query_id",
    "code",
)
"""Facts that every format has had and must keep, so that a refresh can follow on any."""


FREE = ""
"""The holder of a lease that is free."""


class Pause(BaseModel):
    """That a pipeline reads nothing new until it is resumed."""

    model_config = ConfigDict(frozen=True)

    by: str = Field(description="Who paused it.")
    since_ms: int = Field(description="When, epoch ms.")
    reason: str = Field(description="Why, in their own words.")


class Looked(BaseModel):
    """What a look for foreign writes has found in one table; the next one reads the commits after it."""

    model_config = ConfigDict(frozen=True)

    version: int = Field(description="Newest version of the table that was looked at.")
    checksum: str | None = Field(
        description="CRC-32 of that commit's file, as 8 hexadecimal digits: a table that was put back has another one, or none. Null: there was no commit."
    )
    window_end: int = Field(description="Version of the last step that ends windows; 0: there is none.")
    foreign: tuple[int, ...] = Field(description="Versions of the foreign writes since.")


class LedgerFacts(BaseModel):
    """One turn of the lease."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=STATE_FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    incarnation: str = Field(description="Minted with the checkpoint; part of every transaction's identity.")
    epoch: int = Field(description="Grows with each taking of the lease.")
    holder: str = Field(
        description="The process, see `ebbtide.ledger.process`, and what distinguishes its runs; empty when free."
    )
    heartbeat: int = Field(description="Count of the holder's signs of life in this epoch.")
    makes_way: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="The holder gives the lease back for a while if it is asked to (ebbtide.ledger.requests).",
    )
    taken_by: str = Field(
        default="",
        exclude_if=lambda value: not value,
        description="User that took the lease last; absent in ledgers of earlier releases.",
    )
    taken_ms: int | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="When the lease was taken last, epoch ms of the holder's clock.",
    )
    paused: Pause | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="That the pipeline is paused (ebbtide.ledger.pauses); each turn carries it on. Absent of one that is not.",
    )
    paused_ms: int = Field(
        default=0,
        exclude_if=lambda value: not value,
        description="How long the pauses that have ended were in sum, ms.",
    )
    looked: Mapping[str, Looked] = Field(
        default={},
        exclude_if=lambda value: not value,
        description="`sink` and `state` to what the last run found of foreign writes; absent before the first run that noted it.",
    )

    @classmethod
    def read(cls, facts: Mapping[str, Any], location: str) -> Self:
        """Read what a commit of a ledger holds.

        Args:
            facts: That.
            location: The ledger's.

        Raises:
            StoredFormatError, DamagedFileError: see `ebbtide.model.stored.read`.
        """
        return stored.read(cls, facts, what="A turn of the lease", where=location)

    def paused_until(self, wall_ms: int) -> int:
        """Return how long the pipeline was paused until some time, in sum, ms.

        Args:
            wall_ms: The time, epoch ms.
        """
        if self.paused is None:
            return self.paused_ms
        return self.paused_ms + max(wall_ms - self.paused.since_ms, 0)


class TableFacts(BaseModel):
    """What is known of one of a pipeline's tables."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Its id in Delta's metadata: another table in its place has another one.")
    step: int = Field(description="The last step that wrote it.")


class SwappedTables(BaseModel):
    """A backfill whose tables take the place of a pipeline's."""

    model_config = ConfigDict(frozen=True)

    incarnation: str = Field(description="That of the backfill.")
    versions: dict[str, int] = Field(description="Name of each table beside its state to the version that is taken.")


class StepFacts(Frontier):
    """The facts of a step, known before it is committed: where the pipeline then stands, and what made it."""

    format: int = Field(default=STATE_FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    incarnation: str = Field(description="Minted with the checkpoint; part of every transaction's identity.")
    epoch: int = Field(description="The lease under which it was written.")
    batch_id: int | None = Field(
        default=None,
        description="Spark's batch id; of another kind of step the last one before it; null before the first.",
    )
    offsets_hash: str | None = Field(default=None, description="SHA-256 of Spark's offsets/<batch_id>.")
    query_id: str | None = Field(
        default=None, description="Id of Spark's checkpoint; after a reset that of the one to discard."
    )
    pending_key_changes: bool = Field(
        default=False, description="Of a step that is no batch: some row waits for a value from another key."
    )
    state_version: int = Field(description="Version of the state that the step read.")
    spec: dict[str, Any] = Field(description="The parts of the spec that stored state depends on.")
    source_path: str | None = Field(
        default=None, description="Where the source is, as the spec says: a relative path belongs to its project."
    )
    source_position: dict[str, Any] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of a source that is read by position, where the batch begins and ends (ebbtide.sources.kafka.position); of another kind of step that of the last batch before it. Absent of other sources.",
    )
    source_start: dict[str, Any] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of a source that is read by position, where the first batch since the last refresh began, of a partition that came later its first one; in the form of source_position. Absent of other sources, and of steps of an older version.",
    )
    reread: dict[str, Any] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of BACKFILL: the places whose records it applies, in the form of source_position. Absent of other steps.",
    )
    lost: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of TICK, of RESET and of the first step: which records of the source are lost, where a user accepted that. Absent of other steps.",
    )
    losses: list[str] = Field(
        default_factory=list,
        exclude_if=lambda value: not value,
        description="Of REPAIR: what became of tables beside the state that had lost rows, in words. Absent where none had.",
    )
    code: str = Field(description="Version of Ebbtide.")
    tables: dict[str, TableFacts] = Field(
        default_factory=dict,
        description="The tables that belong to the state, by name, as they were before the step; of a step of an older version empty.",
    )
    unadopted: int = Field(default=0, description="Of ADOPT: rows of the sink that are still to be adopted.")
    restores: dict[str, int] = Field(
        default_factory=dict,
        description="Of REWIND, and of a MIGRATION that undoes one of columns: the tables beside the state and the versions that they go back to.",
    )
    swap: SwappedTables | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of SWAP: what sink, changelog and quarantine take their rows from. Absent of other steps.",
    )
    sink_version: int | None = Field(
        default=None, description="Of ACKNOWLEDGE: the version of the sink that was accepted."
    )
    reason: str | None = Field(
        default=None,
        description="Why what others changed was acknowledged, a clock set, or records read again, in the words of who did.",
    )
    bad_rows: list[dict[str, Any]] | None = Field(
        default=None,
        description="What the step changes in the quarantine, as actions of its log: bad records that come, where they lie ready, and those that leave; null of an older step, and of one that changes nothing there.",
    )
    left_quarantine: dict[str, int] = Field(
        default_factory=dict,
        description="Records that left the quarantine, by why: replayed, dropped, max_age, max_bytes.",
    )
    note: str | None = Field(default=None, description="Why a user dropped them, in their own words.")
    schema_change: SchemaChange | None = Field(
        default=None, description="Of MIGRATION: what becomes of the columns of state, sink and changelog."
    )
    columns_before: str | None = Field(
        default=None, description="With schema_change: the user's columns before it, as DDL."
    )
    reselects: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="Of MIGRATION: what a transform selects has changed, or what it selects from; the sink takes what the state then shows. Absent of other steps.",
    )
    evolved: dict[str, str] = Field(
        default_factory=dict,
        description="Columns that were taken in and that the spec's schema lacks, to their types as DDL.",
    )
    counts: dict[str, int] | None = Field(
        default=None,
        description="What was decided, by name; null of a step that decides nothing, and of an older one, whose state has a row for them.",
    )

    @property
    def changes_columns(self) -> bool:
        """Whether sink and changelog have to take other columns with the step."""
        is_undo = self.kind is StepKind.MIGRATION and bool(self.restores)
        return is_undo or self.schema_change is not None or self.reselects

    @classmethod
    def read(cls, facts: Mapping[str, Any], location: str) -> Self:
        """Read what a commit says of its step, in this format.

        Args:
            facts: That.
            location: The table's.

        Raises:
            StoredFormatError, DamagedFileError: see `ebbtide.model.stored.read`.
        """
        return stored.read(cls, facts, what=STEP, where=location)

    @classmethod
    def of_older(cls, facts: dict[str, Any]) -> Self:
        """Read what facts of any older format say, as far as starting over needs it."""
        known = {name: facts[name] for name in IN_ALL_FORMATS if name in facts}
        return cls.model_validate(known | {"kind": StepKind.RESET, "spec": {}})

    def to_json(self) -> str:
        """Return the stored form."""
        return self.model_dump_json(by_alias=True)

    def transaction(self, stage: str) -> str:
        """Return Delta's application id for a stage: with the step's number, which rises over all incarnations, it is the fence."""
        return f"{self.pipeline}/{stage}"


def step_number(facts: Mapping[str, Any], location: str) -> int:
    """Return the number of the step that made a commit; arguments and errors as `StepFacts.read`, for any format up to this one."""
    is_older = facts[stored.FORMAT_KEY] < STATE_FORMAT
    return int(facts["step"]) if is_older else StepFacts.read(facts, location).step


@dataclass(frozen=True)
class Head:
    """The newest step of a pipeline.

    Args:
        version: Version of the state that holds its decision; before the first step the newest one.
        facts: Its facts; None before the first step.
        pending_key_changes: After it some row waits for a value from under another key.
    """

    version: int
    facts: StepFacts | None
    pending_key_changes: bool = False

    @classmethod
    def at_rest(cls, commit: tuple[int, StepFacts] | None) -> Self:
        """Return it as read without the lease.

        Args:
            commit: Version and facts of the newest step; None before the first, where the version is not known.
        """
        return cls(-1, None) if commit is None else cls(*commit)
