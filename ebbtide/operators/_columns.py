"""Names that operators reserve in entries."""

from __future__ import annotations

from ebbtide.entries import ENTRY_COLUMNS
from ebbtide.operators._arrival.rules import ARRIVAL_COLUMNS
from ebbtide.operators._sequence.rules import SEQUENCE_COLUMNS

OPERATOR_COLUMNS = frozenset({*ENTRY_COLUMNS, *ARRIVAL_COLUMNS, *SEQUENCE_COLUMNS})
"""Columns that operators add to the user's in entries."""
