"""Plans of maintenance: which files, rows and bytes a job would delete, and why. Nothing is written, and no lease is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ebbtide.amounts import amount
from ebbtide.delta import DataFile, Held, Log
from ebbtide.model import Decision, Reading
from ebbtide.operations._maintenance.cleanup import doom_of, found_in, present_clock
from ebbtide.operations._maintenance.deletion import Deletion, planned
from ebbtide.operations._maintenance.doomed import find
from ebbtide.operations._maintenance.judging import judge_rows
from ebbtide.operations._maintenance.measuring import with_rest
from ebbtide.operations._maintenance.merging import to_merge
from ebbtide.operations._maintenance.vacuum import leaves, unneeded
from ebbtide.operations._operation import Context, Report
from ebbtide.operations._places import BY_VACUUM, Place, with_places
from ebbtide.operations._quarantine.drop import excess
from ebbtide.operations._stepping import has_state
from ebbtide.operators import ExpiryRules
from ebbtide.runtime import Plan
from ebbtide.tables import StoredEntries
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.delta import Snapshot
    from ebbtide.entries import Step
    from ebbtide.ledger import StepFacts
    from ebbtide.operations._maintenance.doomed import Found as Entries
    from ebbtide.tables import Stored

MOST_FILES = 100
"""Maximum number of files that a plan names."""


def plan_cleanup(ctx: Context, max_files: int | None) -> Report:
    """Plan a cleanup; see `ebbtide.operations._maintenance.cleanup`."""
    plan = Plan.under(ctx.root, ctx.spec)
    last = _last(plan)
    if last is None:
        return _nothing(ctx, "cleanup")
    at = _cleanup_step(plan, last, ctx.now_ms)
    doom = doom_of(plan, at, ExpiryRules.expired)
    snapshot = plan.state.snapshot()
    state = plan.state.stored(snapshot)
    operator = packed(plan.operator)
    found, left = found_in(ctx.executor, state, operator, doom, max_files)
    deletion = planned(plan.state, state, found, doom)
    _, dropped = excess(plan, at.now_ms)
    changes = _changes(deletion)
    removed, hidden, rewritten = (change.files for change in changes)
    losses = {state.files[number].path: len(lost) for number, lost in found.losses.items()}
    n_rows = sum(losses.values())
    counts = {
        "expired": found.n_doomed,
        "entries": found.n_kept,
        "rows": n_rows,
        "files_removed": len(removed),
        "files_hidden": len(hidden),
        "files_rewritten": len(rewritten),
        "bytes_removed": _bytes(removed),
        "bytes_rewritten": _bytes(rewritten),
    }
    for limit, count in dropped.items():
        counts[f"quarantine_{limit}"] = count
    named: list[dict[str, Any]] = []
    for change in changes:
        named += change.named()
    details = {"job": "cleanup", "files": named[:MOST_FILES]}
    n_dropped = sum(dropped.values())
    kept = _entries(found.n_kept)
    if not deletion and not n_dropped:
        return _with_handed(
            Report(ctx.spec.name, [f"nothing has expired; {kept}."], counts, details), plan, snapshot, last
        )
    clock = datetime.fromtimestamp(at.now_ms / 1000, UTC)
    now = clock.isoformat(timespec="seconds")
    expired = _entries(found.n_doomed)
    rows = amount(n_rows, "row")
    first = f"{expired} with {rows} to delete, expired or dropped by {now}; {kept} kept."
    report = Report(ctx.spec.name, [first], counts, details, next_step="To do it: 'ebbtide cleanup'.")
    report = _with_handed(report, plan, snapshot, last)
    places = [*_of_changes(changes, losses), *_of_quarantine(dropped)]
    return with_rest(with_places(report, places), left)


def _with_handed(report: Report, plan: Plan, state: Snapshot, last: StepFacts) -> Report:
    """Return a report with the number of keys whose entries snapshot transformers will get. They are not called: they are a user's code."""
    n_keys = len(plan.state.untransformed_keys(state, last.state.transformed))
    if not n_keys:
        return report
    line = f"Snapshot transformers get entries of {amount(n_keys, 'key')} first."
    return replace(report, lines=[*report.lines, line], counts={**report.counts, "untransformed_keys": n_keys})


@dataclass(frozen=True)
class _Change:
    """Files with the same treatment by a cleanup.

    Args:
        files: The files.
        text: The treatment, in a word or two.
        fate: The fate of their rows.
    """

    files: Sequence[DataFile]
    text: str
    fate: str

    def named(self) -> Iterator[dict[str, Any]]:
        """Yield each file with its treatment."""
        for file in self.files:
            yield {"path": file.path, "bytes": file.size, "change": self.text}


def _changes(deletion: Deletion) -> tuple[_Change, _Change, _Change]:
    """Return the files that are removed, those whose rows are hidden, and those that are rewritten."""
    hidden = [loss.file for loss in deletion.hidden]
    rewritten = [file for file, _ in deletion.rewritten]
    return (
        _Change(deletion.removed, "removed", f"without a row left, {BY_VACUUM}"),
        _Change(hidden, "gets a vector", "to get a deletion vector, which hides the rows; the files stay"),
        _Change(
            rewritten,
            "written again",
            f"to be rewritten without the rows; old files are {BY_VACUUM}",
        ),
    )


def _of_changes(changes: Sequence[_Change], losses: Mapping[str, int]) -> Iterator[Place]:
    """Yield the files that lose rows, by treatment.

    Args:
        changes: The files.
        losses: How many rows each loses, by path.
    """
    removed, hidden, rewritten = changes
    for change in (removed, rewritten, hidden):
        files = change.files
        if files:
            n_rows = sum(losses.get(file.path, 0) for file in files)
            found = Held(n_rows, len(files), _bytes(files))
            yield Place("state", found, change.fate)


def _of_quarantine(dropped: Mapping[str, int]) -> Iterator[Place]:
    """Yield the records above the limits."""
    for limit, n_records in dropped.items():
        if n_records:
            yield Place("quarantine", Held(rows=n_records), f"dropped by {limit}")


def why_little(ctx: Context, min_share: float, min_bytes: int) -> str:
    """Return why a cleanup would free too little now; empty: it is worth its cost. Takes no lease.

    The tests are made in the order of their cost: sizes in the log, statistics of stamps, stamps of files that may hold expired
    entries, and last, only if older versions of entries are stored, the keys.

    Args:
        ctx: The pipeline.
        min_share: Minimum share of entries that it must free.
        min_bytes: Minimum bytes of data files that these must take, by their share of each file's rows.
    """
    plan = Plan.under(ctx.root, ctx.spec)
    last = _last(plan)
    if last is None:
        return "no step was made"
    state = plan.state.stored(plan.state.snapshot())
    n_bytes = _bytes(state.files)
    least_bytes = f"{min_bytes:,} bytes"
    least_share = f"{min_share:.1%}"
    if n_bytes < min_bytes:
        size = amount(n_bytes, "byte")
        return f"the state has {size}, below {least_bytes}"
    operator = packed(plan.operator)
    doom = doom_of(plan, _cleanup_step(plan, last, ctx.now_ms), ExpiryRules.expired)
    judged = judge_rows(ctx.executor, state, operator, doom)
    most = sum(len(each.doomed) for each in judged.values())
    if not most:
        return "nothing has expired"
    # Each row of the base is a different entry, so this is the minimum number of entries.
    n_base = sum(file.likely_rows for file in state.base.values())
    if most < min_share * n_base:
        most_share = most / n_base
        return f"it would free at most {most_share:.1%} of entries, below {least_share}"
    found = find(ctx.executor, state, operator, doom, judged=judged)
    n_entries = found.n_doomed + found.n_kept
    share = found.n_doomed / max(n_entries, 1)
    won_bytes = _won_bytes(state, found)
    limits = []
    if share < min_share:
        limits.append(least_share)
    if won_bytes < min_bytes:
        limits.append(least_bytes)
    if not limits:
        return ""
    least = " and ".join(limits)
    won = amount(round(won_bytes), "byte")
    return f"it would free {share:.1%} of entries, {won}, below {least}"


def _won_bytes(state: Stored, found: Entries) -> float:
    """Return the bytes of data files that the lost rows take, by their share of each file's rows."""
    won_bytes = 0.0
    for number, rows in found.losses.items():
        file = state.files[number]
        n_lost = len(rows)
        n_rows = max(file.likely_rows, n_lost)
        won_bytes += file.size * n_lost / n_rows
    return won_bytes


def plan_compaction(ctx: Context, max_files: int | None) -> Report:
    """Plan a compaction; see `ebbtide.operations._maintenance.compaction`."""
    plan = Plan.under(ctx.root, ctx.spec)
    last = _last(plan)
    if last is None or last.state.is_folded:
        return _nothing(ctx, "compaction")
    snapshot = plan.state.snapshot()
    state = plan.state.stored(snapshot)
    operator = packed(plan.operator)
    doom = doom_of(plan, _next_step(plan, last, last.frontier.clock), ExpiryRules.compactable)
    found = find(ctx.executor, state, operator, doom)
    n_files = len(state.files)
    n_bytes = _bytes(state.files)
    n_left_out = plan.state.entry_rows(state.files) - found.n_kept
    counts = {
        "expired": found.n_doomed,
        "entries": found.n_kept,
        "rows": n_left_out,
        "files_rewritten": n_files,
        "bytes_rewritten": n_bytes,
    }
    left_out = amount(n_left_out, "row")
    kept = _entries(found.n_kept)
    first = f"{left_out} to leave out, {kept} to keep; small files of the sink to be joined."
    details = {"job": "compaction"}
    report = Report(ctx.spec.name, [first], counts, details, next_step="To do it: 'ebbtide compact'.")
    report = _with_handed(report, plan, snapshot, last)
    going = Held(n_left_out, n_files, n_bytes)
    fate = f"to be rewritten without superseded, expired and dropped rows; old files are {BY_VACUUM}"
    whole = with_places(report, [Place("state", going, fate)])
    if max_files is None:
        return whole
    ranges = to_merge(StoredEntries(state, operator))
    if not ranges:
        return _nothing(ctx, "compaction")
    n_now = min(len(ranges), max_files)
    files = amount(n_now, "file")
    line = f"This run writes {files}, and hides their rows in the old files."
    bounded = replace(whole, lines=[*whole.lines, line])
    return with_rest(bounded, len(ranges) - n_now)


def plan_vacuum(ctx: Context) -> Report:
    """Plan a vacuum, see `ebbtide.operations._maintenance.vacuum`."""
    plan = Plan.under(ctx.root, ctx.spec)
    if _last(plan) is None:
        return _nothing(ctx, "vacuum")
    named: list[dict[str, Any]] = []
    places = []
    total = Held()
    for name in ("state", *Decision.OWN_OUTPUTS):
        table = plan.at(name)
        if not Log(table).is_there():
            continue
        sizes = unneeded(table)
        n_bytes = sum(sizes.values())
        found = Held(files=len(sizes), bytes=n_bytes)
        if found.files:
            places.append(Place(name, found))
        total += found
        named += [{"table": name, "path": path, "bytes": size} for path, size in sizes.items()]
    sources = plan.source.leaving(leaves(plan))
    if not named and not sources:
        return _nothing(ctx, "vacuum")
    counts = {"files_removed": total.files, "bytes_removed": total.bytes}
    files = amount(total.files, "file")
    size = amount(total.bytes, "byte")
    lines = [
        f"{files} to delete ({size}): no version within delta.deletedFileRetentionDuration names them.",
        "Commits past the log's retention, staged files and old turns of the lease are also deleted.",
    ]
    if sources:
        n_sources = amount(len(sources), "file")
        lines.append(f"{n_sources} of the source, read by steps, to leave it by source.after_read.")
    details = {"job": "vacuum", "files": named[:MOST_FILES]}
    report = Report(ctx.spec.name, lines, counts, details, next_step="To do it: 'ebbtide vacuum'.")
    return with_places(report, places)


def _last(plan: Plan) -> StepFacts | None:
    """Return the facts of the last step; None before the first."""
    newest = plan.state.last() if has_state(plan) else None
    if newest is None:
        return None
    _, facts = newest
    return facts


def _cleanup_step(plan: Plan, last: StepFacts, wall_ms: int) -> Step:
    """Return the step that a cleanup would make."""
    return _next_step(plan, last, present_clock(plan, last, wall_ms))


def _next_step(plan: Plan, last: StepFacts, clock: Reading) -> Step:
    """Return the step that maintenance would make."""
    frontier = plan.rules.next_frontier(last.frontier, clock)
    return frontier.operator_step(last.step + 1)


def _nothing(ctx: Context, job: str) -> Report:
    nothing = f"{job}: nothing to do."
    return Report(ctx.spec.name, [nothing], {}, {"job": job})


def _bytes(files: Iterable[DataFile]) -> int:
    return sum(file.size for file in files)


def _entries(n: int) -> str:
    return amount(n, "entry", "entries")
