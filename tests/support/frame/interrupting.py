"""Runs that end like a process that is killed just before it does something: by a word for what it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PLACES = {
    "a batch is decided": "ebbtide.runtime._step.decide",
    "a step is committed": "ebbtide.runtime.Stepper.commit",
    "a step is published": "ebbtide.runtime.Stepper.publish",
    "a decided step is published": "ebbtide.runtime._step.publish",
    "tables are folded": "ebbtide.runtime._step.Stepper.fold",
    "the state performs": "ebbtide.tables.StateTable.perform",
    "the sink is written": "ebbtide.tables.SinkTable.apply",
    "the sink performs": "ebbtide.tables.SinkTable.perform",
    "the sink is altered": "ebbtide.tables.SinkTable.alter",
    "the sink is restored": "ebbtide.tables.SinkTable.restore",
    "the sink is restored and written": "ebbtide.tables.SinkTable.restore_and_apply",
    "the sink takes its rows": "ebbtide.tables.SinkTable.take_rows",
    "a sink of documents performs": "documents.Documents.perform",
    "the changelog is appended to": "ebbtide.tables._changelog.ChangelogTable.append",
    "the changelog is altered": "ebbtide.tables._changelog.ChangelogTable.alter",
    "the quarantine is appended to": "ebbtide.tables._quarantine.QuarantineTable.append",
    "missed rows are appended": "ebbtide.tables._append_table.AppendTable.append_missed",
    "a stage is appended": "ebbtide.tables._append_table.commit_stage",
    "another table is restored": "ebbtide.tables._step_commits.restore_stage",
    "ranges are merged": "ebbtide.delta.Snapshot.deleting",
    "files are deleted": "ebbtide.storage.Location.delete",
    "files are set aside": "ebbtide.storage.Location.copy_to",
    "a table is set aside": "ebbtide.runtime.Stepper.look_again",
    "net changes are found": "ebbtide.runtime._way_back.SinkHistory.net_changes",
    "a source is looked at": "ebbtide.runtime._stream.Stream.discover",
    "a source is done": "ebbtide.runtime._reading.SourceSteps._finish",
    "a view is purged": "ebbtide.runtime._driver.purge_view",
    "a log is cut": "ebbtide.delta.Writer.cut_log",
}
"""What a run comes to, and the function that does it."""
REHEARSAL = "ebbtide.runtime._driver._Run._rehearse"
"""A refresh tries its first step before it resets; what it comes to then is not what is meant."""


@contextmanager
def killed_before(what: str) -> Iterator[None]:
    """Expect what is done here to end, by `InterruptedError`, just before it does something.

    Args:
        what: One of `PLACES`. Before the first step of a pipeline there is no decided one to publish.
    """

    def killed(*given: Any, **_: Any) -> dict[str, int]:
        if what == "a decided step is published" and not given[2].facts.step:
            return {}
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REHEARSAL, lambda *_: None)
        patch.setattr(PLACES[what], killed)
        with pytest.raises(InterruptedError):
            yield
