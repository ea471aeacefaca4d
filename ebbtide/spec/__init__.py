"""The pipeline spec: what a user writes."""
