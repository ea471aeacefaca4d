"""Backfills: a pipeline's tables are built again beside those in use, and swapped in; or records are read again into them."""
