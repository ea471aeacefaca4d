"""The ends of a pipeline's runs, as JSON in the folder `runs`: for people who watch, no step depends on it.

`{"ebbtide": 4, "job": "run", "outcome": "failed", "exit_code": 5, "error": "SpecChangedError", ...}`. It holds no value of a row.

A run that held the lease has the file `EPOCH % 100.json`: one write keeps its end, and no listing is needed to keep a hundred. Runs that held
no lease share two files: `idle.json`, with nothing to do, and `refused.json`. So a timer's refusals push no other end out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.errors import EbbtideError
from ebbtide.ledger._facts import FREE, LedgerFacts
from ebbtide.ledger._lease import has_ended
from ebbtide.model import StoredDocument
from ebbtide.processes import Process
from ebbtide.storage import Location

Outcome = Literal["succeeded", "failed", "interrupted", "refused", "died"]
KEPT = 100
"""Ends of runs with the lease that are kept."""
WHAT = "The end of a run"
INTERRUPTED = 1
"""Exit code of a run that was stopped."""


class KeptRun(BaseModel):
    """The end of a run, or of maintenance that makes steps."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=StoredDocument.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    job: str = Field(description="`run`, `refresh`, or the maintenance.")
    outcome: Outcome = Field(description="`refused`: it never held the lease. `died`: it left no end.")
    exit_code: int | None = Field(default=None, description="That of its command; None: unknown.")
    error: str | None = Field(default=None, description="Class of the error.")
    message: str | None = Field(default=None, description="Its first sentence, without the values that were got.")
    host: str = Field(description="Where it ran.")
    engine: str = Field(default="", description="Where its steps were made, and why there.")
    epoch: int | None = Field(default=None, description="Epoch of its lease; None: it held none.")
    first_step: int | None = Field(default=None, description="Its first step; None: it made none.")
    last_step: int | None = Field(default=None, description="Its last step.")
    records: int = Field(default=0, description="Records read.")
    cpu_seconds: float | None = Field(
        default=None, description="CPU seconds of its process meanwhile, without a JVM; None: unknown."
    )
    started_ms: int = Field(description="Its start, epoch ms.")
    ended_ms: int | None = Field(default=None, description="Its end, epoch ms; None: unknown.")

    HAS_FAILED: ClassVar[frozenset[Outcome]] = frozenset({"failed", "refused", "died"})

    @property
    def has_failed(self) -> bool:
        """Return whether it needs a look."""
        return self.outcome in self.HAS_FAILED

    @property
    def seconds(self) -> float | None:
        """Its duration; None: unknown."""
        return None if self.ended_ms is None else (self.ended_ms - self.started_ms) / 1000

    @property
    def at_ms(self) -> int:
        """Its end, or its start where the end is unknown, epoch ms."""
        return self.started_ms if self.ended_ms is None else self.ended_ms

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**self.model_dump(exclude={"format"}), "seconds": self.seconds}

    def text(self) -> str:
        """Return the end in words: `failed at 2026-01-01 00:00:00 UTC with SourceReadError: ...`."""
        at = f"{datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        when = f"{self.outcome}, which began" if self.ended_ms is None else self.outcome
        why = ": ".join(filter(None, [self.error, self.message]))
        return f"{when} at {at}" + (f" with {why}" if why else "")

    def line(self) -> str:
        """Return it in one line for a terminal."""
        parts = [f"{self.pipeline}: {self.job} {self.text()}", f"on '{self.host}'"]
        if self.exit_code is not None:
            parts.append(f"exit code {self.exit_code}")
        if self.seconds is not None:
            parts.append(f"{self.seconds:.1f} s")
        if self.last_step is not None:
            parts.append(f"steps {self.first_step} to {self.last_step}")
        if self.records:
            parts.append(f"{self.records:,} records")
        if self.engine:
            parts.append(self.engine)
        return ", ".join(parts)

    def failed_with(self, error: BaseException) -> Self:
        """Return it with the end that an error gave it."""
        if not isinstance(error, Exception):  # a signal: KeyboardInterrupt, SystemExit
            return self.model_copy(update={"outcome": "interrupted", "exit_code": INTERRUPTED})
        # What was got may be a value of a row, and so may any word of an error that is not ours.
        ended: dict[str, Any] = {"exit_code": EbbtideError.exit_code}
        if isinstance(error, EbbtideError):
            first_line, _, _ = str(error).partition("\n")
            message, _, _ = first_line.partition(" Got: ")
            ended = {"exit_code": error.exit_code, "message": message}
        outcome: Outcome = "refused" if self.epoch is None else "failed"
        return self.model_copy(update={"outcome": outcome, "error": type(error).__name__, **ended})

    @classmethod
    def left_by(cls, turn: LedgerFacts) -> Self | None:
        """Return the end of a run that left its lease behind; None: the lease was free.

        Args:
            turn: The turn that the next run has taken over.
        """
        if turn.holder == FREE:
            return None
        name, _, _ = turn.holder.partition("/")
        started_ms = turn.taken_ms or 0
        return cls(
            pipeline=turn.pipeline,
            job="run",
            outcome="died",
            host=Process(name).host,
            epoch=turn.epoch,
            started_ms=started_ms,
        )

    @classmethod
    def _died(cls, turn: LedgerFacts | None) -> Self | None:
        """Return the end of a run whose process has ended and holds the lease still; None: there is none."""
        return cls.left_by(turn) if turn is not None and has_ended(turn.holder) else None

    def note(self, home: str) -> None:
        """Store it.

        Args:
            home: Folder of the pipeline's tables; it is not made.
        """
        name = f"{self.epoch % KEPT:02}" if self.epoch is not None else "refused" if self.has_failed else "idle"
        if self.epoch is None and not (Location(home) / "ledger").exists():
            return  # nothing is made of the pipeline yet: it has no folder
        place = _folder(home) / f"{name}.json"
        place.replace_bytes(self.model_dump_json(by_alias=True).encode())

    @classmethod
    def last(cls, home: str, turn: LedgerFacts | None) -> Self | None:
        """Return the run that has ended last; None: none has.

        Args:
            home: Folder of the pipeline's tables.
            turn: The newest turn of the ledger.

        Raises:
            StoredFormatError, DamagedFileError: see `StoredDocument.read`.
        """
        died = cls._died(turn)
        if died is not None:
            return died
        try:
            files = _folder(home).walk()
        except FileNotFoundError:
            files = []
        newest = sorted(files, key=lambda file: file.modified_ms or 0)[-2:]  # two may be of one millisecond
        return max(cls._read(home, [file.name for file in newest]), key=lambda run: run.at_ms, default=None)

    @classmethod
    def all_of(cls, home: str, turn: LedgerFacts | None) -> list[Self]:
        """Return the runs that are kept, the newest first; arguments and errors as of `last`."""
        died = cls._died(turn)
        found = cls._read(home, _folder(home).list_files())
        return sorted([*found, *([died] if died else [])], key=lambda run: run.at_ms, reverse=True)

    @classmethod
    def _read(cls, home: str, names: list[str]) -> list[Self]:
        found = []
        for name in names:
            where = _folder(home) / name
            raw = where.read_bytes()
            if raw is not None:
                stored = StoredDocument(WHAT, where)
                found.append(stored.read(cls, stored.parsed(raw)))
        return found


def _folder(home: str) -> Location:
    return Location(home) / "runs"
