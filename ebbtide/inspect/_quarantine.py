"""Content of a pipeline's quarantine, read without a JVM."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Self

from ebbtide.amounts import amount
from ebbtide.redaction import MASK, printable
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline
from ebbtide.tables import Selection


@dataclass(frozen=True)
class ReasonCount:
    """The records that are bad for one reason.

    Args:
        reason: Its code.
        records: Number of records.
        first_step: The first step that met one.
        last_step: The last step that met one.
        oldest: Clock of the first of these steps.
        newest: Clock of the last of these steps.
    """

    reason: str
    records: int
    first_step: int
    last_step: int
    oldest: datetime
    newest: datetime

    def text(self) -> str:
        """Return the count as text for a terminal."""
        steps = f"step {self.first_step}"
        if self.last_step != self.first_step:
            steps = f"steps {self.first_step} to {self.last_step}"
        oldest = self.oldest.strftime(MINUTE)
        newest = self.newest.strftime(MINUTE)
        times = f"{oldest} to {newest} UTC"
        return f"{self.reason}: {self.records}, {steps}, {times}"


@dataclass(frozen=True)
class QuarantineSummary:
    """Content of a quarantine.

    Args:
        pipeline: The pipeline's name.
        records: Number of records.
        reasons: Their counts by reason, in order of name.
    """

    pipeline: str
    records: int
    reasons: tuple[ReasonCount, ...]

    @classmethod
    def of(cls, spec: Pipeline, root: str) -> Self:
        """Count the records of a pipeline's quarantine by reason.

        Args:
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
        return cls(
            spec.name,
            records=len(rows),
            reasons=tuple(reasons),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        return asdict(self)

    def text(self) -> str:
        """Return the summary as text for a terminal."""
        records = amount(self.records, "record")
        first = f"{self.pipeline}: {records} in quarantine."
        reasons = [reason.text() for reason in self.reasons]
        return "\n  ".join([first, *reasons])


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record in the quarantine.

    Args:
        pipeline: The pipeline's name.
        step: The step that met it.
        at: That step's clock.
        reason: Code of the reason why the record is bad.
        detail: The reason in words.
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

    @classmethod
    def listed(
        cls,
        spec: Pipeline,
        root: str,
        selection: Selection,
        *,
        show_personal: bool = False,
    ) -> list[Self]:
        """Read the records of a pipeline's quarantine, the oldest first.

        Args:
            root: Folder of all pipelines' tables.
            selection: Selects records.
            show_personal: Show the bytes of records also where columns are personal: a bad record may have such a value anywhere.
        """
        quarantine = Plan.under(root, spec).quarantine
        rows = quarantine.records(selection)
        is_masked = bool(spec.personal) and not show_personal
        shown = rows.drop_columns(["order"])
        found = []
        for row in shown.to_pylist():
            if is_masked:
                row["raw"] = MASK.encode()
            record = cls(pipeline=spec.name, **row)
            found.append(record)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values: `raw` as text, or null with the bytes in `raw_base64` where they are not UTF-8."""
        fields = dict(vars(self))
        try:
            fields["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            fields["raw"] = None
            encoded = base64.b64encode(self.raw)
            fields["raw_base64"] = encoded.decode()
        return fields

    def text(self) -> str:
        """Return the record as text for a terminal, with the beginning of its bytes."""
        place = self.place_text(self.origin)
        n_bytes = len(self.raw)
        head = self.raw[:SHOWN_BYTES]
        shown = head.decode(errors="backslashreplace")
        is_cut = n_bytes > SHOWN_BYTES
        if is_cut:
            shown += f"... ({n_bytes} bytes)"
        first = f"{self.pipeline}: step {self.step}, {place}: {self.reason}"
        lines = [first, self.detail, shown]
        escaped = map(printable, lines)
        return "\n  ".join(escaped)

    @staticmethod
    def place_text(origin: Mapping[str, Any]) -> str:
        """Return the position of a record in its source, in words."""
        source = origin["source"]
        partition = origin["partition"]
        position = origin["position"]
        return f"{source}/{partition} at {position}"


SHOWN_BYTES = 500
"""Bytes of a record that are shown on a terminal."""
MINUTE = "%Y-%m-%d %H:%M"
"""Format of times on a terminal."""


def _reason_count(group: dict[str, Any]) -> ReasonCount:
    return ReasonCount(
        reason=group["reason"],
        records=group["reason_count"],
        first_step=group["step_min"],
        last_step=group["step_max"],
        oldest=group["at_min"],
        newest=group["at_max"],
    )
