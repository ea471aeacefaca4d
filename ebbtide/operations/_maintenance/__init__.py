"""Scheduled maintenance: cleanup, compaction and vacuum."""
