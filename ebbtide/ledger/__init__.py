"""The ledger: the facts of steps, who writes them, and the checkpoint."""
