"""Stateful functions, their states being rows of a state table."""
