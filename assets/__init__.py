"""What this project makes of its pipelines' sinks: assets and their jobs. Nothing here loads Spark when it is imported."""
