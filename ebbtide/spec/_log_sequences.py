"""The sequences of logs that have short names."""

from __future__ import annotations

LOG_SEQUENCES = (
    ("_lsn",),
    ("_ts_ms", "_lsn"),
    ("_file", "_pos", "_row"),
)
"""The sequences of the short names of `LOG_POSITIONS`. MySQL's times do not order changes: they are whole seconds, and a snapshot
row has its time of reading."""
