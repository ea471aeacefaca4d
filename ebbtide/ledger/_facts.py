"""The facts of a step that each of its commits holds, as JSON in Delta's `userMetadata`.

`{"ebbtide": 4, "pipeline": ..., "step": ..., ...}`: the fields of `StepFacts`. The newest commit of the state table with
such facts is the pipeline's last step. Commits of the ledger hold `LedgerFacts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field

from ebbtide.delta import Commit, Transaction
from ebbtide.entries import Step
from ebbtide.errors import LeaseAskedError, PausedError
from ebbtide.facts import Facts
from ebbtide.ledger._upgrade import upgraded
from ebbtide.model import Action, Decision, Frontier, StepRecords, StoredDocument

FREE = ""
"""The holder in a turn of a free lease."""
FIRST_WITH_UID = 3
"""The first format whose facts may have a `uid`."""


class Pause(Facts):
    """A pause: the pipeline reads nothing new until it is resumed."""

    by: str = Field(description="User that paused it.")
    since_ms: int = Field(description="Begin, epoch ms.")
    reason: str = Field(description="The user's reason.")


class Looked(Facts):
    """The result of a scan of one table for foreign writes; the next scan reads only later commits."""

    version: int = Field(description="Newest version of the table that was scanned.")
    checksum: str | None = Field(
        description="CRC-32 of that commit's file, as 8 hexadecimal digits: a table that was restored from a copy has another one, or none. Null: there was no commit."
    )
    window_end: int = Field(description="Version of the last step that ends windows; 0 without one.")
    foreign: tuple[int, ...] = Field(description="Versions of the foreign writes since.")


class Beginning(Facts):
    """The position at which a source is read first, noted before the first batch is decided: a later run begins at the same one."""

    position: dict[str, Any] = Field(description="The position (ebbtide.sources._span), as a span without records.")
    asked: Any = Field(default=None, description="The spec's `start`; null in roots of the first releases with topics.")
    lost: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Lost records before it, in words, if a user accepted their loss.",
    )


class LedgerFacts(Facts):
    """One turn of the lease."""

    model_config = ConfigDict(populate_by_name=True)

    format: int = Field(default=StoredDocument.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    incarnation: str = Field(description="Identifies the tables: a rewind, a refresh or a swap makes a new one.")
    epoch: int = Field(description="Grows with each taking of the lease.")
    holder: str = Field(
        description="The process, see `ebbtide.processes`, and a part that distinguishes its runs; empty if the lease is free."
    )
    heartbeat: int = Field(description="Number of the holder's heartbeats in this epoch.")
    makes_way: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="The holder gives the lease back for a while on request.",
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
    requests: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="Processes that ask for the lease, repeated by each turn until they withdraw.",
    )
    changes: int = Field(
        default=0,
        exclude_if=lambda value: not value,
        description="Commits of other processes in this epoch, pauses and requests: `heartbeat` counts them too.",
    )
    paused: Pause | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="The pause of the pipeline (ebbtide.ledger.Ledger), repeated by each turn; absent if it is not paused.",
    )
    paused_ms: int = Field(
        default=0,
        exclude_if=lambda value: not value,
        description="Total duration of the pauses that have ended, ms.",
    )
    looked: Mapping[str, Looked] = Field(
        default={},
        exclude_if=lambda value: not value,
        description="`sink` and `state` to the last scan for foreign writes; absent before the first run that noted one.",
    )
    beginning: Beginning | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Where the source is read first in this incarnation; absent of a source that is not read by position.",
    )

    @classmethod
    def read(cls, facts: Mapping[str, Any], location: str) -> Self:
        """Read a turn from a commit of a ledger.

        Args:
            facts: The stored facts of the commit.
            location: Location of the ledger.

        Raises:
            StoredFormatError, DamagedFileError: see `StoredDocument.read`.
        """
        return StoredDocument("A turn of the lease", location).read(cls, facts)

    def paused_until(self, wall_ms: int) -> int:
        """Return the total duration of the pauses until some time, ms.

        Args:
            wall_ms: The time, epoch ms.
        """
        if self.paused is None:
            return self.paused_ms
        return self.paused_ms + max(wall_ms - self.paused.since_ms, 0)

    @property
    def is_free(self) -> bool:
        """True if the lease is free: no run holds it, or died with it."""
        return self.holder == FREE

    @property
    def sign_of_life(self) -> tuple[int, str, int]:
        """Changes as long as the holder lives; a pause or a request of another process does not change it."""
        return self.epoch, self.holder, self.heartbeat - self.changes

    def refuse_asked(self) -> None:
        """Refuse to begin a step while another process asks for the lease.

        Raises:
            LeaseAskedError: there is a request.
        """
        if self.requests:
            raise LeaseAskedError.of(
                "The run makes way for maintenance between two steps.",
                next_step="It continues by itself afterwards.",
            )

    def refuse_paused(self) -> None:
        """Refuse to read for a pipeline that is paused.

        Raises:
            PausedError: it is paused.
        """
        if self.paused is None:
            return
        since = datetime.fromtimestamp(self.paused.since_ms / 1000, UTC)
        reason = self.paused.reason.rstrip(".")
        raise PausedError.of(
            f"'{self.pipeline}' is paused by {self.paused.by} since {since:%Y-%m-%d %H:%M:%S} UTC: {reason}.",
            next_step="Run 'ebbtide resume' to let it read again; maintenance may continue meanwhile.",
        )


class TableFacts(Facts):
    """The identity of one of a pipeline's tables, and the last step that wrote it."""

    id: str = Field(description="Its id in Delta's metadata: another table in its place has another one.")
    step: int = Field(description="The last step that wrote it.")
    uid: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="`uid` of that step; absent where it is unknown.",
    )


class Cause(Facts):
    """The cause of a step, in words for people: no code depends on them."""

    what: str = Field(description="The work, in a word: batch, tick, cleanup, rewind.")
    why: str = Field(default="", description="The reason that a user gave.")
    notes: tuple[str, ...] = Field(default=(), description="Further remarks.")


class SourceFacts(Facts):
    """The position in the source after a step: the next one reads on from there."""

    path: str | None = Field(
        default=None, description="Location of the source, as in the spec: a relative path belongs to its project."
    )
    batch_id: int | None = Field(
        default=None,
        description="Number of the last batch, from 0; null before the first, and after a step that begins elsewhere in the source.",
    )
    position: dict[str, Any] | None = Field(
        default=None,
        description="Begin and end of the last batch, for a source that is read by position (ebbtide.sources._span).",
    )
    offset: dict[str, Any] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="The last batch's end as the planner returned it, for a source without parts and positions, such as one of another package; absent otherwise.",
    )
    start: dict[str, Any] | None = Field(
        default=None,
        description="Begin of the first batch since the last refresh, in the form of `position`; for a partition that was added later, of its first one.",
    )
    reread: dict[str, Any] | None = Field(
        default=None, description="Earlier positions whose records the step applies again, in the same form."
    )
    lost: str | None = Field(
        default=None,
        description="Lost records of the source, in words, if a user accepted their loss with the step.",
    )


class StateFacts(Facts):
    """The state that a step changes, and the tables that belong to it."""

    version: int = Field(description="Version of the state that the step read.")
    spec: dict[str, Any] = Field(description="The parts of the spec on which stored state depends.")
    evolved: dict[str, str] = Field(
        default_factory=dict,
        description="Columns added by schema evolution that the spec's schema lacks, to their types as DDL.",
    )
    tables: dict[str, TableFacts] = Field(
        default_factory=dict, description="The output tables by name, before the step."
    )
    pending_key_changes: bool = Field(
        default=False, description="After the step some row waits for a value from an earlier key."
    )
    unadopted: int | None = Field(
        default=None, description="Rows of the sink that remain to be adopted; null for a step that adopts none."
    )
    is_folded: bool = Field(default=False, description="The step left one version of each entry.")
    transformed: int = Field(
        default=0,
        exclude_if=lambda value: not value,
        description="The step up to which all entries were handed to the snapshot transformers of a function; absent without one.",
    )
    erased: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Name of the file under `erasures` that lists the erased keys, whose records are refused; absent without any.",
    )

    @property
    def of_entries(self) -> dict[str, Any]:
        """The fields that say something of the entries: what takes the entries over takes these over too."""
        return {"pending_key_changes": self.pending_key_changes, "transformed": self.transformed}


class StepFacts(Facts):
    """The facts of a step, known before it is committed: the frontier that it reaches, its decision, and its cause."""

    model_config = ConfigDict(populate_by_name=True)

    format: int = Field(default=StoredDocument.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    step: int = Field(description="Number in the ledger, from 1.")
    incarnation: str = Field(description="Identifies the tables: a rewind, a refresh or a swap makes a new one.")
    epoch: int = Field(description="Epoch of the lease at the time of writing.")
    code: str = Field(description="Version of Ebbtide.")
    uid: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Unlike that of any other step, also of one with its number, made from a copy of the tables; absent of older releases.",
    )
    cause: Cause = Field(description="The cause of the step.")
    frontier: Frontier = Field(description="Clock, watermark, floor and totals after the step.")
    read: StepRecords = Field(default=StepRecords(), description="Totals of the records that it read.")
    decision: Decision = Field(default=Decision(), description="Actions of the output tables.")
    source: SourceFacts = Field(description="Position in the source after the step.")
    state: StateFacts = Field(description="The state before it, and the tables that belong to that.")

    @property
    def now_ms(self) -> int:
        """Processing time of the step, epoch ms."""
        return self.frontier.now_ms

    @property
    def raised_floor(self) -> tuple[int, ...] | None:
        """The new floor, if the step raised it; else None."""
        if not self.read.floor_raised:
            return None
        return self.frontier.floor

    @property
    def operator_step(self) -> Step:
        """The step as an operator sees it."""
        return self.frontier.operator_step(self.step)

    @classmethod
    def of_commit(cls, facts: Mapping[str, Any], location: str) -> Self:
        """Read the facts of a step from a commit, in this format or an older one.

        Args:
            facts: The stored facts of the commit.
            location: Location of the table.

        Raises:
            StoredFormatError, DamagedFileError: see `StoredDocument.read`.
        """
        in_this_format = upgraded(facts, location)
        return StoredDocument(Commit.FACTS, location).read(cls, in_this_format)

    @classmethod
    def step_and_uid(cls, facts: Mapping[str, Any], location: str) -> tuple[int, str | None]:
        """Return the number and the `uid` of the step that made a commit, in any older format; arguments and errors as `of_commit`."""
        if facts[StoredDocument.FORMAT_KEY] < FIRST_WITH_UID:
            return int(facts["step"]), None
        read = cls.of_commit(facts, location)
        return read.step, read.uid

    @property
    def ends_window(self) -> bool:
        """True if checks and repairs read no commits before the step."""
        # Commits before the first step of an adoption belong to the table's earlier owner.
        begins_adoption = self.state.unadopted is not None and self.step == 1
        return self.decision.ends_window or begins_adoption

    @property
    def settles_input(self) -> bool:
        """True if checks of what the input did read no commits before the step; see `Decision`."""
        begins_adoption = self.state.unadopted is not None and self.step == 1
        return self.decision.settles_input or begins_adoption

    def with_tables(self, tables: Mapping[str, Action]) -> Self:
        """Return the facts with further actions of tables; each replaces an earlier action of its table."""
        all_tables = {**self.decision.tables, **tables}
        decision = self.decision.model_copy(update={"tables": all_tables})
        return self.with_decision(decision)

    def with_decision(self, decision: Decision) -> Self:
        """Return the facts with another decision."""
        return self.model_copy(update={"decision": decision})

    def with_state(self, update: Mapping[str, Any]) -> Self:
        """Return the facts with new values of some fields of `state`."""
        state = self.state.model_copy(update=dict(update))
        return self.model_copy(update={"state": state})

    def to_json(self) -> str:
        """Return the stored form."""
        return self.model_dump_json(by_alias=True)

    def committed(self, stage: str, operation: str = "WRITE") -> Transaction:
        """Return the transaction that identifies a stage's commit of the step.

        Args:
            stage: `state`, `sink`, `changelog` or `quarantine`.
            operation: Name of the operation, in the commit's info.
        """
        info = {"operation": operation, "userMetadata": self.to_json()}
        return Transaction(self.transaction(stage), self.step, info)

    def transaction(self, stage: str) -> str:
        """Return Delta's application id for a stage."""
        # With the step's number it is the fence. Numbers rise over all incarnations: Delta's marks survive a RESTORE, and a
        # number that came back would be skipped.
        return f"{self.pipeline}/{stage}"


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
        """Return the newest step as read without the lease.

        Args:
            commit: Version and facts of the newest step; None before the first, whose version is unknown.
        """
        return cls(-1) if commit is None else cls(*commit)
