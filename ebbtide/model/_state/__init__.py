"""Keyed state that expires: values, lists and maps over a small raw store, and what cleans them."""
