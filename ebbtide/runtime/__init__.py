"""Runs a pipeline's steps on Spark."""
