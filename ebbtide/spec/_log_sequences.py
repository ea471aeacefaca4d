"""The sequences of logs that have short names."""

from __future__ import annotations

LOG_SEQUENCES = (
    ("_lsn",),
    ("_ts_ms", "_lsn"),
    ("_file", "_pos", "_row"),
)
"""The sequences that the short names of `LOG_POSITIONS` make. MySQL's times are whole seconds, and its snapshot rows have the time of their own
reading: they order nothing."""
