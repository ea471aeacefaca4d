"""The contract between a state table and the operator whose entries it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from ebbtide.entries import Reconciled, Step
from ebbtide.model import SchemaChange
from ebbtide.operators._expiry import ExpiryRules


class Operator(Protocol):
    """Decides what becomes of the entries of the keys that a step touches. It runs in Spark's workers: it must be picklable."""

    @property
    def columns(self) -> pa.Schema:
        """The source's columns."""

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key's columns."""

    @property
    def changes(self) -> pa.Schema:
        """Columns of a change."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of an entry."""

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that identify an entry."""

    @property
    def expiry(self) -> ExpiryRules:
        """Expiry rules of entries."""

    @property
    def has_named_states(self) -> bool:
        """Return whether each entry belongs to a named state or is a timer.

        Column `_state` then names the state; it is null in rows that are only for the sink.
        """

    def apply(
        self,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Decide a step."""

    def expire(
        self,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Decide a tick: a step without changes, in which entries expire."""

    def altered(self, entries: pa.Table, change: SchemaChange, fills: Mapping[str, pa.Scalar]) -> pa.Table:
        """Return entries with this operator's columns.

        Args:
            entries: Entries with their old columns.
            change: The change of the columns.
            fills: Added column to its value in all rows.
        """
