"""Erasure: rows of some keys go, from the tables and from the disk."""
