"""Content of a pipeline's quarantine, read without a JVM."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ebbtide.amounts import amount
from ebbtide.runtime.plan import Plan
from ebbtide.spec.pipeline import Pipeline
from ebbtide.tables.quarantine import Selection


@dataclass(frozen=True)
class ReasonCount:
    """The records that are bad for one reason.

    Args:
        reason: Its code.
        records: How many.
        first_step: The first step that met one.
        last_step: The last.
        oldest: The clock of the first.
        newest: The clock of the last.
    """

    reason: str
    records: int
    first_step: int
    last_step: int
    oldest: datetime
    newest: datetime

    def text(self) -> str:
        """Write it for a terminal."""
        steps = f"step {self.first_step}"
        if self.last_step != self.first_step:
            steps = f"steps {self.first_step} to {self.last_step}"
        oldest = f"{self.oldest:%Y-%m-%d %H:%M}"
        newest = f"{self.newest:%Y-%m-%d %H:%M}"
        return f"{self.reason}: {self.records}, {steps}, {oldest} to {newest} UTC"


@dataclass(frozen=True)
class QuarantineSummary:
    """Content of a quarantine.

    Args:
        pipeline: The pipeline's name.
        records: How many records.
        reasons: They by reason, in order of name.
    """

    pipeline: str
    records: int
    reasons: tuple[ReasonCount, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        lines = [f"{self.pipeline}: {amount(self.records, 'record')} in quarantine."]
        lines += [reason.text() for reason in self.reasons]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record in the quarantine.

    Args:
        pipeline: The pipeline's name.
        step: The step that met it.
        at: That step's clock.
        reason: Why it is bad, as a code.
        detail: The same in words.
        origin: Its source, partition and position.
        raw: Its bytes.
    """

    pipeline: str
    step: int
    at: datetime
    reason: str
    detail: str
    origin: dict[str, Any]
    raw: bytes

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values: `raw` as text, null where the bytes are none; then they are in `raw_base64`."""
        fields = dict(vars(self))
        try:
            fields["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            fields["raw"] = None
            fields["raw_base64"] = base64.b64encode(self.raw).decode()
        return fields

    def text(self) -> str:
        """Write it for a terminal, the beginning of its bytes only."""
        place = place_text(self.origin)
        head = self.raw[:SHOWN_BYTES]
        n_bytes = len(self.raw)
        shown = head.decode(errors="backslashreplace")
        if n_bytes > SHOWN_BYTES:
            shown += f"... ({n_bytes} bytes)"
        lines = [
            f"{self.pipeline}: step {self.step}, {place}: {self.reason}",
            self.detail,
            shown,
        ]
        return "\n  ".join(map(printable, lines))


SHOWN_BYTES = 500
"""Bytes of a record that a terminal is shown."""


def summary(spec: Pipeline, root: str) -> QuarantineSummary:
    """Count what a pipeline's quarantine holds.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
    """
    quarantine = Plan.under(root, spec).quarantine
    rows = quarantine.values("reason", "step", "at")
    aggregates = [
        ("reason", "count"),
        ("step", "min"),
        ("step", "max"),
        ("at", "min"),
        ("at", "max"),
    ]
    by_reason = rows.group_by("reason")
    groups = by_reason.aggregate(aggregates).sort_by("reason")
    reasons = [_reason_count(group) for group in groups.to_pylist()]
    return QuarantineSummary(
        spec.name,
        records=len(rows),
        reasons=tuple(reasons),
    )


def _reason_count(group: dict[str, Any]) -> ReasonCount:
    return ReasonCount(
        reason=group["reason"],
        records=group["reason_count"],
        first_step=group["step_min"],
        last_step=group["step_max"],
        oldest=group["at_min"],
        newest=group["at_max"],
    )


def records(spec: Pipeline, root: str, selection: Selection) -> list[QuarantinedRecord]:
    """Read what a pipeline's quarantine holds, the oldest first.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        selection: Which records.
    """
    quarantine = Plan.under(root, spec).quarantine
    rows = quarantine.records(selection)
    shown = rows.drop_columns(["order"])
    found = []
    for row in shown.to_pylist():
        record = QuarantinedRecord(pipeline=spec.name, **row)
        found.append(record)
    return found


def place_text(origin: Mapping[str, Any]) -> str:
    """Write where a record stands in its source."""
    source = origin["source"]
    partition = origin["partition"]
    position = origin["position"]
    return f"{source}/{partition} at {position}"


def printable(text: str) -> str:
    """Return a text without control characters, which a terminal would obey: they are escaped."""
    characters = []
    for character in text:
        shown = character
        if not character.isprintable():
            quoted = ascii(character)
            shown = quoted[1:-1]
        characters.append(shown)
    return "".join(characters)
