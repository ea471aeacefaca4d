"""Operations by their names."""

import json
import tempfile
from collections.abc import Mapping
from typing import Any

from ebbtide.operations import Context, Operation, Report, operations

Origin = tuple[str, int, int]
"""Where a record comes from: source, partition, position."""


def operation_named(name: str) -> Operation:
    """Return an operation by its name: that of its command, with a dot for a space."""
    [found] = [each for each in operations(name.partition(".")[0]) if each.name == name]
    return found


def act(name: str, action: str, context: Context, **asked: Any) -> Report:
    """Do what a command or a job does: check what is asked for, and plan or apply it.

    Args:
        name: Of the operation.
        action: `plan`, `apply`, or a further one of it.
        context: Its pipeline, its clock and its session.
        asked: Values of its `Params`.
    """
    operation = operation_named(name)
    return operation.act(action, context, operation.asked(asked))


def replay(action: str, context: Context, mended: Mapping[Origin, str] | None, **asked: Any) -> Report:
    """Plan or apply a replay of quarantined records.

    Args:
        action: `plan` or `apply`.
        context: See `act`.
        mended: Lines in the place of records, given in a file as a user does; None: the records as they are.
        asked: Further values of its `Params`.
    """
    if mended is None:
        return act("quarantine.replay", action, context, **asked)
    names = ("source", "partition", "position")
    lines = [json.dumps({"origin": dict(zip(names, origin, strict=True)), "raw": mended[origin]}) for origin in mended]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("\n \n".join(lines))
        file.flush()
        return act("quarantine.replay", action, context, records=file.name, **asked)
