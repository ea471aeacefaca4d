"""Sizes, counts and times of the product that tests make small: each by a word, and the one place that has it.

Tests set them by `set_limits`; each test, and each file, has them back at its end. So does it with all that is changed by `swap_inside`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import getattr_static
from pkgutil import resolve_name
from typing import Any

LIMITS = {
    "connection_s": "ebbtide.cli.metrics_server.CONNECTION_S",
    "report_most_steps": "ebbtide.dagster.report.MOST_STEPS",
    "look_s": "ebbtide.dagster.sensors.LOOK_S",
    "observe_every_s": "ebbtide.dagster.stream.OBSERVE_EVERY_S",
    "most_waits": "ebbtide.dagster.supervise.MOST_WAITS",
    "wait_s": "ebbtide.dagster.supervise.WAIT_S",
    "checkpoint_interval": "ebbtide.delta._checkpoints.INTERVAL",
    "stored_row_group": "ebbtide.delta._data_file.ROW_GROUP",
    "row_group": "ebbtide.delta._file_rows.ROW_GROUP",
    "attached_from": "ebbtide.delta._key_index.ATTACHED_FROM",
    "retention": "ebbtide.delta._unneeded.DEFAULT_RETENTION",
    "few_rows": "ebbtide.delta._vectors.FEW_ROWS",
    "most_waiting": "ebbtide.inspect._lineage.MOST_WAITING",
    "lineage_sent_within_s": "ebbtide.inspect._lineage.SENT_WITHIN_S",
    "spans_sent_within_s": "ebbtide.inspect._spans.SENT_WITHIN_S",
    "steps_looked_back": "ebbtide.inspect._status.LOOK_BACK",
    "most_commits": "ebbtide.ledger._foreign_writes.MOST_COMMITS",
    "trim_every": "ebbtide.ledger._lease.TRIM_EVERY",
    "turns_kept": "ebbtide.ledger._lease.TURNS_KEPT",
    "ledger_poll_s": "ebbtide.ledger._ledger.POLL_S",
    "asked_every_s": "ebbtide.ledger._lease.ASKED_EVERY_S",
    "rows_per_step": "ebbtide.operations._adopt.ROWS_PER_STEP",
    "last_steps": "ebbtide.operations._backfill.status.LAST_STEPS",
    "sample": "ebbtide.operations._backfill.swap.SAMPLE",
    "rows_in_driver": "ebbtide.runtime._decide.ROWS_IN_DRIVER",
    "most_bytes": "ebbtide.runtime._engines.MOST_BYTES",
    "whole_bytes": "ebbtide.tables._state.rewriting.WHOLE_BYTES",
    "first_wait_s": "ebbtide.runtime._following.FIRST_WAIT_S",
    "most_files_held": "ebbtide.runtime._following.MOST_FILES_HELD",
    "whole_look_s": "ebbtide.runtime._following.WHOLE_LOOK_S",
    "most_files": "ebbtide.runtime._idle.MOST_FILES",
    "idle_most_rows": "ebbtide.runtime._at_rest.MOST_ROWS",
    "progress_most_steps": "ebbtide.runtime._progress.MOST_STEPS",
    "way_back_most_rows": "ebbtide.runtime._way_back.MOST_ROWS",
    "file_source_bytes_in_driver": "ebbtide.sources._file_source.BYTES_IN_DRIVER",
    "batch_bytes": "ebbtide.sources._files.BATCH_BYTES",
    "batch_rows": "ebbtide.sources._files.BATCH_ROWS",
    "answer_s": "ebbtide.sources._kafka.client.ANSWER_S",
    "reading_held_bytes": "ebbtide.sources._kafka.reading.HELD_BYTES",
    "silence_s": "ebbtide.sources._kafka.reading.SILENCE_S",
    "chunk_bytes": "ebbtide.sources._lines.CHUNK_BYTES",
    "records_in_driver": "ebbtide.sources._positioned.RECORDS_IN_DRIVER",
    "first_offsets": "ebbtide.sources._sizing.FIRST_OFFSETS",
    "ending_s": "ebbtide.sql._gateway.server.ENDING_S",
    "headers_timeout_s": "ebbtide.sql._gateway.server.HEADERS_TIMEOUT_S",
    "most_connections": "ebbtide.sql._gateway.server.MOST_CONNECTIONS",
    "most_of_address": "ebbtide.sql._gateway.server.MOST_OF_ADDRESS",
    "remote_poll_s": "ebbtide.sql._remote.POLL_S",
    "in_memory": "ebbtide.storage._arrow.IN_MEMORY",
    "read_ahead": "ebbtide.storage._arrow.READ_AHEAD",
    "quick_retries": "ebbtide.storage._bucket.QUICK_RETRIES",
    "budget_s": "ebbtide.storage._faults.BUDGET_S",
    "first_pause_s": "ebbtide.storage._faults.FIRST_PAUSE_S",
    "together_held_bytes": "ebbtide.storage._together.HELD_BYTES",
    "small_bytes": "ebbtide.tables._joining.SMALL_BYTES",
    "width": "ebbtide.tables._joining.WIDTH",
    "least_rows_of_range": "ebbtide.tables._joining.LEAST_ROWS",
    "rewritten_share": "ebbtide.operations._maintenance.deletion.REWRITTEN_SHARE",
    "doomed_rows_in_part": "ebbtide.operations._maintenance.doomed.ROWS_IN_PART",
    "judging_rows_in_driver": "ebbtide.operations._maintenance.judging.ROWS_IN_DRIVER",
    "rewriting_rows_in_part": "ebbtide.tables._state.ranges.ROWS_IN_PART",
    "rows_in_piece": "ebbtide.tables._state.rewriting.ROWS_IN_PIECE",
    "flush_bytes": "ebbtide.runtime._workers.staging.FLUSH_BYTES",
    "little_bytes": "ebbtide.executors.Executor.LITTLE_BYTES",
    "change_piece_bytes": "ebbtide.tables._state.change_set.PIECE_BYTES",
    "rows_per_file": "ebbtide.tables._pieces.ROWS_PER_FILE",
    "cutting_most_rows": "ebbtide.views.cutting.MOST_ROWS",
    "view_table_bytes": "ebbtide.views.cutting.TABLE_BYTES",
}
"""The word of a limit to its module and name."""
_Changed = tuple[Any, str, Any]
"""A holder, a name in it, and the value before."""
_scopes: list[list[_Changed]] = [[]]
"""What has been set in each `limits` that lasts, in order; the first: for good, by a process that is no test."""

_defaults: dict[str, Any] = {}
"""The value of each limit when it was first looked at."""


def set_limits(**values: Any) -> None:
    """Set limits until the end of the test, or of the `limits` that it is in."""
    for word, value in values.items():
        swap_inside(LIMITS[word], value)


def swap_inside(place: str, value: Any) -> None:
    """Put something else in a place of the product, as long as limits last.

    Args:
        place: Module, perhaps class, and name.
        value: It.
    """
    holder_name, _, name = place.rpartition(".")
    holder = resolve_name(holder_name)
    # Of a class as it is defined, not bound to it.
    before = getattr_static(holder, name) if isinstance(holder, type) else getattr(holder, name)
    _scopes[-1].append((holder, name, before))
    _put(holder, name, value)


def _put(holder: Any, name: str, value: Any) -> None:
    setattr(holder, name, value)


@contextmanager
def limits(**values: Any) -> Iterator[None]:
    """Set limits for a while; those that are set meanwhile end with it, too.

    Raises:
        AssertionError: it ends before one that began within it, as in a thread: what that one has set would stay for good.
    """
    scope: list[_Changed] = []
    _scopes.append(scope)
    try:
        set_limits(**values)
        yield
    finally:
        is_innermost = _scopes[-1] is scope
        _scopes[:] = [other for other in _scopes if other is not scope]
        while scope:
            _put(*scope.pop())
        assert is_innermost, "limits that began within these still last"


def refuse_lasting() -> None:
    """Refuse a limit that has another value than when it was first looked at, between the tests of two files: a test before has left it.

    Raises:
        AssertionError: there is one, as by a `monkeypatch` of what `set_limits` changes too, which is undone first.
    """
    for word, place in LIMITS.items():
        module, _, name = place.rpartition(".")
        if module in sys.modules:
            value = getattr(sys.modules[module], name)
            assert _defaults.setdefault(word, value) == value, f"{word} is {value}"
    assert _scopes[0] == [], "what a fixture of the whole session sets, or a thread that outlives its test, stays"
