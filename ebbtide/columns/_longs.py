"""The bounds of integers of 64 bits. This module loads no library."""

from __future__ import annotations


class Long:
    """The bounds of Java's and Arrow's integers of 64 bits."""

    MIN = -(2**63)
    MAX = 2**63 - 1
