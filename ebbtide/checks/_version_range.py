"""The versions of a pipeline's tables that are judged together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ebbtide.delta import Feed, Log
from ebbtide.durations import to_ms
from ebbtide.faults import Fault
from ebbtide.ledger import ForeignWrites, StepFacts
from ebbtide.runtime import Plan


@dataclass(frozen=True)
class Newest:
    """The versions that belong together at the end of a window.

    Args:
        sink: Version of the sink.
        state: Version of the state.
        generation: Generation of the local copies; see `Plan.copies_generation`.
    """

    sink: int
    state: int
    generation: str = ""

    @classmethod
    def of(cls, tables: Plan, generation: str = "") -> Self:
        """Return the newest versions. For a running pipeline they belong together only while its lease is held.

        Raises:
            TableMismatchError: the sink is gone.
        """
        sink = [0] if tables.sink_log is None else Log(tables.sink_log).versions()
        if not sink:
            raise Fault.of("sink", "gone", location=tables.sink_log).error
        return cls(sink[-1], Log(tables.state.path).versions()[-1], generation)

    @classmethod
    def between_steps(cls, tables: Plan) -> Self | None:
        """Return the newest versions; during a continuous run, those between two of its steps. None before the first step."""
        spec = tables.spec
        last = tables.state.last()
        if last is None:
            return None
        _, facts = last
        tables.drop_older_copies(facts)
        generation = tables.copies_generation(facts)
        if spec.run == "bounded":
            return cls.of(tables, generation)
        lease_ttl_s = to_ms(spec.lease_ttl) / 1000
        with tables.ledger.lease(lease_ttl_s, asks=True):
            return cls.of(tables, generation)


@dataclass(frozen=True)
class VersionRange:
    """Versions of the sink and the state: those after `since`, up to `until`.

    Args:
        sink_since: Version of the sink.
        sink_until: The same.
        state_since: Version of the state.
        state_until: The same.
        incarnation: That of the tables; versions mean nothing in another.
        unreadable: Description of versions that can no longer be judged; empty if all can.
        input_since: Version of the state after which the input is judged: a repair begins no such window.
        good_until: Version of the state up to which all was judged good.
    """

    sink_since: int
    sink_until: int
    state_since: int
    state_until: int
    incarnation: str
    unreadable: str = ""
    input_since: int = 0
    good_until: int = 0

    @classmethod
    def after(
        cls,
        tables: Plan,
        judged: Mapping[str, Any] | None = None,
        newest: Newest | None = None,
    ) -> Self:
        """Return the versions after the last good ones and after the last step that ends windows, if still readable.

        Args:
            tables: The pipeline's; it has made a step.
            judged: The `until` of the window judged good last; None judges all, as do tables made from scratch since.
            newest: Up to where. Default: the newest versions.
        """
        newest = newest or Newest.of(tables)
        incarnation = ""
        commit = tables.state.last()
        if commit is not None:
            _, facts = commit
            incarnation = facts.incarnation
        known: Mapping[str, Any] = {}
        if judged is not None and judged["incarnation"] == incarnation:
            known = judged
        state_judged = known.get("state", 0)
        state_end = ForeignWrites.window_end(tables.state.path, state_judged, newest.state)
        # Windows begin at the newest of three versions: judged good, end of a window, still readable.
        # A step that ends windows may follow a recreated or restored sink, whose versions restart at lower numbers.
        sink_judged = known.get("sink", 0) if state_end == state_judged else 0
        asked_since = 0
        sink_since = 0
        if tables.sink_log is not None:
            asked_since = ForeignWrites.window_end(
                tables.sink_log, sink_judged, newest.sink, accepted_by=(tables.state.path, state_end)
            )
            sink_since = Feed(tables.sink_log, asked_since, newest.sink).readable_since()
        unreadable = ""
        if sink_since > asked_since:
            unreadable = f"changes of the sink in versions {asked_since + 1} to {sink_since}: their files are deleted, as by VACUUM"
        return cls(
            sink_since=sink_since,
            sink_until=newest.sink,
            state_since=state_end,
            state_until=newest.state,
            incarnation=incarnation,
            unreadable=unreadable,
            input_since=_settled(tables, state_judged, newest.state),
            good_until=state_judged,
        )

    @property
    def until(self) -> dict[str, Any]:
        """The value to hand to `after` once this window was judged good; plain JSON values."""
        return {
            "sink": self.sink_until,
            "state": self.state_until,
            "incarnation": self.incarnation,
        }

    def last_step(self, tables: Plan) -> StepFacts | None:
        """Return the facts of the window's last step; None before the first."""
        for version, facts in tables.state.steps():
            if version <= self.state_until:
                return facts
        commit = tables.state.last()  # of a log that was cleaned up since
        return None if commit is None else commit[1]

    def last_accepted_step(self, tables: Plan) -> int:
        """Return the last step whose entries were judged good, or acknowledged; 0 if there is none."""
        for version, own in Log(tables.state.path).own_commits():
            if version > self.state_until:
                continue
            facts = StepFacts.of_commit(own, tables.state.path)
            if version <= self.good_until or facts.decision.is_acknowledgement:
                return facts.step
        return 0

    def step_since(self, tables: Plan) -> int:
        """Return the last step before the window; 0 if there is none."""
        return _step_at(tables, self.state_since)

    def input_step(self, tables: Plan) -> int:
        """Return the last step before the window in which the input is judged; 0 if there is none."""
        return _step_at(tables, self.input_since)


def _step_at(tables: Plan, state_version: int) -> int:
    """Return the last step up to a version of the state; 0 if there is none."""
    newest_first = Log(tables.state.path).own_commits()
    for version, facts in newest_first:
        if version <= state_version:
            return int(facts["step"])
    return 0


def _settled(tables: Plan, judged: int, newest: int) -> int:
    """Return the version of the last step that settles what the input did, or the one judged last if that is newer."""
    for version, facts in tables.state.steps():
        if version <= judged:
            break
        if version <= newest and facts.settles_input:
            return version
    return judged
