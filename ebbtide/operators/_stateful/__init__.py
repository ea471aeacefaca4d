"""Stateful functions, whose states are rows of a state table."""
