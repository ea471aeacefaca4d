"""The tables of a pipeline, as stored: their ids, and the last step that wrote each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide.delta import Commit, Log, Snapshot
from ebbtide.faults import Fault
from ebbtide.ledger._facts import StepFacts, TableFacts


class OwnTable:
    """One of these tables. Reads the whole log once, and then only new commits.

    Args:
        location: Location of the table.
        stage: Name of the stage that writes it: one of `Decision.OWN_OUTPUTS`.
    """

    def __init__(self, location: str, stage: str) -> None:
        self.location = location
        self.stage = stage
        self._of_stage = f"/{stage}"
        self._version = -1
        self._id = ""
        self._step = 0
        self._uid: str | None = None
        self._snapshot: Snapshot | None = None

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it, 0 before the first; None without a table."""
        if self._version < 0 and not self._read():
            return None
        while actions := Log(self.location).commit(self._version + 1):
            self._version += 1
            self._snapshot = None
            self._take(actions)
        return TableFacts(id=self._id, step=self._step, uid=self._uid)

    def snapshot(self) -> Snapshot | None:
        """Return its newest version; None without a table. The snapshot that was read first is reused until there is a new commit."""
        if self.facts() is None:
            return None
        return self._snapshot or Snapshot.read(self.location, any_features=True)

    def last_step(self) -> int:
        """Return the last step that wrote it; 0 before the first, or without a table."""
        found = self.facts()
        return 0 if found is None else found.step

    def refuse_gone(self) -> None:
        """Refuse a table that was read before and no longer exists.

        Raises:
            TableMismatchError: it was deleted.
        """
        was_read = self._version >= 0
        if was_read and not Log(self.location).has(self._version):
            raise Fault.of(self.stage, "gone", location=self.location).error

    def refuse_lost(self, facts: StepFacts) -> None:
        """Refuse it if it existed before a step and no longer does: a new one would lack the rows of earlier steps.

        Raises:
            TableMismatchError: it was deleted.
        """
        if self.stage in facts.state.tables and not Log(self.location).is_there():
            raise Fault.of(self.stage, "gone", location=self.location).error

    def _read(self) -> bool:
        log = Log(self.location).look()
        snapshot = Snapshot.read(self.location, any_features=True, seen=log)
        if snapshot is None:
            return False
        self._snapshot = snapshot
        self._version = snapshot.version
        self._id = snapshot.id
        # Facts and marks are both needed: marks remain when old commits are deleted, but some commits of Spark have no mark.
        _, own = next(log.own_commits(), (None, None))
        self._note(own, snapshot.transactions)
        return True

    def _take(self, commit: Commit) -> None:
        marks = {}
        for action in commit:
            if "txn" in action:
                mark = action["txn"]
                marks[mark["appId"]] = int(mark["version"])
            elif "metaData" in action:
                self._id = str(action["metaData"]["id"])
        own = commit.facts()
        self._note(own, marks)

    def _note(self, own: dict[str, Any] | None, marks: Mapping[str, int]) -> None:
        """Note the step of a commit's facts and marks, if no later one is known."""
        step = 0
        uid = None
        if own is not None:
            step, uid = StepFacts.step_and_uid(own, self.location)
        marked = self._marked(marks)
        if marked > step:
            step = marked
            uid = None
        if step >= self._step:
            self._step = step
            self._uid = uid

    def _marked(self, marks: Mapping[str, int]) -> int:
        """Return the greatest number among the transaction marks of the stage."""
        own = [number for app_id, number in marks.items() if app_id.endswith(self._of_stage)]
        return max(own, default=0)
