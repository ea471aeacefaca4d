"""State as a Delta table: one per operator, appended to once a step, readable with SQL as of any step."""
