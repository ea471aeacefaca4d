"""Repair of damaged tables, and acknowledgement of what other clients wrote."""
