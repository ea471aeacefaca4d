"""Finds what is wrong with the parts of a pipeline before a step is made: no part is made again in silence.

A step's facts hold the id of each output table, and the last step that wrote it. So a table that was deleted, replaced by
another, or put back to an older version is found, and so is a state that was. `ebbtide.faults` has the words of each fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from ebbtide.amounts import amount, named
from ebbtide.delta import DataFile, Log, Snapshot
from ebbtide.errors import DamagedFileError
from ebbtide.faults import Fault
from ebbtide.ledger import Head, LedgerFacts, NoStep, StepFacts, TableFacts
from ebbtide.model import Decision
from ebbtide.runtime._own_tables import OwnTables
from ebbtide.runtime._plan import Plan
from ebbtide.storage import Location
from ebbtide.users import user_name

MOST_NAMED = 3
"""Missing files that the error names."""
FILES = ("files missing", "files cut")
FILES_NOT_IN_STATE = ("files missing, not in the state", "files cut, not in the state")
"""Faults of the files of a table, and of a sink whose rows the state does not have."""


class Diagnosis:
    """The faults of a pipeline; a user mends the first one first.

    Args:
        plan: The pipeline.
        tables: Its output tables.
        head: Its last step.
        newest: Returns the newest version of the state, None without one; called where a part needs it.
    """

    Part: TypeAlias = Literal[
        "ledger",
        "place of the sink",
        "state",
        "rows of the state",
        "tables",
        "files",
        "files of the quarantine",
        "spec",
        "place of the source",
    ]
    """A part that can be asked about. "files": the data files of state, sink and quarantine, each folder listed once; no file is opened."""
    BELONGING: ClassVar[tuple[Part, ...]] = ("state", "rows of the state", "tables")
    """Parts that show whether the tables belong together."""
    AT_REST: ClassVar[tuple[Part, ...]] = ("ledger", *BELONGING)
    """The same for a look without the lease."""

    def __init__(self, plan: Plan, tables: OwnTables, head: Head, newest: Callable[[], Snapshot | None]) -> None:
        self._plan = plan
        self._tables = tables
        self._head = head
        self._newest = newest
        self._of: Mapping[Diagnosis.Part, Callable[[], Iterator[Fault]]] = {
            "ledger": self._of_ledger,
            "place of the sink": self._of_place,
            "state": self._of_state,
            "rows of the state": self._of_rows,
            "tables": self._of_tables,
            "files": self._of_files,
            "files of the quarantine": self._of_bad_files,
            "spec": self._of_spec,
            "place of the source": self._of_source,
        }

    @classmethod
    def before_first_step(cls, plan: Plan) -> Diagnosis:
        """Diagnose a pipeline that has no state yet."""
        return cls(plan, OwnTables(plan), Head(-1), lambda: None)

    def faults(self, *parts: Part) -> Iterator[Fault]:
        """Find faults, one after the other as they are asked for.

        Args:
            parts: Parts to look at, in this order.
        """
        for part in parts:
            yield from self._of[part]()

    def refuse(self, *parts: Part) -> None:
        """Raise the error of the first fault; arguments as `faults`.

        Raises:
            TableMismatchError: tables do not belong together, or another client has changed the state.
            DamagedFileError: data files are missing.
            SpecChangedError: the spec does not fit the stored state.
        """
        Fault.refuse(self.faults(*parts))

    def at_rest(self, *parts: Part) -> Fault | None:
        """Find the first fault without the lease: what a run does meanwhile is no fault.

        Args:
            parts: Parts to look at.
        """
        try:
            found = next(self.faults(*parts), None)
        except DamagedFileError as error:
            found = Fault("tables", "unreadable", error)
        if found is None:
            return None
        newest = Head.at_rest(self._plan.state.last())
        return found if newest.facts == self._head.facts else None

    def refuse_at_rest(self, *parts: Part) -> None:
        """Raise the error of the first fault that `at_rest` finds; errors as `refuse`."""
        fault = self.at_rest(*parts)
        if fault is not None:
            raise fault.error

    def of_copy(self, name: str, step: int, found: str | None, allowed: str | None) -> Iterator[Fault]:
        """Find whether a table was written by another step of a number than the state's.

        Two copies of one backup have steps with the same numbers but other rows.

        Args:
            name: The table's.
            step: The number.
            found: `uid` of the table's step; None if unknown.
            allowed: `uid` of that step if it is known; None: the state's facts are asked.
        """
        allowed = allowed or self._uid_of_step(name, step)
        if found is None or allowed is None or found == allowed:
            return
        location = self._plan.location_of(name)
        yield Fault.of(name, "of another copy", location=location, pipeline=self._plan.spec.name, step=step)

    @cached_property
    def _found(self) -> Mapping[str, TableFacts]:
        """The facts of the output tables, read once."""
        return self._tables.facts()

    def _of_ledger(self) -> Iterator[Fault]:
        yield from of_ledger(self._plan, self._plan.ledger.turn)

    def _of_state(self) -> Iterator[Fault]:
        """Find whether the state is the one that wrote the other tables last: else nothing can be repaired from it."""
        step = self._head.facts.step
        if not step:
            yield from self._of_lost_state()
            return
        for name, table in self._found.items():
            if table.step > step:
                can_go_back = next(self._of_tables(), None) is None
                yield Fault.of(
                    "state",
                    "older, tables whole" if can_go_back else "older",
                    location=self._plan.state.path,
                    other=self._plan.location_of(name),
                    step=step,
                    other_step=table.step,
                )
        yield from self._of_copies()

    def _of_lost_state(self) -> Iterator[Fault]:
        """Find whether other tables have steps that the state lacks, or rows of another writer are in the sink's place."""
        for name, table in self._found.items():
            if table.step:
                location = self._plan.state.path
                other = self._plan.location_of(name)
                yield Fault.of("state", "lost", location=location, other=other, other_step=table.step)
        yield from self._of_place()

    def _of_place(self) -> Iterator[Fault]:
        """Find whether a table with rows is in the sink's place that no pipeline has written."""
        sink = self._tables.sink()
        if sink is None or not sink.files or self._tables.last_step("sink"):
            return
        files = amount(len(sink.files), "data file")
        yield Fault.of("sink", "foreign", location=self._plan.at("sink"), pipeline=self._plan.spec.name, files=files)

    def _of_rows(self) -> Iterator[Fault]:
        """Find whether another client has changed the state's rows since the last step, and the change was not taken back."""
        state = self._newest()
        if state is None or not self._head.facts.step:
            return
        fault = self._plan.state.changed_since(self._head.version, state)
        if fault is not None:
            yield fault

    def _of_tables(self) -> Iterator[Fault]:
        """Find whether an output table is not the pipeline's, or lacks a step that the state knows it had."""
        head = self._head.facts
        if isinstance(head, NoStep):
            yield from self._of_lost_state()
            return
        if head.state.unadopted:
            yield Fault.of("sink", "half adopted", location=self._plan.at("sink"), rows=head.state.unadopted)
        found = self._found
        for name, known in head.state.tables.items():
            if name not in Decision.OWN_OUTPUTS and name not in self._plan.outputs:
                continue  # a further output that the spec no longer has
            yield from self._of_table(name, known, found.get(name))
        yield from self._of_copies()
        if "sink" not in found:
            yield Fault.of("sink", "gone", location=self._plan.at("sink"))
        quarantine = found.get("quarantine")
        if quarantine is None or quarantine.step < head.step:
            yield from self._of_bad_records(head)

    def _of_table(self, name: str, known: TableFacts, found: TableFacts | None) -> Iterator[Fault]:
        """Find whether a table is the one that the state knows, with all its steps."""
        location = self._plan.location_of(name)
        if found is None:
            yield Fault.of(name, "gone", location=location)
        elif found.id != known.id:
            yield Fault.of(name, "replaced", location=location, id=found.id, known_id=known.id)
        elif found.step < known.step:
            yield Fault.of(name, "put back", location=location, step=found.step, known_step=known.step)

    def _of_bad_records(self, facts: StepFacts) -> Iterator[Fault]:
        """Find whether the files are there that the quarantine has yet to get: else its log would name missing files."""
        quarantine = self._plan.at("quarantine")
        adds = [action["add"] for action in facts.decision.bad_rows if "add" in action]
        for add in adds:
            path = add["path"]
            if not Location(Log(quarantine).location_of(path)).exists():
                yield Fault.of("quarantine", "records lost", location=quarantine, step=facts.step, file=path)

    def _of_copies(self) -> Iterator[Fault]:
        """Find whether each table's last step is the state's step of that number."""
        for name, table in self._found.items():
            yield from self.of_copy(name, table.step, table.uid, None)

    def _uid_of_step(self, name: str, step: int) -> str | None:
        """Return the `uid` of a step of the state that wrote a table; None if unknown."""
        last = self._head.facts
        if isinstance(last, NoStep) or step > last.step:
            return None
        if step == last.step:
            return last.uid
        known = last.state.tables.get(name)
        if known is not None and known.step == step:
            return known.uid
        # A table that was put back: the state's log may still have the step.
        for _, facts in self._plan.state.steps():
            if facts.step == step:
                return facts.uid
            if facts.step < step:
                return None
        return None

    def _of_files(self) -> Iterator[Fault]:
        """Find missing or cut data files, and missing deletion vectors, of state, sink and quarantine: a run would not miss those that it does not read."""
        state = self._newest()
        if state is not None:
            yield from _of_files_of("state", state, FILES)
        sink = self._tables.sink()
        if sink is not None:
            has_rows = not self._plan.operator.has_named_states
            yield from _of_files_of("sink", sink, FILES if has_rows else FILES_NOT_IN_STATE)
        yield from self._of_bad_files()

    def _of_bad_files(self) -> Iterator[Fault]:
        """Find missing or cut data files of the quarantine: what they hold is nowhere else."""
        quarantine = self._tables.quarantine()
        if quarantine is not None:
            yield from _of_files_of("quarantine", quarantine, FILES)

    def _of_spec(self) -> Iterator[Fault]:
        """Find whether the spec's source, format, key, order, columns or ttl are not those of the last step."""
        step = self._head.facts
        if isinstance(step, NoStep):
            return
        plan = self._plan
        given = plan.spec.identity
        stored = step.state.spec
        changed = plan.spec.misfits(stored)
        if not changed:
            return
        may_migrate = set(plan.spec.migrates)
        if "columns" in changed:
            may_migrate.add("format")  # settings of single columns may change with them
        if set(changed) <= may_migrate:
            name = "changed, can migrate"
        elif "source" in changed or "format" in changed:
            name = "changed, another source"
        else:
            name = "changed"
        yield Fault.of(
            "spec",
            name,
            pipeline=plan.spec.name,
            given="; ".join(f"{each}: {given.get(each)}" for each in changed),
            stored="; ".join(f"{each}: {stored.get(each)}" for each in changed),
        )

    def _of_source(self) -> Iterator[Fault]:
        """Find whether the source is somewhere else than at the last step."""
        stored = self._head.facts.source.path
        given = self._plan.spec.source_path
        if stored is not None and stored != given:
            yield Fault.of("source", "moved", pipeline=self._plan.spec.name, path=given, stored=stored)


def of_rights(plan: Plan) -> Iterator[Fault]:
    """Find the first folder of a pipeline that this user may not write to; an object store is asked once for all.

    Args:
        plan: The pipeline.
    """
    home = Location(plan.root)
    if home.is_in_object_store:
        if not home.may_write:
            yield Fault.of("root", "refuses puts", location=home, pipeline=plan.spec.name)
        return
    tables = [home / name for name in home.subfolders()] if home.is_local else []
    logs = [table / Log.FOLDER for table in tables]
    for folder in (home, *tables, *logs):
        if not folder.may_write:
            yield Fault.of("root", "not writable", user=user_name(), location=folder, pipeline=plan.spec.name)
            return


def of_ledger(plan: Plan, turn: LedgerFacts | None) -> Iterator[Fault]:
    """Find whether a ledger does not know of the state's last step: the pipeline may have been paused.

    Ask before the lease is taken, which would make a new ledger.

    Args:
        turn: The newest one of its ledger; None if there is none.
    """
    newest = plan.state.last(older=True)
    if newest is None:
        return
    _, last = newest
    epoch = turn.epoch if turn else 0
    if last.epoch > epoch:
        yield Fault.of(
            "ledger",
            "lost",
            location=plan.at("ledger"),
            pipeline=plan.spec.name,
            epoch=epoch,
            last_epoch=last.epoch,
            step=last.step,
        )


def _of_files_of(part: str, snapshot: Snapshot, names: tuple[str, str]) -> Iterator[Fault]:
    """Find missing files of a table, and such that have not the bytes that its log says.

    Args:
        part: `state`, `sink` or `quarantine`.
        snapshot: The table's newest version.
        names: Names of the faults, of missing files and of cut ones.
    """
    missing, cut = _missing_and_cut(snapshot)
    if missing or cut:  # without the lease: another run may have replaced this version, and its files may be deleted
        snapshot = snapshot.advanced()
        missing, cut = _missing_and_cut(snapshot)
    for name, files in zip(names, (missing, cut), strict=True):
        if files:
            yield Fault.of(
                part,
                name,
                files=amount(len(files), "file"),
                table=part,
                location=snapshot.table,
                are="is" if len(files) == 1 else "are",
                missing=named(files, MOST_NAMED),
                version=snapshot.version,
            )


def _missing_and_cut(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """Return the locations of files that a version names and that are not there, and of those of another size, sorted."""
    sizes_in: Mapping[str, dict[str, int | None]] = defaultdict(dict)
    for location, size in _named_files(snapshot.table, snapshot.files.values()):
        folder, _, name = location.rpartition("/")
        sizes_in[folder][name] = size
    missing, cut = [], []
    for folder, sizes in sizes_in.items():
        found = Location(folder).file_sizes(sizes)
        for name, size in sizes.items():
            if name not in found:
                missing.append(f"{folder}/{name}")
            elif size is not None and found[name] != size:
                cut.append(f"{folder}/{name}")
    return sorted(missing), sorted(cut)


def _named_files(table: str, files: Iterable[DataFile]) -> Iterator[tuple[str, int | None]]:
    """Yield the location of each file and its bytes, where the log has them."""
    for file in files:
        yield file.location(table), file.size
        vector = file.vector_location(table)
        if vector is not None:
            yield vector, None
