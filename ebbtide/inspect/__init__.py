"""Looks at pipelines: their status, and what their state holds."""
