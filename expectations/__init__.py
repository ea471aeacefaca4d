"""The shop's own business rules, in Great Expectations; a spec names them under `checks.expectations`."""
