"""Backfills: new tables of a pipeline are built and swapped with those in use, or records are read again into them."""
