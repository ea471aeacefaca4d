"""Tables that a run has made before the first step: a spec that changes before that step needs them with other columns."""

from __future__ import annotations

import pyarrow as pa

from ebbtide.delta import Log, Snapshot
from ebbtide.runtime._plan import Plan
from ebbtide.storage import Location

OWN_COLUMN = {"sink": "_changed_by", "changelog": "_order", "state": "_entry"}
"""A column that identifies a table made by a run. The state comes last: it shows that there is no step."""


def unused_of_another_spec(plan: Plan) -> list[str]:
    """Return which tables a run has made without rows, and made for another spec than the plan's.

    A table that another client has written, or altered, is not among them: it is refused where it does not fit.

    Returns:
        Names of the tables; none once a step was made.
    """
    was_written = Log(plan.state.path).is_beyond(0)
    if was_written:
        return []
    wanted = _columns_wanted(plan)
    found = []
    for name in OWN_COLUMN:
        unused = _unused(plan.at(name))
        if _is_of_another_spec(unused, name, wanted.get(name)):
            found.append(name)
    return found


def has_unused_of_spec(plan: Plan) -> bool:
    """Return whether a run has made all tables that the spec needs before the first step, and nothing has come since."""
    has_sink = plan.known("sink").facts() is not None
    if not has_sink:
        return False
    for name, columns in _columns_wanted(plan).items():
        unused = _unused(plan.at(name))
        if not _fits(unused, columns):
            return False
    return True


def drop_unused_of_another_spec(plan: Plan) -> None:
    """Delete these tables, so that the run makes them as the spec is now; the pipeline's lease is held."""
    for name in unused_of_another_spec(plan):
        Location(plan.at(name)).delete()


def _columns_wanted(plan: Plan) -> dict[str, pa.Schema]:
    wanted = {"state": plan.state.schema}
    if plan.sink_log is not None:
        wanted["sink"] = plan.sink.schema
    if plan.spec.emits_every:
        wanted["changelog"] = plan.changelog.schema
    return wanted


def _unused(table: str) -> Snapshot | None:
    """Return a table that has only the commit that made it, and no rows; None if there is none."""
    if Log(table).versions() != [0]:
        return None
    made = Snapshot.read(table, any_features=True)
    if made is None or made.files:
        return None
    return made


def _is_of_another_spec(unused: Snapshot | None, name: str, wanted: pa.Schema | None) -> bool:
    """Return whether an unused table was made by a run, with other columns than are wanted.

    Args:
        unused: The table; None if it is not unused.
        name: One of `OWN_COLUMN`.
        wanted: The columns that the spec gives it; None if the spec needs no such table.
    """
    if unused is None:
        return False
    is_own = OWN_COLUMN[name] in unused.column_types
    return is_own and not _fits(unused, wanted)


def _fits(unused: Snapshot | None, wanted: pa.Schema | None) -> bool:
    if unused is None or wanted is None:
        return False
    return unused.has_columns(wanted)
