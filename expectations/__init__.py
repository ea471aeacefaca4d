"""Great Expectations expectations and suites, and their results as asset checks."""
