"""Arrival mode: changes apply in the order of their arrival."""
