"""What each commit says of its step, as JSON in Delta's `userMetadata`.

`{"ebbtide": 3, "pipeline": ..., "step": ..., ...}`: the fields of `StepFacts`. The newest commit of the state table with
such facts is the pipeline's last step. Commits of the ledger hold `LedgerFacts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.delta.commit import Transaction
from ebbtide.delta.log import STEP
from ebbtide.ledger.upgrade import upgraded
from ebbtide.model import stored
from ebbtide.model.decision import Action, Decision
from ebbtide.model.entries import Step
from ebbtide.model.step import Frontier, StepRecords

STATE_FORMAT = stored.FORMAT
"""Version of the stored formats: state table, sink's reserved columns, facts."""

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


class Cause(BaseModel):
    """Why a step was made, in words for people: nothing that a step does follows from them."""

    model_config = ConfigDict(frozen=True)

    what: str = Field(description="The work, in a word: batch, tick, cleanup, rewind.")
    why: str = Field(default="", description="The reason that a user gave, in their own words.")
    notes: tuple[str, ...] = Field(default=(), description="What else there is to know about it.")


class SourceFacts(BaseModel):
    """Up to where the source is read after a step, and by which checkpoint."""

    model_config = ConfigDict(frozen=True)

    path: str | None = Field(
        default=None, description="Where the source is, as the spec says: a relative path belongs to its project."
    )
    batch_id: int | None = Field(
        default=None,
        description="Spark's id of the last batch; null before the first, and after a checkpoint is discarded.",
    )
    offsets_hash: str | None = Field(default=None, description="SHA-256 of Spark's offsets/<batch_id>.")
    query_id: str | None = Field(
        default=None,
        description="Id of Spark's checkpoint; of a step that begins elsewhere that of the one to discard.",
    )
    position: dict[str, Any] | None = Field(
        default=None,
        description="Of a source that is read by position, where the last batch begins and ends (ebbtide.sources.span).",
    )
    start: dict[str, Any] | None = Field(
        default=None,
        description="The same: where the first batch since the last refresh began, of a partition that came later its first one.",
    )
    reread: dict[str, Any] | None = Field(
        default=None, description="Places from before `position` whose records the step applies, in the same form."
    )
    lost: str | None = Field(
        default=None,
        description="Records of the source that are lost, in words, where a user accepted that with the step.",
    )


class StateFacts(BaseModel):
    """What a step knows of the state that it changes, and of the tables that belong to it."""

    model_config = ConfigDict(frozen=True)

    version: int = Field(description="Version of the state that the step read.")
    spec: dict[str, Any] = Field(description="The parts of the spec that stored state depends on.")
    evolved: dict[str, str] = Field(
        default_factory=dict,
        description="Columns that were taken in and that the spec's schema lacks, to their types as DDL.",
    )
    tables: dict[str, TableFacts] = Field(
        default_factory=dict, description="The tables beside the state, by name, as they were before the step."
    )
    pending_key_changes: bool = Field(
        default=False, description="After the step some row waits for a value from under another key."
    )
    unadopted: int | None = Field(
        default=None, description="Rows of the sink that are still to be adopted; null of a step that adopts none."
    )
    is_folded: bool = Field(default=False, description="The step left one version of each entry.")


class StepFacts(BaseModel):
    """The facts of a step, known before it is committed: where the pipeline then stands, what the step does, and why."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=STATE_FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    step: int = Field(description="Number in the ledger, from 1.")
    incarnation: str = Field(description="Minted with the checkpoint; part of every transaction's identity.")
    epoch: int = Field(description="The lease under which it was written.")
    code: str = Field(description="Version of Ebbtide.")
    cause: Cause = Field(description="Why it was made.")
    frontier: Frontier = Field(description="Where the pipeline then stands.")
    read: StepRecords = Field(default=StepRecords(), description="What its records were, in sum.")
    decision: Decision = Field(default=Decision(), description="What it does beside the state.")
    source: SourceFacts = Field(description="Up to where the source is read.")
    state: StateFacts = Field(description="The state before it, and the tables that belong to that.")

    @property
    def now_ms(self) -> int:
        """Processing time of the step, epoch ms."""
        return self.frontier.now_ms

    @property
    def raised_floor(self) -> tuple[int, ...] | None:
        """The floor that the step has raised; None if it has not."""
        return self.frontier.floor if self.read.floor_raised else None

    @property
    def operator_step(self) -> Step:
        """What an operator may know of the step."""
        return self.frontier.operator_step(self.step)

    @classmethod
    def of_commit(cls, facts: Mapping[str, Any], location: str) -> Self:
        """Read what a commit says of its step, in this format or an older one.

        Args:
            facts: That.
            location: The table's.

        Raises:
            StoredFormatError, DamagedFileError: see `ebbtide.model.stored.read`.
        """
        return stored.read(cls, upgraded(facts, location), what=STEP, where=location)

    def with_tables(self, tables: Mapping[str, Action]) -> Self:
        """Return the facts with further actions of tables; each takes the place of an earlier one of its table."""
        return self.with_decision(self.decision.model_copy(update={"tables": {**self.decision.tables, **tables}}))

    def with_decision(self, decision: Decision) -> Self:
        """Return the facts of a step that decides something else."""
        return self.model_copy(update={"decision": decision})

    def with_state(self, update: Mapping[str, Any]) -> Self:
        """Return the facts with other values of some fields of `state`."""
        return self.model_copy(update={"state": self.state.model_copy(update=dict(update))})

    def to_json(self) -> str:
        """Return the stored form."""
        return self.model_dump_json(by_alias=True)

    def committed(self, stage: str, operation: str = "WRITE") -> Transaction:
        """Return what a stage's commit of the step is known by.

        Args:
            stage: `state`, `sink`, `changelog` or `quarantine`.
            operation: What the commit calls itself.
        """
        return Transaction(self.transaction(stage), self.step, {"operation": operation, "userMetadata": self.to_json()})

    def transaction(self, stage: str) -> str:
        """Return Delta's application id for a stage: with the step's number, which rises over all incarnations, it is the fence."""
        return f"{self.pipeline}/{stage}"


def step_number(facts: Mapping[str, Any], location: str) -> int:
    """Return the number of the step that made a commit; arguments and errors as `StepFacts.of_commit`, for any older format."""
    is_older = facts[stored.FORMAT_KEY] < STATE_FORMAT
    return int(facts["step"]) if is_older else StepFacts.of_commit(facts, location).step


@dataclass(frozen=True)
class NoStep:
    """The facts of a pipeline that has made no step: it has read nothing, decided nothing, and no table belongs to it.

    It has those attributes of `StepFacts` that mean something then. What has no meaning before the first step, its time for
    one, is missing or None, so that a type checker finds who takes it for granted.
    """

    step: ClassVar[int] = 0
    frontier: ClassVar[None] = None
    cause: ClassVar[Cause] = Cause(what="none")
    decision: ClassVar[Decision] = Decision()
    source: ClassVar[SourceFacts] = SourceFacts()
    state: ClassVar[StateFacts] = StateFacts(version=-1, spec={})


@dataclass(frozen=True)
class Head:
    """The newest step of a pipeline.

    Args:
        version: Version of the state that holds its decision; before the first step the newest one.
        facts: Its facts.
    """

    version: int
    facts: StepFacts | NoStep = field(default_factory=NoStep)

    @classmethod
    def at_rest(cls, commit: tuple[int, StepFacts] | None) -> Self:
        """Return it as read without the lease.

        Args:
            commit: Version and facts of the newest step; None before the first, where the version is not known.
        """
        return cls(-1) if commit is None else cls(*commit)
