"""What must hold of a pipeline's tables.

Each rule comes in two halves, both SQL: a query for the rows to be judged, and a condition that picks those that break the rule. The same
text runs in this process on Arrow, or on Spark, by how much it reads.
"""
