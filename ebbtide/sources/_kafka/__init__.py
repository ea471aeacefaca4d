"""A Kafka topic as a source: planned by the driver, read by the tasks."""
