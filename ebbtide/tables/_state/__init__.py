"""The state of a pipeline, as a Delta table."""
