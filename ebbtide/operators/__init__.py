"""Operators: changes and stored entries in, new entries out; pure, in columns."""
