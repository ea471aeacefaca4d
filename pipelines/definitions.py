"""What Dagster loads: composition only."""

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Return everything in this code location."""
    return dg.Definitions()
