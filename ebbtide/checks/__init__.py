"""What must hold of a pipeline's tables, as plain Spark functions.

Each rule comes in two halves: a function that reads the rows to be judged, and one that picks from them the rows that break
the rule. Both give DataFrames, so that anything can judge: a test, a notebook, Great Expectations.
"""
