"""Plans of maintenance: which files, rows and bytes a job would delete, and why. Nothing is written, and no lease is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ebbtide.amounts import amount
from ebbtide.delta import log
from ebbtide.delta.erasing import Found
from ebbtide.delta.snapshot import DataFile
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.step import next_frontier
from ebbtide.operations.maintenance.cleanup import doom_of, found_in
from ebbtide.operations.maintenance.measuring import entry_rows, with_rest
from ebbtide.operations.maintenance.vacuum import unneeded
from ebbtide.operations.operation import Context, Report
from ebbtide.operations.places import BY_VACUUM, with_places
from ebbtide.operations.quarantine.drop import excess
from ebbtide.operations.stepping import has_state
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.purging import Place
from ebbtide.tables.state.deciding import packed
from ebbtide.tables.state.deletion import Deletion, planned
from ebbtide.tables.state.doomed import find, is_base, judge_rows
from ebbtide.tables.state.merging import to_merge
from ebbtide.tables.state.rewriting import StoredEntries, rows_of

if TYPE_CHECKING:
    from ebbtide.ledger.facts import StepFacts
    from ebbtide.model.entries import Step

MOST_FILES = 100
"""Files that a plan names."""


def plan_cleanup(ctx: Context, max_files: int | None) -> Report:
    """Plan a cleanup; see `ebbtide.operations.maintenance.cleanup`."""
    plan = Plan.under(ctx.root, ctx.spec)
    last = _last(plan)
    if last is None:
        return _nothing(ctx, "cleanup")
    doom = doom_of(plan, _next_step(plan, last))
    state = plan.state.stored(plan.state.snapshot())
    found, left = found_in(ctx.spark, state, packed(plan.operator), doom, max_files)
    deletion = planned(state, plan.operator, found, doom)
    _, dropped = excess(plan, last.now_ms)
    rewritten = [file for file, _ in deletion.rewritten]
    hidden = [loss.file for loss in deletion.hidden]
    counts = {
        "expired": found.n_doomed,
        "entries": found.n_kept,
        "rows": sum(map(len, found.losses.values())),
        "files_removed": len(deletion.removed),
        "files_hidden": len(hidden),
        "files_rewritten": len(rewritten),
        "bytes_removed": _bytes(deletion.removed),
        "bytes_rewritten": _bytes(rewritten),
        **{f"quarantine_{limit}": count for limit, count in dropped.items()},
    }
    named = [
        *({"path": file.path, "bytes": file.size, "change": "removed"} for file in deletion.removed),
        *({"path": file.path, "bytes": file.size, "change": "gets a vector"} for file in hidden),
        *({"path": file.path, "bytes": file.size, "change": "written again"} for file in rewritten),
    ]
    details = {"job": "cleanup", "files": named[:MOST_FILES]}
    n_dropped = sum(dropped.values())
    if not deletion and not n_dropped:
        return Report(ctx.spec.name, [f"nothing has expired; {_entries(found.n_kept)}."], counts, details)
    now = datetime.fromtimestamp(last.now_ms / 1000, UTC).isoformat(timespec="seconds")
    gone = f"{_entries(found.n_doomed)} with {amount(counts['rows'], 'row')}"
    first = f"{gone} to delete, expired or dropped by {now}; {_entries(found.n_kept)} kept."
    report = Report(ctx.spec.name, [first], counts, details, next_step="To do it: 'ebbtide cleanup'.")
    losses = {state.files[number].path: len(lost) for number, lost in found.losses.items()}
    return with_rest(with_places(report, [*_of_deletion(deletion, losses), *_of_quarantine(dropped)]), left)


def _of_deletion(deletion: Deletion, losses: Mapping[str, int]) -> Iterator[Place]:
    """Yield the files that lose rows, by what becomes of each.

    Args:
        deletion: The files.
        losses: How many rows each loses, by path.
    """
    rewritten = [file for file, _ in deletion.rewritten]
    hidden = [loss.file for loss in deletion.hidden]
    fates = [
        (deletion.removed, f"without a row left, {BY_VACUUM}"),
        (rewritten, f"to be written again without the rows; files of before are {BY_VACUUM}"),
        (hidden, "to get a deletion vector, which hides the rows; the files stay"),
    ]
    for files, fate in fates:
        if files:
            n_rows = sum(losses.get(file.path, 0) for file in files)
            yield Place("state", Found(n_rows, len(files), _bytes(files)), fate)


def _of_quarantine(dropped: Mapping[str, int]) -> Iterator[Place]:
    """Yield the records that the limits no longer keep."""
    for limit, n_records in dropped.items():
        if n_records:
            yield Place("quarantine", Found(rows=n_records), f"dropped by {limit}")


def why_little(ctx: Context, min_share: float, min_bytes: int) -> str:
    """Return why a cleanup would win too little now, in words; empty: it is worth its cost. Takes no lease.

    What decides is looked at in the order of its cost: the sizes in the log, the statistics of stamps, the stamps of those files
    that may hold expired ones, and last, only if older versions of entries are stored, the keys.

    Args:
        ctx: The pipeline.
        min_share: Least share of the entries that it must win.
        min_bytes: Least bytes of data files that these must take, by their share of each file's rows.
    """
    plan = Plan.under(ctx.root, ctx.spec)
    last = _last(plan)
    if last is None:
        return "no step was made"
    state = plan.state.stored(plan.state.snapshot())
    n_bytes = _bytes(state.files)
    if n_bytes < min_bytes:
        return f"the state has {amount(n_bytes, 'byte')}, below {min_bytes:,} bytes"
    operator = packed(plan.operator)
    doom = doom_of(plan, _next_step(plan, last))
    judged = judge_rows(ctx.spark, state, operator, doom)
    most = sum(len(each.doomed) for each in judged.values())
    if not most:
        return "nothing has expired"
    # Each row of the base is an entry of its own, so that these are the fewest entries that there can be.
    n_base = sum(rows_of(file) for file in state.files if is_base(file))
    if most < min_share * n_base:
        return f"it would win at most {most / n_base:.1%} of entries, below {min_share:.1%}"
    found = find(ctx.spark, state, operator, doom, judged=judged)
    share = found.n_doomed / max(found.n_doomed + found.n_kept, 1)
    won_bytes = 0.0
    for number, rows in found.losses.items():
        file = state.files[number]
        won_bytes += file.size * len(rows) / max(rows_of(file), len(rows))
    limits = []
    if share < min_share:
        limits.append(f"{min_share:.1%}")
    if won_bytes < min_bytes:
        limits.append(f"{min_bytes:,} bytes")
    if not limits:
        return ""
    least = " and ".join(limits)
    return f"it would win {share:.1%} of entries, {amount(round(won_bytes), 'byte')}, below {least}"


def plan_compaction(ctx: Context, max_files: int | None) -> Report:
    """Plan a compaction; see `ebbtide.operations.maintenance.compaction`."""
    plan = Plan.under(ctx.root, ctx.spec)
    last = _last(plan)
    if last is None or last.state.is_folded:
        return _nothing(ctx, "compaction")
    state = plan.state.stored(plan.state.snapshot())
    found = find(ctx.spark, state, packed(plan.operator), doom_of(plan, _next_step(plan, last)))
    n_rows = entry_rows(state.files)
    counts = {
        "expired": found.n_doomed,
        "entries": found.n_kept,
        "rows": n_rows - found.n_kept,
        "files_rewritten": len(state.files),
        "bytes_rewritten": _bytes(state.files),
    }
    first = f"{amount(counts['rows'], 'row')} to leave out, {_entries(found.n_kept)} to keep; small files of the sink to be joined."
    report = Report(ctx.spec.name, [first], counts, {"job": "compaction"}, next_step="To do it: 'ebbtide compact'.")
    going = Found(counts["rows"], len(state.files), counts["bytes_rewritten"])
    fate = f"to be written again without superseded, expired and dropped rows; files of before are {BY_VACUUM}"
    whole = with_places(report, [Place("state", going, fate)])
    if max_files is None:
        return whole
    ranges = to_merge(StoredEntries(state, packed(plan.operator)))
    if not ranges:
        return _nothing(ctx, "compaction")
    n_now = min(len(ranges), max_files)
    line = f"This run writes {amount(n_now, 'file')}, and hides their rows in those of before."
    return with_rest(replace(whole, lines=[*whole.lines, line]), len(ranges) - n_now)


def plan_vacuum(ctx: Context) -> Report:
    """Plan a vacuum, by Delta's own dry run; see `ebbtide.operations.maintenance.vacuum`."""
    plan = Plan.under(ctx.root, ctx.spec)
    named: list[dict[str, Any]] = []
    if _last(plan) is not None:
        for name in ("state", *BESIDE_STATE):
            table = plan.at(name)
            if log.versions(table):
                sizes = unneeded(ctx.spark, table)
                named += [{"table": name, "path": path, "bytes": n_bytes} for path, n_bytes in sizes.items()]
    if not named:
        return _nothing(ctx, "vacuum")
    counts = {"files_removed": len(named), "bytes_removed": sum(each["bytes"] for each in named)}
    lines = [
        f"{amount(len(named), 'file')} to delete ({amount(counts['bytes_removed'], 'byte')}): no version within delta.deletedFileRetentionDuration names them.",
        "Of each table Delta lists 1,000 files at most; commits past the log's retention, staged files and old turns of the lease go too.",
    ]
    details = {"job": "vacuum", "files": named[:MOST_FILES]}
    report = Report(ctx.spec.name, lines, counts, details, next_step="To do it: 'ebbtide vacuum'.")
    return with_places(report, list(_by_table(named)))


def _by_table(named: list[dict[str, Any]]) -> Iterator[Place]:
    """Yield the files that a vacuum deletes, by table."""
    totals: dict[str, Found] = {}
    for each in named:
        name = each["table"]
        totals[name] = totals.get(name, Found()) + Found(files=1, bytes=each["bytes"])
    for name, total in totals.items():
        yield Place(name, total)


def _last(plan: Plan) -> StepFacts | None:
    """Return the facts of the last step; None before the first."""
    newest = plan.state.last() if has_state(plan) else None
    return None if newest is None else newest[1]


def _next_step(plan: Plan, last: StepFacts) -> Step:
    """Return the step that maintenance would make: the clock does not move on."""
    frontier = next_frontier(last.frontier, last.frontier.clock, plan.rules, None)
    return frontier.operator_step(last.step + 1)


def _nothing(ctx: Context, job: str) -> Report:
    return Report(ctx.spec.name, [f"{job}: nothing to do."], {}, {"job": job})


def _bytes(files: Iterable[DataFile]) -> int:
    return sum(file.size for file in files)


def _entries(n: int) -> str:
    return amount(n, "entry", "entries")
