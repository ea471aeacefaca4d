"""The bounds of integers of 64 bits. This module loads no library."""

from __future__ import annotations

LONG_MIN = -(2**63)
LONG_MAX = 2**63 - 1
