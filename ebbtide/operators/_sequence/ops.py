"""Ranks of the operations that a sequence may stand for; they decide between changes of one key at one sequence."""

from __future__ import annotations

OP_TRUNCATE = 0
OP_DELETE = 1
OP_SNAPSHOT = 2
OP_UPSERT = 3
OP_FINAL_DELETE = 4
"""The greater wins. In a log a delete comes before a create, since a changed key is both at one position,
and a snapshot row before a change. By the user's own columns a delete carries the sequence of the row that it deletes: it
comes last."""
