"""Operations by their names."""

from ebbtide.operations import Operation, operations


def operation_named(name: str) -> Operation:
    """Return an operation by its name: that of its command, with a dot for a space."""
    [found] = [each for each in operations(name.partition(".")[0]) if each.name == name]
    return found
