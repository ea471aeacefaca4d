"""The state table of a pipeline.

| column | meaning |
|---|---|
| `_entry` | `row`: an entry of the operator; `acknowledged`: a key whose sink row may differ, accepted by a step; `metrics`: counts of a step of an earlier release, no longer read; `file`: a source file read, `{"name", "size"}` in `_note`, the bare name in older steps; `emitted`: an emission, its kind in `_note`, its order in `_changed_by` and `_position` |
| `_note` | see `_entry` |
| the operator's columns | see `ebbtide.operators._sequence.rules`, `ebbtide.operators._arrival.rules` and `ebbtide.operators._stateful.rows`; set in `row`, the user's also in `emitted` |

Each step appends once, in one commit with its facts in the metadata; the rows of that commit with a `_change` are its change set.
The version of an entry with the greatest `_step` counts.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.delta import Action, Commit, DataFile, Definition, Doomed, FileWithout, Log, Snapshot, positions_in
from ebbtide.entries import Step
from ebbtide.errors import DeltaLogError, FilesMovedError, LeaseLostError
from ebbtide.faults import Fault
from ebbtide.ledger import StepFacts, TableFacts, writer_of
from ebbtide.operators import FormerKeys, StatefulOperator
from ebbtide.tables._bounded import statistics_property
from ebbtide.tables._state.change_set import StepChanges
from ebbtide.tables._state.due import due_keys, may_hold_expired, untransformed_keys
from ebbtide.tables._state.foreign_changes import foreign_change
from ebbtide.tables._state.layout import (
    DOMAIN,
    OLDEST_FORMAT,
    EntryKind,
    files_and_steps,
    is_base,
    n_entries,
    newest_step,
)
from ebbtide.tables._state.lookup import Stored
from ebbtide.tables._state.notes import StateNotes
from ebbtide.tables._state.rewriting import files_to_fold
from ebbtide.tables._state.writing import StateWriter
from ebbtide.tables._step_commits import erasing
from ebbtide.tables._table import ChangeSet

if TYPE_CHECKING:
    from ebbtide.executors import Executor

FEATURE = "domainMetadata"


@dataclass(frozen=True)
class StateTable(StateNotes):
    """One pipeline's state table. A step begins with its commit here, which names the actions of the output tables.

    Args:
        path: Its location.
        operator: The reconciler whose entries it holds.
        personal: Columns whose values the log does not show.
    """

    def create(self) -> None:
        """Create the table if it does not exist."""
        writer_of(self.path).create_if_absent(self.path, Definition(self.schema, self._properties), name="state")

    @property
    def _properties(self) -> dict[str, str]:
        # Delta refuses a list column here. Ebbtide counts its nulls all the same: a lookup of links needs them.
        bounded = [self.schema.field(name) for name in self.bounded if name != FormerKeys.COLUMN]
        return statistics_property(bounded)

    def snapshot(self, version: int | None = None, *, seen: Log | None = None) -> Snapshot:
        """Return a version of it, the newest by default.

        Args:
            version: The version.
            seen: Its log as a look found it. Default: it is listed now.

        Raises:
            DeltaLogError: the table or the version does not exist.
        """
        snapshot = Snapshot.read(self.path, version, seen=seen)
        if snapshot is None:
            raise DeltaLogError.of(f"The state table '{self.path}' does not exist.")
        if version not in (None, snapshot.version):
            raise DeltaLogError.of(f"Version {version} of the state table '{self.path}' does not exist.")
        return snapshot

    def stored(self, snapshot: Snapshot) -> Stored:
        """Return the stored entries as of a version."""
        return self.stored_in(snapshot.files.values())

    def stored_in(self, files: Iterable[DataFile]) -> Stored:
        """Return the stored entries in some data files."""
        return Stored(
            self.path,
            tuple(files),
            self.operator.schema,
            where=("_entry", EntryKind.ROW),
        )

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that was committed to it, 0 before the first; None without a table."""
        log = Log(self.path).look()
        found = Snapshot.read(self.path, any_features=True, seen=log)
        if found is None:
            return None
        newest = self.last(older=True, seen=log)
        if newest is None:
            return TableFacts(id=found.id, step=0)
        _, facts = newest
        return TableFacts(id=found.id, step=facts.step)

    def writer(self) -> StateWriter:
        """Return what writes its data files."""
        return StateWriter(self.stored_in([]), self.schema, self.bounded)

    def changes(self, version: int) -> ChangeSet:
        """Return the change set of the step that made a version."""
        return StepChanges(self.path, version, self.operator)

    def files_to_fold(self, snapshot: Snapshot) -> list[DataFile]:
        """Return the files of a version to fold now: all of them, or small ones; none if there is nothing to gain."""
        return files_to_fold(self.stored(snapshot))

    def due_keys(self, snapshot: Snapshot, step: Step, *, only_awaited: bool = False) -> pa.Table:
        """Return the keys that a tick has to examine, once each; see `due_keys`."""
        return due_keys(self.stored(snapshot), self.operator, step, only_awaited=only_awaited)

    def untransformed_keys(self, snapshot: Snapshot, since: int) -> pa.Table:
        """Return the keys with entries that a snapshot transformer has yet to be handed, once each; see `untransformed_keys`."""
        if not isinstance(self.operator, StatefulOperator) or not self.operator.transformed:
            return self.operator.schema.empty_table().select(self.operator.key)
        return untransformed_keys(self.stored(snapshot), self.operator, since)

    def may_be_due(self, files: Iterable[DataFile], step: Step) -> bool:
        """Return whether a tick might find something to do in some data files, by their statistics. Timers have none."""
        return self.operator.has_named_states or any(self.may_hold_expired(file, step) for file in files)

    def may_hold_expired(self, file: DataFile, step: Step) -> bool:
        """Return whether a data file may hold entries that have expired by a step, by its statistics."""
        has_own_ttls = "_ttl_ms" in self.operator.schema.names and not file.is_all_null("_ttl_ms")
        return has_own_ttls or may_hold_expired(file, self.operator.expiry, step)

    def may_hold_deletable(self, file: DataFile, step: Step) -> bool:
        """Return whether a data file may hold entries that have expired by a step, or were dropped."""
        # A fold of the whole state leaves dropped entries out, so entries in its files can only have expired.
        return not is_base(file) or self.may_hold_expired(file, step)

    def hidden_entries(self, file: DataFile, dead: BitMap64, names: Collection[str] | None) -> pa.Table:
        """Read the deleted rows of a data file that were entries.

        Args:
            file: The file.
            dead: Positions of its deleted rows.
            names: Columns of an entry to read; None: all.
        """
        visible = DataFile({**file.add, "deletionVector": None})
        rows, is_entry = self.stored_in([visible]).scan(visible, names)
        positions = positions_in(dead)
        hidden = rows.take(pa.array(positions))
        return hidden.filter(pa.array(is_entry[positions]))

    def erasing(self, executor: Executor, snapshot: Snapshot, doomed: Doomed) -> list[Action]:
        """Rewrite the files of a version that hold rows of erased keys; return the actions that replace them.

        Args:
            executor: Runs the tasks that rewrite files.
            snapshot: The version.
            doomed: Selects the rows.
        """
        return erasing(executor, FileWithout(self.path, self.schema, self.bounded, doomed), snapshot)

    def perform(self, actions: Sequence[Action], facts: StepFacts, base: Snapshot) -> Snapshot:
        """Commit a step: this commit is the decision, and precedes those of the output tables.

        Args:
            actions: They add files, and may remove older ones.
            facts: Facts of the step, stored in the commit.
            base: The version that the step read.

        Returns:
            The version that it made.

        Raises:
            LeaseLostError: another run committed a step meanwhile.
            FilesMovedError: another client has removed a file that the step replaces.
            TableMismatchError: another client has changed entries.
        """

        def actions_on(found: Snapshot) -> Sequence[Action]:
            # Called for each version that is tried. Between `base` and it a commit of another client may stand if it changes no
            # entry, as OPTIMIZE; a step there means that another run has the lease.
            newer = range(base.version + 1, found.version + 1)
            for version in newer:
                if Log(self.path).commit(version).facts():
                    raise self._lost(facts)
            self.refuse_changed(found, base.version)
            _refuse_moved(found, actions)
            completed = self._with_new_columns(found, actions)
            if self.personal:
                completed = Definition(self.schema, self._properties).completing(found, completed)
            return _with_kept_facts(found, completed, facts)

        # The transaction mark (stage, step) is the fence: if two runs make the same step, one gets the version, and the other one
        # finds the mark.
        transaction = facts.committed("state")
        made = writer_of(self.path).commit_once(base, actions_on, transaction)
        if made is None:
            raise self._lost(facts)
        return made

    def _with_new_columns(self, found: Snapshot, actions: Sequence[Action]) -> Sequence[Action]:
        """Add the columns to the log that the state of an older release lacks; in its files they are null."""
        stored = found.column_types.keys()
        wanted = set(self.schema.names)
        is_defined = any("metaData" in action for action in actions)
        if is_defined or not stored < wanted:
            return actions
        return [*actions, *Definition(self.schema).altering(found)]

    def foreign_change(self, version: int, found: Snapshot, *, counts_rows: bool = False) -> tuple[str, list[int]]:
        """Return the newest change by another client since a step, and the versions that have the rows of that step.

        Args:
            version: Version of the step.
            found: The newest version.
            counts_rows: A commit that changes the number of rows, but says that no row changes, is a change too.

        Returns:
            Version and operation of the change, empty without one; the versions that have the rows of the step, in order.
        """
        return foreign_change(version, found, counts_rows=counts_rows)

    def refuse_changed(self, found: Snapshot, version: int) -> None:
        """Refuse a version whose rows another client has changed; arguments as `changed_since`.

        Raises:
            TableMismatchError: another client has changed rows.
        """
        fault = self.changed_since(version, found)
        if fault is not None:
            raise fault.error

    def changed_since(self, version: int, found: Snapshot) -> Fault | None:
        """Return the fault of a version whose rows another client has changed since an earlier one; None if it has not, or that was undone.

        Args:
            version: The earlier version, not before the last step.
            found: The newest version.
        """
        changed_by, versions = self.foreign_change(version, found)
        if not changed_by:
            return None
        newest = newest_step(self.path)
        if newest is None:
            name, step = "changed, no step", 0
        else:
            _, facts = newest
            name = "changed, shows no rows" if self.operator.has_named_states else "changed"
            step = facts.step
        return Fault.of("state", name, location=self.path, change=changed_by, version=versions[-1], step=step)

    @staticmethod
    def entry_rows(files: Iterable[DataFile]) -> int:
        """Count the rows of entries in data files by their statistics, without other rows."""
        return sum(map(n_entries, files))

    def emptied(self, snapshot: Snapshot) -> list[Action]:
        """Return the actions that leave a version without rows, with this spec's columns and properties."""
        return Definition(self.schema, self._properties).emptying(snapshot)

    def redefined(self, snapshot: Snapshot) -> list[Action]:
        """Return the actions that give a version this spec's columns."""
        return Definition(self.schema, self._properties).redefining(snapshot)

    @staticmethod
    def newest_step(table: str, *, older: bool = False) -> tuple[int, StepFacts] | None:
        """Return (version, facts) of the newest step of a state table; None before the first.

        Args:
            table: Location of the state table.
            older: Read also the facts of a state whose rows this release does not read: for an operation that starts over.

        Raises:
            StoredFormatError: a newer release wrote it, or an older one whose rows this release does not read.
            DamagedFileError: see `StoredDocument.read`.
        """
        return newest_step(table, older=older)

    def last(self, *, older: bool = False, seen: Log | None = None) -> tuple[int, StepFacts] | None:
        """Return the newest step of this table; see `newest_step` and `snapshot`."""
        return newest_step(self.path, older=older, seen=seen)

    def steps(self) -> Iterator[tuple[int, StepFacts]]:
        """Yield (version, facts) of the steps, the newest first, as far back as this release reads their rows."""
        for version, stored in Log(self.path).own_commits():
            if stored[Commit.FORMAT] < OLDEST_FORMAT:
                return
            yield version, StepFacts.of_commit(stored, self.path)

    def files_read_until(self, snapshot: Snapshot, before_ms: int) -> dict[str, tuple[int | None, int]]:
        """Return the source files that steps have read which were committed before a time, epoch ms: bytes and step of each.

        Args:
            snapshot: The newest version.
            before_ms: The time, of the host's clock.
        """
        log = Log(self.path)
        versions = log.versions()
        n_before = bisect_right(versions, before_ms, key=lambda version: log.commit(version).info().get("timestamp", 0))
        for version in reversed(versions[:n_before]):
            stored = log.commit(version).facts()
            if stored is not None:
                last = StepFacts.of_commit(stored, self.path).step
                noted = files_and_steps(self.path, snapshot.files.values())
                return {name: (size, step) for name, (size, step) in noted.items() if step <= last}
        return {}

    def _lost(self, facts: StepFacts) -> LeaseLostError:
        return LeaseLostError.of(
            f"Step {facts.step} of '{facts.pipeline}' was committed by another run.",
            next_step="Nothing was written twice; start the run again.",
        )


def _with_kept_facts(found: Snapshot, actions: Sequence[Action], facts: StepFacts) -> list[Action]:
    """Return a step's actions, and one that keeps its facts in a metadata domain, which outlives the log's cleanup.

    Args:
        found: The version that the step follows.
        actions: Log actions of the step.
    """
    kept = {
        "version": found.version + 1,
        "facts": facts.model_dump(mode="json", by_alias=True),
    }
    return found.keeping(DOMAIN, json.dumps(kept, separators=(",", ":")), actions)


def _refuse_moved(found: Snapshot, actions: Sequence[Action]) -> None:
    """Refuse to replace files that another client has removed: their rows would exist twice."""
    removes = [action["remove"] for action in actions if "remove" in action]
    for removed in removes:
        if DataFile(removed).id not in found.files:
            raise FilesMovedError.of(
                f"A data file of '{found.table}' was removed by another client while it was being replaced.",
                got=str(removed["path"]),
                next_step="Nothing was changed; run it again.",
            )
