"""Formats: bytes to changes."""
