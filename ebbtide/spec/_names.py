"""The pattern of names."""

from __future__ import annotations

NAME = r"^[a-z][a-z0-9_]{0,62}$"
"""Names of pipelines and their groups."""
