"""Factories: a pipeline's spec in, Dagster's objects out. Nothing here starts Spark when it is imported."""
