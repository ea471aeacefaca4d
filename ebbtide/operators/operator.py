"""What a state table needs of the operator whose entries it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from ebbtide.model.entries import Reconciled, Step
from ebbtide.model.ttl import StateTtlConfig


class Operator(Protocol):
    """Decides over the entries of the keys that a step touches. It runs in Spark's workers: it must be picklable."""

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
        """Columns that distinguish one entry from another."""

    @property
    def ttls(self) -> Mapping[str | None, StateTtlConfig]:
        """Name of a state, None for all others, to its time to live; of those that expire."""

    @property
    def state_column(self) -> str:
        """The column that holds the name of the state."""

    @property
    def unsettled(self) -> str | None:
        """SQL condition of the entries whose expiry a tick has to act on: until it has, they must not be deleted. None: there are none."""

    @property
    def mortal(self) -> tuple[str, ...]:
        """Columns of which one is set, true or not null, in each entry that may expire; none: all may."""

    def apply(
        self,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Decide a step."""

    def expire(self, state: pa.Table, step: Step) -> Reconciled:
        """Decide a tick."""
