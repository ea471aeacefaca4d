"""Up to which commit of a table checks and repairs need not look back: that of the last step that ends windows."""

from __future__ import annotations

from ebbtide.delta import log
from ebbtide.ledger.facts import StepFacts


def window_end(table: str, judged: int, newest: int) -> int:
    """Return the version of the last step that ends windows, or the one judged last if that is newer.

    Args:
        table: Location of the state or the sink.
        judged: The version judged good last; 0: none was.
        newest: Steps after this version do not count.
    """
    for version, facts in log.own_commits(table):
        if version <= judged:
            break
        if version > newest:
            continue
        if ends_window(StepFacts.of_commit(facts, table)):
            return version
    return judged


def ends_window(facts: StepFacts) -> bool:
    """Return whether checks look no further back than a step.

    Args:
        facts: The step's.
    """
    # The commits before the first step of an adoption are of the table's earlier owner.
    begins_adoption = facts.state.unadopted is not None and facts.step == 1
    return facts.decision.ends_window or begins_adoption


def sink_window_end(state: str, state_end: int, sink_end: int) -> int:
    """Return the version of the sink at which its window ends: what a step accepted of the sink counts, too.

    Args:
        state: Location of the state.
        state_end: Version of the state at which its window ends: that step may have accepted the sink as it was.
        sink_end: Version of the sink by its own steps, as from `window_end`.
    """
    return max(sink_end, accepted_sink_version(state, state_end))


def accepted_sink_version(state: str, state_end: int) -> int:
    """Return the version of the sink that the step which ended the state's window has accepted; 0 if it accepted none.

    Args:
        state: Location of the state.
        state_end: Version of the state at which its window ends.
    """
    facts = log.facts(state, state_end)
    return 0 if facts is None else StepFacts.of_commit(facts, state).decision.accepts_sink or 0


def is_own(pipeline: str, actions: list[log.Action]) -> bool:
    """Return whether a commit is a pipeline's: it has a transaction of its, and its facts."""
    prefix = f"{pipeline}/"
    marks = [action["txn"] for action in actions if "txn" in action]
    names_pipeline = any(mark["appId"].startswith(prefix) for mark in marks)
    has_facts = log.facts_in(actions) is not None
    return names_pipeline and has_facts
