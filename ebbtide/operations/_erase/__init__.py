"""Erasure: deletes rows of some keys from the tables and from disk."""
