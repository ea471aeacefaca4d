"""Pipelines: their spec, their steps, and the run that drives them."""
