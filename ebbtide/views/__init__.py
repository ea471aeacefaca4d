"""Materialized views: the rows that a change of an input touches are found and recomputed."""
