"""The ledger: the facts of steps, who writes them, and what Spark's checkpoint says."""
