"""Dagster resources: whatever lives as long as a process does."""
