"""The window of checks and repairs: the commits of a table since the last step that ends windows."""

from __future__ import annotations

from ebbtide.delta import Commit, Log
from ebbtide.ledger._facts import StepFacts


def window_end(table: str, judged: int, newest: int, *, accepted_by: tuple[str, int] | None = None) -> int:
    """Return where a window ends; see `ForeignWrites.window_end`."""
    accepted = 0 if accepted_by is None else accepted_sink_version(*accepted_by)
    return max(_end_by_steps(table, judged, newest), accepted)


def _end_by_steps(table: str, judged: int, newest: int) -> int:
    for version, facts in Log(table).own_commits():
        if version <= judged:
            break
        if version > newest:
            continue
        if StepFacts.of_commit(facts, table).ends_window:
            return version
    return judged


def accepted_sink_version(state: str, state_end: int) -> int:
    """Return the version of the sink that the step which ended the state's window has accepted; 0 if it accepted none.

    Args:
        state: Location of the state.
        state_end: Version of the state at the end of its window.
    """
    stored = Log(state).commit(state_end).facts()
    if stored is None:
        return 0
    facts = StepFacts.of_commit(stored, state)
    return facts.decision.accepts_sink or 0


def is_own(pipeline: str, commit: Commit) -> bool:
    """Return whether a pipeline made a commit: it has a transaction mark of the pipeline, and facts."""
    prefix = f"{pipeline}/"
    names_pipeline = False
    for action in commit:
        if "txn" in action:
            app_id = action["txn"]["appId"]
            names_pipeline |= app_id.startswith(prefix)
    has_facts = commit.facts() is not None
    return names_pipeline and has_facts
