"""Parts of a spec's plan that follow from the spec alone."""

from ebbtide.runtime import Plan


def operator_of(spec):
    """Return the operator of a spec."""
    return Plan("", spec).operator
