"""What each commit says of its step, as JSON in Delta's `userMetadata`.

`{"ebbtide": 1, "pipeline": ..., "step": ..., ...}`: the fields of `StepFacts`. The newest commit of the state table with
such facts is the pipeline's last step. Commits of the ledger hold `LedgerFacts`.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

STATE_FORMAT = 2
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
"""The holder of a lease that nobody holds."""


class LedgerFacts(BaseModel):
    """One turn of the lease."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=STATE_FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    incarnation: str = Field(description="Minted with the checkpoint; part of every transaction's identity.")
    epoch: int = Field(description="Grows with each taking of the lease.")
    holder: str = Field(description="host:pid:start of the process; empty when free.")
    heartbeat: int = Field(description="Count of the holder's signs of life in this epoch.")


class StepFacts(BaseModel):
    """The facts of a step, known before it is committed."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=STATE_FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    incarnation: str = Field(description="Minted with the checkpoint; part of every transaction's identity.")
    epoch: int = Field(description="The lease under which it was written.")
    step: int = Field(description="Number in the ledger, from 1.")
    kind: Literal["batch", "tick", "reset", "cleanup", "compaction", "migration"] = Field(
        description="What made the step."
    )
    batch_id: int | None = Field(
        default=None,
        description="Spark's batch id; of another kind of step the last one before it; null before the first.",
    )
    offsets_hash: str | None = Field(default=None, description="SHA-256 of Spark's offsets/<batch_id>.")
    query_id: str | None = Field(
        default=None, description="Id of Spark's checkpoint; after a reset that of the one to discard."
    )
    now_ms: int = Field(description="Processing time of the step, epoch ms.")
    wall_ms: int | None = Field(
        default=None,
        description="Wall time of the step, epoch ms; of a job that deletes or folds that of the step before.",
    )
    held_ms: int = Field(default=0, description="How far the clock was ahead of what max_clock_jump allows.")
    downtime_ms: int = Field(default=0, description="Downtime left out of now_ms, since the first step.")
    watermark_ms: int | None = Field(default=None, description="Watermark of the step, epoch ms.")
    max_event_ms: int | None = Field(default=None, description="Greatest event time of this and all earlier steps.")
    floor: list[int] | None = Field(
        default=None, description="What TRUNCATE left dead: a sequence, or [step, part, position]."
    )
    floor_raised: bool = Field(default=False, description="This step met the TRUNCATE.")
    orphans: bool = Field(
        default=False, description="Arrival mode: the sink may have rows that the state has forgotten."
    )
    positions: dict[str, list[tuple[int, int]]] = Field(
        default_factory=dict, description="Arrival mode: places read, as intervals per source/partition."
    )
    records: int = Field(default=0, description="Records of this pipeline in the step, bad ones included.")
    quarantined: int = Field(default=0, description="Bad records in the step.")
    ignored_columns: list[str] = Field(
        default_factory=list, description="Columns of the records that the schema has not."
    )
    pending_key_changes: bool = Field(
        default=False, description="Of a step that is no batch: some row waits for a value from another key."
    )
    state_version: int = Field(description="Version of the state that the step read.")
    spec: dict[str, Any] = Field(description="The parts of the spec that stored state depends on.")
    source_path: str | None = Field(
        default=None, description="Where the source is, as the spec says: a relative path belongs to its project."
    )
    code: str = Field(description="Version of Ebbtide.")

    @classmethod
    def of_older(cls, facts: dict[str, Any]) -> Self:
        """Read what facts of any older format say, as far as starting over needs it."""
        known = {name: facts[name] for name in IN_ALL_FORMATS if name in facts}
        return cls.model_validate(known | {"kind": "reset", "spec": {}})

    def to_json(self) -> str:
        """Return the stored form."""
        return self.model_dump_json(by_alias=True)

    def transaction(self, stage: str) -> str:
        """Return Delta's application id for a stage of this step."""
        return f"{self.pipeline}/{self.incarnation}/{stage}"
