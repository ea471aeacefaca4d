"""What Dagster loads: the definitions, the component types, and the pipelines themselves."""
