"""Faults: what can be wrong with a part of a pipeline, with the sentence that a user reads and the way out, in one table.

`ebbtide.runtime` finds them. A run, an operation, `status`, `lag` and the metrics show the same fault in the same words; the page
docs/reference/faults.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from ebbtide.errors import (
    ConfigError,
    DamagedFileError,
    EbbtideError,
    SourceLostError,
    SpecChangedError,
    StoreRefusedError,
    TableMismatchError,
)

TABLE = "table"
"""Stands in `FAULTS` for the sink, the changelog and the quarantine: what each of them can have."""


@dataclass(frozen=True)
class Words:
    """The words of a fault, with `{names}` of values in them.

    Args:
        says: What is wrong.
        way_out: What a user does about it.
        got: What was found; None: the sentence says it.
        allowed: What is right; None: the sentence says it.
        error: The error that a run ends with.
    """

    says: str
    way_out: str
    got: str | None = None
    allowed: str | None = None
    error: type[EbbtideError] = TableMismatchError

    def filled(self, values: Mapping[str, object]) -> EbbtideError:
        """Return the error, with the values in its words."""
        return self.error.of(
            self.says.format_map(values),
            got=self.got and self.got.format_map(values),
            allowed=self.allowed and self.allowed.format_map(values),
            next_step=self.way_out.format_map(values),
        )


@dataclass(frozen=True)
class Fault:
    """A fault that was found: the next run is refused.

    Args:
        part: The part that has it: `root`, `ledger`, `state`, `sink`, `changelog`, `quarantine`, `spec` or `source`.
        name: Its name in `FAULTS`.
        error: What a run raises: the words, with the values that were found.
    """

    part: str
    name: str
    error: EbbtideError

    @classmethod
    def of(cls, part: str, name: str, **values: object) -> Self:
        """Return a fault in the words of `FAULTS`.

        Args:
            part: The part that has it.
            name: Its name in `FAULTS`.
            values: Values of the names in its words.
        """
        words = FAULTS.get((part, name)) or FAULTS[TABLE, name]
        return cls(part, name, words.filled(values))

    @staticmethod
    def refuse(found: Iterable[Fault]) -> None:
        """Raise the error of the first of some faults; no fault after it is looked for.

        Raises:
            EbbtideError: the fault's.
        """
        for fault in found:
            raise fault.error


REPAIR = "Run 'ebbtide repair' to restore it from the state, or 'ebbtide refresh' to rebuild it from the source."
"""Way out for an output table that was deleted or replaced."""
_REBUILD = "'ebbtide refresh' to rebuild all tables from the source."
_OLDER_STATE = Words(
    says="The state at '{location}' is older than '{other}'.",
    got="step {step} in the state, {other_step} in the other",
    allowed="the state of the last step",
    way_out=f"Restore the state table, or run {_REBUILD}",
)
_CHANGED_STATE = Words(
    says="The state at '{location}' was changed by another client.",
    got="{change}",
    allowed="the rows of version {version}",
    way_out=f"Run 'ebbtide repair --apply' to bring it back, or {_REBUILD}",
)
_STATE_AGAIN = (
    "Restore them from a copy; without one run 'ebbtide repair', which says how far back the files of the state are whole, and"
    f" 'ebbtide rewind' to there; or run {_REBUILD} Nothing was changed."
)
_SINK_AGAIN = (
    "Restore them from a copy; without one run 'ebbtide repair --apply', which takes the rows from the state; or run"
    f" {_REBUILD} Nothing was changed."
)
_BAD_RECORDS_LEFT = (
    "Restore them from a copy; without one run 'ebbtide repair --apply', which keeps the bad records whose files are whole, and counts"
    " the rest. Nothing was changed."
)
_ALL_AGAIN = f"Restore them from a copy; without one run {_REBUILD} Nothing was changed."
"""Ways out of damaged files: of the state, of a sink whose rows the state has, of a quarantine, and of any."""
_MISSING_FILES = Words(
    says="{files} of the {table} at '{location}' {are} gone.",
    got="no {missing}",
    allowed="the files that version {version} names",
    way_out="",
    error=DamagedFileError,
)
_CUT_FILES = Words(
    says="{files} of the {table} at '{location}' {are} cut off, or overwritten.",
    got="other bytes of {missing} than were written",
    allowed="the files that version {version} names",
    way_out="",
    error=DamagedFileError,
)
_CHANGED_SPEC = Words(
    says="The spec of '{pipeline}' no longer fits its stored state.",
    got="{given}",
    allowed="{stored}",
    way_out="Change it back, or run 'ebbtide refresh' to rebuild the sink from the source.",
    error=SpecChangedError,
)
_UNABLE_SINK = Words(
    says="The sink of '{pipeline}' cannot perform the action '{action}', which the {work} asks for.",
    got="sink.type: {type}",
    allowed="a sink that says by 'can' that it performs it",
    way_out=f"Nothing was changed. Use a sink of type delta, or run {_REBUILD[:-1]}.",
    error=ConfigError,
)

FAULTS: Mapping[tuple[str, str], Words] = {
    ("root", "not writable"): Words(
        says="User '{user}' may not write to '{location}'.",
        allowed="folders of '{pipeline}' that its runs may write to",
        way_out="Give that user the right to it (docs/explanation/security.md), or mount its disk to be written to. Nothing was changed.",
        error=StoreRefusedError,
    ),
    ("root", "refuses puts"): Words(
        says="The object store refuses files below '{location}'.",
        allowed="credentials of this process by which '{pipeline}' may write",
        way_out="Give them the rights to read, list, put and delete below the root (docs/how-to/object-stores.md). Nothing was changed.",
        error=StoreRefusedError,
    ),
    ("ledger", "lost"): Words(
        says="The ledger at '{location}' was deleted or put back: it does not say whether '{pipeline}' is paused.",
        got="epoch {epoch}",
        allowed="epoch {last_epoch}, which made step {step}, or a later one",
        way_out="Restore it; or run 'ebbtide pause --reason TEXT', which makes a new one, and 'ebbtide resume' once records may be read."
        " Time before that pause counts for what expires, unless 'ebbtide clock' sets it back.",
    ),
    ("state", "lost"): Words(
        says="The state at '{location}' has no steps, but '{other}' has.",
        got="step {other_step}",
        allowed="the state that wrote it",
        way_out=f"Restore the state table, or run {_REBUILD}",
    ),
    ("state", "older"): _OLDER_STATE,
    ("state", "older, tables whole"): replace(
        _OLDER_STATE,
        way_out="Restore the state table; or run 'ebbtide rewind --to-step {step} --apply' to restore the other tables to it, and read"
        f" later records again; or {_REBUILD}",
    ),
    ("state", "changed"): _CHANGED_STATE,
    ("state", "changed, shows no rows"): replace(
        _CHANGED_STATE,
        way_out=f"Run 'ebbtide rewind --to-step {{step}} --apply' to bring it back, or {_REBUILD}",
    ),
    ("state", "changed, no step"): replace(_CHANGED_STATE, way_out=f"Run {_REBUILD}"),
    ("state", "files missing"): replace(
        _MISSING_FILES,
        way_out=_STATE_AGAIN,
    ),
    ("state", "files cut"): replace(
        _CUT_FILES,
        way_out=_STATE_AGAIN,
    ),
    ("sink", "files cut"): replace(
        _CUT_FILES,
        way_out=_SINK_AGAIN,
    ),
    ("sink", "files cut, not in the state"): replace(
        _CUT_FILES,
        way_out=_ALL_AGAIN,
    ),
    ("sink", "files missing"): replace(
        _MISSING_FILES,
        way_out=_SINK_AGAIN,
    ),
    ("sink", "files missing, not in the state"): replace(
        _MISSING_FILES,
        way_out=_ALL_AGAIN,
    ),
    ("sink", "foreign"): Words(
        says="There is a table at '{location}' that '{pipeline}' has not written.",
        got="{files}, and no step",
        allowed="no table, or an empty one",
        way_out="Run 'ebbtide adopt' to make it the sink with its rows; or give the pipeline another name or root, or move the table away.",
    ),
    ("sink", "half adopted"): Words(
        says="Not all rows of '{location}' were adopted.",
        got="{rows} left",
        way_out="Run 'ebbtide adopt --apply' again: it continues where it ended.",
    ),
    (TABLE, "gone"): Words(
        says="The table at '{location}' is gone.",
        allowed="the table that the pipeline has written",
        way_out=REPAIR,
    ),
    (TABLE, "replaced"): Words(
        says="The table at '{location}' is another one than the pipeline's.",
        got="id {id}",
        allowed="id {known_id}",
        way_out=REPAIR,
    ),
    (TABLE, "put back"): Words(
        says="The table at '{location}' is older than the state: it was put back to an earlier version.",
        got="step {step}",
        allowed="step {known_step} or the one after it",
        way_out=REPAIR,
    ),
    (TABLE, "of another copy"): Words(
        says="The table at '{location}' is of another copy of '{pipeline}' than its state.",
        got="another step {step} than the state's",
        allowed="tables that the steps of the state have written",
        way_out=f"Restore all folders of the pipeline from one copy; or run {_REBUILD}",
    ),
    ("quarantine", "files missing"): replace(_MISSING_FILES, way_out=_BAD_RECORDS_LEFT),
    ("quarantine", "files cut"): replace(_CUT_FILES, way_out=_BAD_RECORDS_LEFT),
    ("quarantine", "records lost"): Words(
        says="The quarantine at '{location}' was deleted or put back: it lacks the bad records of step {step}.",
        got="no file '{file}'",
        allowed="the files that the step has written there",
        way_out=REPAIR,
    ),
    ("sink", "unable"): _UNABLE_SINK,
    ("sink", "unable to begin again"): replace(
        _UNABLE_SINK,
        way_out="Nothing was changed. Use a sink of type delta, or give the pipeline another name.",
    ),
    ("sink", "unable to truncate"): Words(
        says="The sink of '{pipeline}' cannot delete the rows that a TRUNCATE leaves dead.",
        got="a TRUNCATE in step {step}; sink.type: {type}",
        allowed="changes that name their keys",
        way_out="Nothing was changed. Take the TRUNCATE out of the source, or use a sink of type delta under another name.",
        error=ConfigError,
    ),
    ("sink", "not read"): Words(
        says="'{pipeline}' reads its own sink, which is not a Delta table.",
        got="sink.type: {type} with {needs}",
        allowed="delta",
        way_out="Set sink.type to delta, or leave that out.",
        error=ConfigError,
    ),
    ("output", "unable"): Words(
        says="The output '{output}' of '{pipeline}' cannot perform the action '{action}'.",
        got="type: {type}",
        allowed="an output that says by 'can' that it performs 'apply' and 'rewrite'; and 'erase', to erase keys",
        way_out="Nothing was changed. Take it out of 'outputs', or use a release of its package that can.",
        error=ConfigError,
    ),
    (TABLE, "written by another client"): Words(
        says="{commits} of other clients changed rows: {writes}.",
        way_out="Run 'ebbtide repair' to put them right, or 'ebbtide acknowledge' to accept them.",
    ),
    ("spec", "changed"): _CHANGED_SPEC,
    ("spec", "changed, can migrate"): replace(
        _CHANGED_SPEC,
        way_out="Change it back, or run 'ebbtide migrate' to see what it would do to the stored state.",
    ),
    ("spec", "changed, another source"): replace(
        _CHANGED_SPEC,
        way_out="Is it another pipeline? Then give it another name. Otherwise change it back, or run 'ebbtide refresh' to rebuild the sink"
        " from this source.",
    ),
    ("spec", "needs Spark"): Words(
        says="'{pipeline}' cannot run without Spark.",
        got="{needs}",
        allowed="pipelines without any of these",
        way_out="Run it with --engine spark.",
        error=ConfigError,
    ),
    ("source", "all bad"): Words(
        says="All records that '{pipeline}' has read were bad: {records} in quarantine, and no row in the sink.",
        got="{first}",
        allowed="records that fit the spec's format, schema and key",
        way_out="'ebbtide quarantine show' has them. Correct the spec, and run 'ebbtide quarantine replay --apply'; or 'ebbtide refresh'.",
        error=ConfigError,
    ),
    ("source", "all of a run bad"): Words(
        says="All records that this run of '{pipeline}' has read were bad: {records}.",
        got="{first}",
        allowed="records that fit the spec's format, schema and key",
        way_out="'ebbtide quarantine show' has them. Correct the spec, and run 'ebbtide quarantine replay --apply'; or set checks.max_quarantine_rate: 1.",
        error=ConfigError,
    ),
    ("source", "moved"): Words(
        says="The source of '{pipeline}' is not where it was.",
        got="{path}",
        allowed="{stored}",
        way_out="If the same files have moved there, run 'ebbtide run --accept-source-path' once. If it is another pipeline, give it another"
        " name.",
        error=SpecChangedError,
    ),
    ("source", "lost to a refresh"): Words(
        says="A refresh of '{pipeline}' would lose records that its source no longer has; nothing was changed.",
        got="{lost}",
        allowed="a source that has all that was read of it",
        way_out="Restore them; or run 'ebbtide refresh --accept-loss' to rebuild the tables from the remaining records, and note the loss.",
        error=SourceLostError,
    ),
    ("source", "starts at the end"): Words(
        says="A refresh of '{pipeline}' would empty its tables and read no present record: its source starts at the end.",
        got="source.start: latest",
        allowed="earliest, a time or offsets",
        way_out="Set source.start to the start of the refresh; later steps ignore it."
        " Or run 'ebbtide backfill start --from earliest' to build new tables.",
        error=ConfigError,
    ),
    ("source", "not read twice"): Words(
        says="'{pipeline}' cannot read changed files again.",
        got="--accept-changed-files",
        allowed="a source of files, and order: sequence, which recognizes a repeated change",
        way_out="Restore the files as they were read, or run 'ebbtide refresh' to read everything again.",
        error=ConfigError,
    ),
}
"""By part and name of a fault: its words."""
