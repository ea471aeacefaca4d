"""Dagster resources: what lives as long as the process, such as the Spark session and the storage roots."""
