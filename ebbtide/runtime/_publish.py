"""Publish: apply the last step's decision to sink, changelog and quarantine. It is idempotent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.ddl import parse_ddl
from ebbtide.delta import Doomed, Snapshot
from ebbtide.errors import BackfillError, LeaseLostError, SpecChangedError
from ebbtide.ledger import Head, NoStep, StepFacts
from ebbtide.model import Action, Alter, Append, Decision, Erase, Replace, RestoreAndApply, Rewrite
from ebbtide.runtime._erasing import ErasureKey
from ebbtide.runtime._missing_rows import appendable
from ebbtide.runtime._own_tables import OwnTables
from ebbtide.runtime._plan import Plan
from ebbtide.storage import Location
from ebbtide.tables import ChangeSet, Take

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.runtime._comparing import SinkDifference


def publish(
    executor: Executor,
    plan: Plan,
    head: Head,
    known: OwnTables | None = None,
    *,
    leave: Collection[str] = (),
) -> Counter[str]:
    """Apply the last decision to the output tables.

    Args:
        head: Its last step.
        known: What this run already knows of the tables; updated here. Default: their logs are read.
        leave: Names of tables that cannot apply it: a repair restores them.

    Returns:
        The step's counts; none for a step that decides nothing for the sink.
    """
    facts = head.facts
    if isinstance(facts, NoStep):
        return Counter()
    decision = facts.decision
    tables = known or OwnTables(plan)
    for name, action in decision.tables.items():
        if name in leave or not _is_kept(plan, name, action):
            continue
        last_step = tables.last_performed(name)
        if _lacks(last_step, facts):
            work = PlannedWork(executor, plan, name, head.version, facts)
            plan.beside(name).perform(action, work)
        if known is not None:
            known.performed(name, facts)
    if decision.begins:
        Location(plan.at("staged")).delete()  # the source is read from elsewhere
    if decision.swapped is not None:
        _drop_swapped(plan, decision.swapped)
    return Counter(decision.counts)


@dataclass(frozen=True)
class PlannedWork:
    """Answers the questions of a table that performs its action; see `ebbtide.tables._table.Work`.

    Args:
        executor: Runs the work.
        plan: The pipeline.
        name: The output's.
        version: Version of the state that holds the step.
        facts: Facts of the step.
    """

    executor: Executor
    plan: Plan
    name: str
    version: int
    facts: StepFacts

    @property
    def changes(self) -> ChangeSet:
        """The change set of the step, and the changes that it emitted."""
        return self.plan.state.changes(self.version)

    def columns_before(self, action: Alter) -> pa.Schema:
        """Return the user's columns before the step."""
        self._refuse_other_spec()
        return parse_ddl(action.columns_before).columns

    def net_changes(self, action: RestoreAndApply) -> pa.Table:
        """Return the net effect of the steps to apply again."""
        from ebbtide.runtime._way_back import SinkHistory  # few steps look back

        return SinkHistory(self.plan, self.facts).net_changes(action)

    def way_back(self) -> RestoreAndApply | None:
        """Find how to restore a sink whose state may have forgotten rows; None if it cannot be, or need not be.

        A repair decides this itself. A `Rewrite` that it did not decide, of an older release or of a migration, finds it here.
        """
        from ebbtide.runtime._way_back import SinkHistory  # few steps look back

        return SinkHistory(self.plan, self.facts).way_of_forgotten()

    def take_shown(self, action: Rewrite, take: Take) -> list[Any]:
        """Take all rows that the state shows, without acknowledged ones if the sink cannot be read; a further output takes those of the sink."""
        from ebbtide.runtime._comparing import take_shown, take_sink  # few steps take all rows

        self._refuse_other_spec()
        if self.name in self.plan.outputs:
            return take_sink(self.executor, self.plan, take)
        return take_shown(self.executor, self.plan, self.facts, take, leaves_accepted=action.overwrites)

    def difference(self, action: Rewrite | Replace, take: Take) -> SinkDifference:
        """Compare the sink with the state's rows, or with the backfill's."""
        from ebbtide.runtime._comparing import SinkDifference  # few steps compare

        if isinstance(action, Replace):
            _refuse_gone(self.plan, action)
            return SinkDifference.to_backfill(self.executor, self.plan, action.version or 0, take)
        self._refuse_other_spec()
        return SinkDifference.found(
            self.executor,
            self.plan,
            self.facts,
            state_version=self.plan.state.snapshot().version,
            sink_version=self.plan.delta_sink.version(),
            take=take,
        )

    def taken(self, action: Replace) -> Snapshot | None:
        """Return the backfill's table."""
        _refuse_gone(self.plan, action)
        if action.version is None:
            return None
        table = self.plan.backfill.at(self.name)
        return Snapshot.read(table, action.version)

    def doomed(self, action: Erase) -> Doomed:
        """Return what selects the rows of erased keys in the table."""
        erased = self.plan.erasures.keys(action.erasures)
        return ErasureKey.of(self.plan).doomed_in(self.name, erased)

    def missed(self) -> Iterator[tuple[Action, PlannedWork]]:
        """Yield rows of earlier steps that the changelog or the quarantine lacks and that can be appended again."""
        table = self.plan.beside(self.name)
        since = table.last_step()
        for version, facts, action in appendable(self.plan, self.name, since):
            work = replace(self, version=version, facts=facts)
            yield action, work

    def _refuse_other_spec(self) -> None:
        """Refuse to finish a migration or a repair with another spec than its own."""
        facts = self.facts
        if self.plan.spec.misfits(facts.state.spec):
            raise SpecChangedError.of(
                f"The {facts.cause.what} of '{facts.pipeline}' in step {facts.step} is not finished, and its spec was another one.",
                got=self.plan.spec.identity,
                allowed=facts.state.spec,
                next_step="Run 'ebbtide run' or 'ebbtide migrate --apply' with that spec first.",
            )


def _is_kept(plan: Plan, name: str, action: Action) -> bool:
    """Return whether an action is performed.

    A changelog that the spec no longer asks for is still cleared, restored and altered, but gets no rows. A further output that is no longer
    in the spec performs nothing.
    """
    if name not in Decision.OWN_OUTPUTS:
        return name in plan.outputs
    is_written = name != "changelog" or plan.spec.emits_every
    return is_written or not isinstance(action, Append | Rewrite)


def _lacks(last_step: int, facts: StepFacts) -> bool:
    """Return whether a table lacks a step.

    Args:
        last_step: The last step that wrote the table.

    Raises:
        LeaseLostError: a later step wrote it: another run has continued.
    """
    if last_step > facts.step:
        raise LeaseLostError.of(
            f"Another run has continued '{facts.pipeline}'.",
            got=f"step {facts.step}, after step {last_step}",
            next_step="Nothing was written twice; start the run again.",
        )
    return last_step < facts.step


def _refuse_gone(plan: Plan, action: Replace) -> None:
    """Refuse to continue a swap whose backfill is gone.

    Raises:
        BackfillError: it is.
    """
    turn = plan.backfill.ledger.turn
    if turn is None or turn.incarnation != action.incarnation:
        raise BackfillError.of(
            f"The backfill that '{plan.spec.name}' is being given is gone from '{plan.backfills}'.",
            next_step="Put its folder back; or run 'ebbtide refresh' to rebuild all tables from the source.",
        )


def _drop_swapped(plan: Plan, incarnation: str) -> None:
    """Delete a backfill once all its tables are swapped in; not another one that was begun since.

    Args:
        incarnation: The backfill's.
    """
    turn = plan.backfill.ledger.turn
    if turn is None or turn.incarnation != incarnation:
        return
    plan.delete_backfill()
