"""Sinks: where a pipeline's right rows go."""
