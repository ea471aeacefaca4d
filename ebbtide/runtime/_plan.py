"""From a spec to what runs it: source, format, operator, tables. This module loads no Spark: tables are made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ebbtide.changelog import OffsetRanges, changelog_schema
from ebbtide.delta import LocalCopies
from ebbtide.durations import to_ms
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.faults import Fault
from ebbtide.formats import Decoding
from ebbtide.ledger import (
    Beginning,
    ErasureLedger,
    ForeignWrites,
    Head,
    Ledger,
    LedgerFacts,
    NoStep,
    OwnTable,
    StepFacts,
)
from ebbtide.model import Action, Apply, Clear, Decision, Erase, Frontier, Reading, Restore, StepRules
from ebbtide.operators import Operator
from ebbtide.runtime._kinds import OPERATORS, of_kind, sink_of
from ebbtide.runtime._workers.staging import BadLimit, Refused, Stager
from ebbtide.sources import Source, Span
from ebbtide.spec import DeltaSink, Pipeline
from ebbtide.storage import Location
from ebbtide.tables import StateTable

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.sources import PositionedSource
    from ebbtide.spec import MaterializedView
    from ebbtide.tables import ChangelogTable, QuarantineTable, Sink, SinkTable, StateTable, Table


_WITHOUT_COMPARING = (Apply, Clear, Restore, Erase)
"""The actions that a sink other than a Delta table may perform; all further actions compare it with the state."""
WITH_EPOCHS = (
    "source.lsn",
    "source.file",
    "source.gtid",
    "source.scn",
    "source.commit_lsn",
    "source.begin_lsn",
    "source.change_lsn",
)
"""Fields of the envelope that may stand first in the position of a log which begins again: counters of one server's log, not times."""


@dataclass(frozen=True)
class Plan:
    """A pipeline's parts, and its folders: `ROOT/NAME/{sink,changelog,state,quarantine,ledger,staged}`.

    Operator, decoding and rules follow from the spec alone: no table and no folder is needed for them.

    Args:
        root: Folder of its tables.
        spec: The pipeline, with the columns that it has taken in.
        evolved: These columns, which its file lacks, to their types.
    """

    FAULT_BUDGET_S: ClassVar[float] = 600.0
    """Seconds for which a continuous run waits out faults of brokers and stores, from the first on without a success between. Its caller may say another time."""

    root: str
    spec: Pipeline
    evolved: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def under(cls, root: str, spec: Pipeline) -> Plan:
        """Plan a pipeline under the root of all pipelines.

        Raises:
            ConfigError: the root is not a location, or the pipeline's folder would lead out of it.
        """
        Location(root).refuse_unusable("The root")
        location = Location(Location(root).resolved())
        location.refuse_links(spec.name)
        home = location / spec.name
        if spec.schema_evolution_mode != "evolve":
            return cls(home, spec)
        newest = StateTable.newest_step(home / "state", older=True)
        evolved = spec.lacking(newest[1].state.evolved if newest else {})
        return cls(home, spec.with_columns(evolved), evolved)

    def with_columns(self, types: Mapping[str, str]) -> Plan:
        """Return the plan of the pipeline once it has taken in further columns.

        Args:
            types: Column to its type, as DDL.
        """
        evolved = {**self.evolved, **types}
        return Plan(self.root, self.spec.with_columns(types), evolved)

    @cached_property
    def source(self) -> Source:
        """The source of the records; of a view its inputs' tables."""
        if self.spec.is_view:
            from ebbtide.runtime._guests import view_source

            return view_source()(cast("MaterializedView", self.spec), self.all_pipelines)
        spec = self.spec
        return spec.source.opened(spec.name, in_order=spec.applies_in_order, has_positions=spec.has_positions)

    @property
    def positioned_source(self) -> PositionedSource:
        """The source of a pipeline that reads it by position."""
        return cast("PositionedSource", self.source)

    @property
    def has_epochs(self) -> bool:
        """Return whether the source's log can begin again: changes have a position in one, and an event time of the source."""
        first = [field.path for field in self.spec.positions][:1]
        return bool(first) and first[0] in WITH_EPOCHS and self.spec.event_time is None

    def refuse_epochs(self) -> None:
        """Refuse a restart of the source's log if the order of changes does not support it.

        Raises:
            ConfigError: it does not.
        """
        if self.has_epochs:
            return
        spec = self.spec
        named = ", ".join(WITH_EPOCHS)
        raise ConfigError.of(
            f"The changes of '{spec.name}' are not ordered by a log that could begin again.",
            got=f"order by {', '.join(spec.sequence) or 'arrival'}, event_time {spec.event_time or 'of the source'}",
            allowed=f"an order that begins with {named}, and the source's own event time",
        )

    @property
    def spark_needed_for(self) -> list[str]:
        """The parts of the pipeline that only Spark can do, as words; empty: it can run in this process."""
        spec = self.spec
        parts = {
            "a materialized view, whose query is Spark's": spec.is_view,
            "a transform, which Spark evaluates": spec.has_transform,
            "rows of a stream of Spark": spec.reads_stream_of_spark,
        }
        return [part for part, is_there in parts.items() if is_there]

    def spark_needed(self) -> Iterator[Fault]:
        """Find whether the pipeline cannot run in this process."""
        needs = ", ".join(self.spark_needed_for)
        if needs:
            yield Fault.of("spec", "needs Spark", pipeline=self.spec.name, needs=needs)

    @property
    def all_pipelines(self) -> str:
        """Folder of all pipelines' tables."""
        return self.root.removesuffix(f"/{self.spec.name}")

    @cached_property
    def operator(self) -> Operator:
        """The operator, which decides a step."""
        make = of_kind(OPERATORS, self.spec, "pipeline")
        return make(self.spec)

    @property
    def may_expire(self) -> bool:
        """Return whether entries of the state expire, or timers fire."""
        return bool(self.operator.expiry.ttls) or self.operator.has_named_states

    @cached_property
    def decoding(self) -> Decoding:
        """The decoder of raw records into changes."""
        return self.spec.decoding

    @property
    def rules(self) -> StepRules:
        """The rules of the pipeline's clock and watermark."""
        spec = self.spec
        ignored = spec.downtime_over
        return StepRules(
            max_clock_jump_ms=to_ms(spec.largest_clock_jump),
            allowed_delay_ms=to_ms(spec.allowed_delay),
            ignore_downtime_over_ms=None if ignored is None else to_ms(ignored),
            leaves_orphans=spec.leaves_orphans,
        )

    @property
    def state(self) -> StateTable:
        """The state table."""
        from ebbtide.tables import StateTable

        return StateTable(self.at("state"), self.operator, self.spec.personal)

    @cached_property
    def sink(self) -> Sink:
        """The sink."""
        return sink_of(self.spec, self.at("sink"))

    @cached_property
    def outputs(self) -> Mapping[str, Sink]:
        """The further outputs, by name; see `ebbtide.runtime._outputs`."""
        columns, key = self.spec.sink_table.columns, self.spec.sink_key
        return {
            name: given.opened(self.at(f"outputs/{name}"), columns, key) for name, given in self.spec.outputs.items()
        }

    @property
    def delta_sink(self) -> SinkTable:
        """The sink, for what only a Delta table can do.

        Raises:
            ConfigError: it is none.
        """
        from ebbtide.tables import SinkTable

        if isinstance(self.sink, SinkTable):
            return self.sink
        raise ConfigError.of(
            f"The sink of '{self.spec.name}' is no Delta table, which this asks for.",
            got=f"sink.type: {self.spec.sink.type}",
            allowed="delta",
            next_step="Without one, 'ebbtide refresh' rebuilds the sink from the source, where the sink can be emptied.",
        )

    @property
    def sink_log(self) -> str | None:
        """Location of the sink's Delta log; None for a sink of another kind."""
        return self.at("sink") if isinstance(self.spec.sink, DeltaSink) else None

    def refuse_unable(self, action: Action, work: str) -> None:
        """Refuse an action that the sink cannot perform, before a step with it is committed.

        Args:
            work: What asks for it, in a word.

        Raises:
            ConfigError: it cannot.
        """
        if self.sink_log is not None or (isinstance(action, _WITHOUT_COMPARING) and self.sink.can(action)):
            return
        name = "unable" if self.sink.can(Clear()) else "unable to begin again"
        raise self._sink_fault(name, action=action.do, work=work)

    def refuse_unable_outputs(self, *actions: Action) -> None:
        """Refuse actions that a further output cannot perform.

        Raises:
            ConfigError: one cannot.
        """
        for name in self.outputs:
            for action in actions:
                self.refuse_unable_output(name, action)

    def refuse_unable_output(self, name: str, action: Action) -> None:
        """Refuse an action that a further output cannot perform; errors as `refuse_unable_outputs`."""
        if not self.outputs[name].can(action):
            type_ = self.spec.outputs[name].type
            fault = Fault.of("output", "unable", output=name, pipeline=self.spec.name, action=action.do, type=type_)
            raise fault.error

    def refuse_unable_step(self, facts: StepFacts) -> None:
        """Refuse a step that the sink cannot take, before it is committed.

        Args:
            facts: Of the step.

        Raises:
            ConfigError: its action is one that the sink cannot perform, or a TRUNCATE has raised the floor.
        """
        if self.sink_log is not None:
            return
        action = facts.decision.tables.get("sink")
        if action is not None:
            self.refuse_unable(action, facts.cause.what)
        if facts.raised_floor is not None:
            raise self._sink_fault("unable to truncate", step=facts.step)

    def refuse_unread_sink(self) -> None:
        """Refuse a pipeline that reads its own sink if that is not a Delta table.

        Raises:
            ConfigError: it does.
        """
        if self.sink_log is not None:
            return
        needs = []
        if self.spec.is_view:
            needs.append("a materialized view")
        if self.spec.expires_live:
            needs.append("ttl.expire_live: true")
        if needs:
            raise self._sink_fault("not read", needs=" and ".join(needs))

    def _sink_fault(self, name: str, **values: object) -> EbbtideError:
        return Fault.of("sink", name, pipeline=self.spec.name, type=self.spec.sink.type, **values).error

    def known(self, name: str) -> OwnTable | Sink:
        """Return the reader of an output's facts: for a Delta table its log, without Spark.

        Args:
            name: `sink`, `changelog`, `quarantine`, or that of a further output.
        """
        if name in Decision.OWN_OUTPUTS and (name != "sink" or self.sink_log is not None):
            return OwnTable(self.at(name), name)
        return cast("Sink", self.beside(name))

    @property
    def changelog(self) -> ChangelogTable:
        """The changelog table; only where the pipeline emits every record."""
        from ebbtide.tables import ChangelogTable

        return ChangelogTable(self.at("changelog"), self.operator.columns)

    @property
    def quarantine(self) -> QuarantineTable:
        """The table of bad records."""
        from ebbtide.tables import QuarantineTable

        return QuarantineTable(self.at("quarantine"), self.spec.has_positions)

    def beside(self, name: str) -> Table:
        """Return an output by its name: `sink`, `changelog`, `quarantine`, or that of a further output."""
        if name in self.outputs:
            return self.outputs[name]
        if name == "sink":
            return self.sink
        return self.changelog if name == "changelog" else self.quarantine

    def location_of(self, name: str) -> str:
        """Return the location of an output; a sink of another package says where it is."""
        return self.beside(name).path

    def create_outputs(self, executor: Executor) -> None:
        """Make the outputs that do not exist: not the quarantine, which the first bad record makes."""
        self.sink.create(executor)
        if self.spec.emits_every:
            self.changelog.create()
        for output in self.outputs.values():
            output.create(executor)

    def stager(
        self,
        folder: str,
        refused: Refused | None,
        head: Head | None = None,
        *,
        n_slices: int = 1,
        in_memory: bool = False,
    ) -> Stager:
        """Return the writer of decoded changes to a folder: partitioned by the state's key, unless a transform computes the key.

        Args:
            folder: The folder.
            refused: Leaves out the records of erased keys (`ErasureKey.refused`); None: no key was erased.
            head: The last step, whose facts say which offsets were read; None: no record is read.
            n_slices: Number of slices: see `Executor.slices`.
            in_memory: See `Stager`.
        """
        columns, key = self.operator.changes, tuple(self.operator.key)
        if self.spec.selects_changes:
            columns, key = changelog_schema(self.spec.table.columns), tuple(self.spec.key)
        most_bad = self.spec.quarantine.max_rows_per_step
        new = None
        if self.quarantine.knows_offsets:
            read_before = None if head is None else self.offsets_read(head)
            new = partial(self.quarantine.new, read_before=read_before)
        limit = BadLimit(self.spec.name, most_bad, self.at("staged"), new)
        return Stager(folder, columns, key, refused, n_slices, limit, in_memory)

    @property
    def tracks_offsets(self) -> bool:
        """Return whether offsets identify redelivered records; with the source's sequence the operator does."""
        return self.spec.applies_in_order and self.spec.may_repeat_offsets

    def offsets_read(self, head: Head) -> OffsetRanges | None:
        """Return the offsets that earlier steps read; None if the operator recognizes redelivered records.

        Args:
            head: The last step.
        """
        if not self.tracks_offsets:
            return None
        frontier = head.facts.frontier
        return OffsetRanges(frontier.offsets if frontier else {})

    def follows_on(self, read: Span | None, beginning: Beginning | None) -> Span | None:
        """Return the span that the source's next batch follows: the last one, else the start of the first run; None before that.

        A spec that has another start since is taken at its word: nothing has been read.

        Args:
            read: The span of the last step.
            beginning: Where the source is read first, as the ledger's newest turn has it.
        """
        if read is not None:
            return read
        if beginning is None:
            return None
        is_as_asked = beginning.asked in (None, self.start_asked)
        return Span.from_json(beginning.position) if is_as_asked else None

    @property
    def start_asked(self) -> Any:
        """The beginning of the first batch by the spec, as JSON has it; None of a source that always begins at its beginning."""
        return self.spec.source.model_dump(mode="json").get("start")

    @property
    def rehearsal(self) -> str:
        """Root of the tables of a refresh's first step, while that is tried."""
        return self.at("rehearsal")

    @property
    def backfills(self) -> str:
        """Folder of the pipeline's backfill: a separate root, with one pipeline of the same name."""
        return self.at("backfill")

    @property
    def backfill(self) -> Plan:
        """The backfill, with the same spec."""
        return Plan.under(self.backfills, self.spec.without_outputs())

    def delete_backfill(self) -> None:
        """Delete the backfill; no power cut brings it back."""
        # The ledger is deleted last: it identifies a partly deleted backfill, and the next run deletes the rest. Deletions reach the
        # disk in any order: each must be there before the next one begins.
        backfills = Location(self.backfills)
        for file in backfills.list_files():
            (backfills / file).delete()
        for name in ("state", *Decision.OWN_OUTPUTS, "staged", "plan.json"):
            Location(self.backfill.at(name)).delete()
        if Location(self.root).is_local:
            backfills.sync_names()
            Location(self.backfill.root).sync_names()
        backfills.delete()
        if Location(self.root).is_local:
            Location(self.root).sync_names()

    @property
    def ledger(self) -> Ledger:
        """Its ledger: the lease, pauses, and requests for the lease."""
        return Ledger(self.at("ledger"), self.spec.name)

    @property
    def erasures(self) -> ErasureLedger:
        """Its ledger of erasures."""
        return ErasureLedger(self.root)

    def look_for_foreign_writes(self, turn: LedgerFacts | None) -> ForeignWrites:
        """Look for commits of other clients to sink and state that are neither repaired nor acknowledged.

        Args:
            turn: The newest one of the ledger, or an earlier one: the poll continues from its notes. None: there is none.
        """
        before = turn.looked if turn else {}
        return ForeignWrites.found(self.spec.name, self.at("state"), self.sink_log, before)

    def clock_after(self, last: Frontier | None, wall_ms: int) -> Reading:
        """Read the clock of a step that a run beginning now would make after the last one; holds no lease.

        Args:
            last: Where the pipeline stands; None before the first step.
            wall_ms: The wall clock, epoch ms.
        """
        turn = self.ledger.turn
        paused_ms = turn.paused_until(wall_ms) if turn else 0
        return self.rules.clock_after(last, wall_ms, started_ms=wall_ms, paused_ms=paused_ms)

    @property
    def batch_sizes(self) -> str:
        """Location where a source notes how large the next batch may be."""
        return self.at("plan.json.offsets")

    def views_beside(self) -> Mapping[str, frozenset[str] | None]:
        """Return the materialized views under the root, each with the pipelines that it reads; None: its state cannot be read, and may be a view's."""
        found: dict[str, frozenset[str] | None] = {}
        root = Location(self.all_pipelines)
        for name in root.subfolders():
            try:
                newest = StateTable.newest_step(root / name / "state", older=True)
            except EbbtideError:
                found[name] = None
                continue
            view = None if newest is None else newest[1].frontier.view
            if view is not None:
                found[name] = frozenset(view.inputs)
        return found

    def copies_generation(self, last: StepFacts | NoStep) -> str:
        """Return the generation of the local copies of data files: another one after each erasure; empty before the first.

        Args:
            last: Facts of the last step.
        """
        if isinstance(last, NoStep):
            return ""
        if self.spec.is_view:  # an erasure in its inputs has it computed from scratch, under another incarnation
            return last.incarnation
        return last.state.erased or ""

    def drop_older_copies(self, last: StepFacts | NoStep) -> None:
        """Delete the copies in this process's folders that are of an earlier generation, as an erasure on another host leaves them.

        Args:
            last: Facts of the last step.
        """
        generation = self.copies_generation(last)
        if not generation:
            return
        for copies in LocalCopies.reached():
            for table in self.own_tables:
                copies.drop_older(table, generation)

    @property
    def own_tables(self) -> list[str]:
        """The locations of all its Delta tables."""
        return [self.at(name) for name in ("state", *Decision.OWN_OUTPUTS)]

    def at(self, name: str) -> str:
        """Return the location of one of its tables or folders."""
        return Location(self.root) / name
