"""Component types: what a `defs.yaml` can name as its `type`."""
