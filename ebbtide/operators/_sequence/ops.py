"""Ranks of operations: they decide between changes of one key at one sequence."""

from __future__ import annotations

OP_TRUNCATE = 0
OP_DELETE = 1
OP_SNAPSHOT = 2
OP_UPSERT = 3
OP_FINAL_DELETE = 4
"""The greatest wins. In a log a delete precedes a create, since a key change is both at one position, and a snapshot row precedes
a change. By a user's columns a delete carries the sequence of the row that it deletes, so it comes last."""
