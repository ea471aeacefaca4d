"""Embedded stores of state."""
