"""Factories of assets, jobs, schedules and checks: spec in, Dagster objects out."""
