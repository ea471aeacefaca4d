"""Arrival mode: changes apply in the order in which they arrived."""
