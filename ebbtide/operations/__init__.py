"""What keeps the stored tables small; each job is a step of the same ledger, under the same lease."""
