"""Reconcilers: a step's changes and its keys' state in, what changed out. Pure functions over Arrow tables."""
