"""Materialized views: which of their rows a change of an input touches, and how these are computed again."""
