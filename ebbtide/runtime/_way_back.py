"""The way back of a sink: its newest complete version written by the pipeline, and the later steps' change sets.

A version is the pipeline's own where no other client has changed rows since the last step that ends windows. On it the change sets of
the later steps are applied again: they are in the state's commits, until VACUUM or a cleanup of the log deletes them.
So rows come back that the state has forgotten, or never kept; a state that keeps all rows can do without (`Rewrite`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from ebbtide.columns import row_codes
from ebbtide.delta import DataFile, Log, Snapshot, WholeFiles
from ebbtide.errors import HistoryGoneError
from ebbtide.ledger import DataCommit, ForeignWrites, StepFacts
from ebbtide.model import Clear, RestoreAndApply
from ebbtide.runtime._missing_rows import Steps, steps_to_repeat
from ebbtide.runtime._plan import Plan

MOST_ROWS = 5_000_000
"""Rows of change sets that are applied again in one process; a state that keeps all rows is compared instead."""


@dataclass(frozen=True)
class OwnVersions:
    """Versions of a sink that only its pipeline has written.

    Args:
        since: The first of them: the end of the last window.
        until: The last of them.
        foreign: The commits of other clients that follow, and that are neither repaired nor acknowledged, in order.
    """

    since: int
    until: int
    foreign: tuple[DataCommit, ...]

    @classmethod
    def of(cls, plan: Plan, state_version: int, sink_version: int, sink_since: int | None = None) -> Self:
        """Find them.

        Args:
            state_version: Version of the state to look back from.
            sink_version: Version of the sink to look back from.
            sink_since: Version of the sink up to which all was judged good. Default: the end of the last window.
        """
        sink = plan.sink.path
        since = sink_since
        if since is None:
            sink_step = _step_of(plan, sink_version)
            own_end = ForeignWrites.window_end(sink, 0, sink_version)
            accepted = accepted_version(plan, state_version, sink_step)
            since = max(own_end, accepted)
        looked_at = range(since + 1, sink_version + 1)
        commits = DataCommit.of_table(plan.spec.name, "sink", sink, looked_at)
        foreign = [commit for commit in commits if not commit.is_own]
        until = sink_version
        if foreign:
            first = foreign[0]
            until = first.version - 1
        return cls(since, until, tuple(foreign))


def accepted_version(plan: Plan, state_version: int, sink_step: int) -> int:
    """Return the version of the sink that the last step which ended the state's window has accepted; 0 if it accepted none.

    A repair that the sink has not taken has ended no window of it.

    Args:
        state_version: Version of the state to look back from.
        sink_step: The last step that the sink has.
    """
    for version, own in Log(plan.state.path).own_commits():
        if version > state_version:
            continue
        facts = StepFacts.of_commit(own, plan.state.path)
        is_open = facts.decision.is_repair and facts.step > sink_step
        if not is_open and facts.ends_window:
            return facts.decision.accepts_sink or 0
    return 0


@dataclass(frozen=True)
class SinkHistory:
    """The versions of a sink and the change sets of its steps: by these its rows come back.

    Args:
        plan: The pipeline.
        last: Facts of its last step.
    """

    plan: Plan
    last: StepFacts

    @property
    def is_kept(self) -> bool:
        """Return whether the state keeps what the sink must show: one with named states, of a function of the user's, does not."""
        return not self.plan.operator.has_named_states

    @property
    def may_forget(self) -> bool:
        """Return whether a row of a key that the state does not know may be right."""
        return self.last.frontier.orphans or self.plan.spec.expires_live

    def own_versions(self, state_version: int, sink_version: int, sink_since: int | None = None) -> OwnVersions:
        """Find the versions that only the pipeline has written.

        Args:
            state_version: Version of the state to look back from.
            sink_version: Version of the sink to look back from.
            sink_since: Version of the sink up to which all was judged good. Default: the end of the last window.
        """
        return OwnVersions.of(self.plan, state_version, sink_version, sink_since)

    def way_back(self, own: OwnVersions | None) -> RestoreAndApply | None:
        """Find from which version, and by which steps, the sink comes to what its ledger says.

        Args:
            own: The sink's own versions; None: it is gone, or another table is in its place.

        Returns:
            None where a version, a change set or the steps between are gone; where other clients may have changed what was decided;
            or where it is so much that a state which keeps all rows is better compared.
        """
        plan = self.plan
        base = None
        if own is not None:
            files = WholeFiles(plan.sink.path)
            base = files.newest(own.since, own.until)
        if own is None or base is None:
            return self._applying(None, 0)
        step = _step_of(plan, base.version)
        if own.foreign and _may_have_read_the_sink(plan, step):
            return None
        return self._applying(base.version, step)

    def way_of_forgotten(self) -> RestoreAndApply | None:
        """Find the way back of a sink that another client has changed, where the state may have forgotten rows; None if it has not."""
        if not self.may_forget:
            return None
        state = self.plan.state.snapshot()
        sink_version = self.plan.delta_sink.version()
        own = self.own_versions(state.version, sink_version)
        if not own.foreign:
            return None
        return self.way_back(own)

    def net_changes(self, action: RestoreAndApply) -> pa.Table:
        """Read what some steps have decided for the sink, in sum: of each key the last change.

        Args:
            action: Names the steps.

        Returns:
            `_change` and all columns of the sink, each key once.

        Raises:
            DamagedFileError: a file of a change set is gone or damaged.
            HistoryGoneError: the commit of a step is.
        """
        plan = self.plan
        steps, unknown_until = steps_to_repeat(plan, "sink", action.first_step - 1)
        if unknown_until:
            raise HistoryGoneError.of(
                f"The sink of '{plan.spec.name}' cannot be brought back: what steps up to {unknown_until} decided is gone.",
                got=f"no commit of step {unknown_until} in '{plan.state.path}'",
                allowed=f"the commits of steps {action.first_step} to {action.last_step}",
                next_step="Run 'ebbtide repair --apply' again: it finds another way, or says what is lost.",
            )
        columns = plan.sink.schema
        with_change = pa.schema([("_change", pa.string()), *columns])
        parts = [with_change.empty_table()]
        for version, facts in steps:
            if facts.step <= action.last_step:
                of_step = plan.state.changes(version)
                parts.append(of_step.rows(columns))
        changes = pa.concat_tables(parts)
        # The last change of a key is the first one met from behind: numpy's `unique` returns the first place of each code. So the
        # changes of all steps cost one sort, however often a key has changed.
        codes = row_codes(changes, plan.sink.key)[::-1]
        _, from_behind = np.unique(codes, return_index=True)
        last_row = len(changes) - 1
        in_order = np.sort(last_row - from_behind)
        return changes.take(pa.array(in_order))

    def _applying(self, base: int | None, step: int) -> RestoreAndApply | None:
        """Return the way from a version that has the rows of a step, if all that follows is still there."""
        plan = self.plan
        steps, unknown_until = steps_to_repeat(plan, "sink", step)
        if unknown_until or not _are_readable(plan, steps):
            return None
        first_step = step + 1
        if steps:
            _, first = steps[0]
            is_cleared = isinstance(first.decision.tables["sink"], Clear)
            if is_cleared:  # no row of before is left
                base = None
            if base is None:
                first_step = first.step
        if base is None and _has_acknowledged(plan, first_step):
            return None
        keeps_all = self.is_kept and not self.may_forget
        if keeps_all and _changed_rows(steps) > MOST_ROWS:
            return None
        return RestoreAndApply(base, first_step, self.last.step)


def _are_readable(plan: Plan, steps: Steps) -> bool:
    """Return whether all files of some steps' commits are whole: they hold the change sets."""
    whole = WholeFiles(plan.state.path)
    for version, _ in steps:
        files = map(DataFile, Log(plan.state.path).commit(version).adds())
        if not all(map(whole.has, files)):
            return False
    return True


def _changed_rows(steps: Steps) -> int:
    """Return about how many rows some steps have changed, at most."""
    n_rows = 0
    for _, facts in steps:
        counts = facts.decision.counts
        n_rows += sum(counts.values())
    return n_rows


def _has_acknowledged(plan: Plan, since: int) -> bool:
    """Return whether changes of other clients were accepted in a step, or later: no change set has them."""
    for _, facts in plan.state.steps():
        accepts = facts.decision.accepts_sink is not None
        # A repair accepts a sink that it found right.
        if facts.step >= since and accepts and not facts.decision.tables:
            return True
    return False


def _may_have_read_the_sink(plan: Plan, step: int) -> bool:
    """Return whether decisions of later steps may depend on rows of the sink that replace expired entries."""
    if not plan.spec.expires_live:
        return False
    for _, facts in plan.state.steps():
        is_later = facts.step > step
        if is_later and facts.read.records:
            return True
    return False


def _step_of(plan: Plan, version: int) -> int:
    """Return the last step that a version of the sink has; 0 before the first. Its marks outlive the commits."""
    sink = plan.sink.path
    steps = [0]
    for at, facts in Log(sink).own_commits():
        if at <= version:
            steps.append(int(facts["step"]))
            break
    snapshot = Snapshot.read(sink, version, any_features=True)
    marks = {} if snapshot is None else snapshot.transactions
    for app_id, step in marks.items():
        if app_id.endswith("/sink"):
            steps.append(step)
    return max(steps)
