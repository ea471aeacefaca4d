"""Sequence mode: the change with the greatest sequence wins: `rank`, `choose`, `fill`, `write`."""
