"""Erases keys: one step rewrites the files of all tables that hold their rows; then the remaining files on disk are deleted."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ebbtide.amounts import amount
from ebbtide.delta import Held, Snapshot
from ebbtide.ledger import Cause, Head, StepFacts
from ebbtide.model import Decision, ErasedKeys
from ebbtide.model import Erase as EraseRows
from ebbtide.operations._erase.beyond import data_docs, places_beside, refuse_others
from ebbtide.operations._erase.keys import asked_keys
from ebbtide.operations._erase.views import computed_again, planned_views, views_above
from ebbtide.operations._operation import Context, Report
from ebbtide.operations._places import NOW, Place
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import ErasureKey, Plan, Stepper, purge

if TYPE_CHECKING:
    from ebbtide.executors import Executor

TABLES = ("state", *Decision.OWN_OUTPUTS)


def plan(ctx: Context, file: str | None, where: str | None) -> Report:
    """Return the plan of an erasure. Changes nothing.

    Args:
        ctx: The pipeline.
        file: Location of a file of keys; see `asked_keys`.
        where: A condition on rows, instead of a file.
    """
    tables = Plan.under(ctx.root, ctx.spec)
    refuse_others(tables)
    keys = asked_keys(ctx.executor, tables, file, where)
    salt = secrets.token_bytes()
    hashes = ErasedKeys.hashes_of(keys, keys.column_names, salt)
    head = Head.at_rest(tables.state.last())
    names = [tables.spec.name, *views_above(tables)]
    docs = data_docs(ctx, names, deletes=False)
    views = planned_views(tables)
    beside = places_beside(tables, head.facts)
    erased = ErasedKeys(salt, hashes)
    found = _found(tables, erased)
    rest = [*views, docs, *beside]
    report = _report(ctx, len(hashes), found, rest)
    return replace(report, has_matched=report["rows"] > 0)


def apply(ctx: Context, file: str | None, where: str | None, reason: str) -> Report:
    """Erase keys.

    Args:
        ctx: The pipeline.
        file: Location of a file of keys; see `asked_keys`.
        where: A condition on rows, instead of a file.
        reason: The reason, kept in the ledger of erasures.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(ctx.root, ctx.spec)
    refuse_others(tables)
    executor = ctx.executor
    keys = asked_keys(executor, tables, file, where)
    with stepping(executor, tables, ctx.now_ms) as stepper:
        stepper.diagnosis.refuse("spec")
        stepper.publish(executor)
        ledger = stepper.plan.erasures.as_of(stepper.last)
        hashes = ledger.hashes_of(keys)
        is_continued = tables.erasures.unfinished() is not None
        new = hashes - ledger.keys.hashes
        ledger = ledger.plus(new, at_ms=ctx.now_ms, by=ctx.by, reason=reason)
        name = tables.erasures.write(ledger)
        # Before the step: if the run dies after it, files with erased rows remain, and the next run deletes them.
        tables.erasures.mark_unfinished()
        facts = _step(executor, stepper, name, reason)
        stepper.publish(executor)
        purged = purge(stepper, name)
        beside = places_beside(stepper.plan, stepper.last)
    places = [*(Place(name, held) for name, held in purged.deleted.items()), *_unreadable(purged.unreadable)]
    found = [place for place in places if place.name in TABLES]
    deleted = [place for place in places if place.name not in TABLES]
    views = computed_again(ctx, tables)
    names = [tables.spec.name, *views_above(tables)]
    docs = data_docs(ctx, names, deletes=True)
    rest = [*deleted, *views, docs, *beside]
    report = _report(ctx, len(hashes), found, rest, facts.step)
    had_rows = report["rows"] > 0
    were_erased = bool(hashes) and not new
    return replace(report, has_matched=had_rows or is_continued or were_erased)


def release(ctx: Context, file: str | None, where: str | None) -> Report:
    """Forget that keys were erased: their records are accepted again."""
    tables = Plan.under(ctx.root, ctx.spec)
    keys = asked_keys(ctx.executor, tables, file, where)
    with stepping(ctx.executor, tables, ctx.now_ms) as stepper:
        stepper.diagnosis.refuse("spec")
        stepper.publish(ctx.executor)
        ledger = stepper.plan.erasures.as_of(stepper.last)
        hashes = ledger.hashes_of(keys)
        n_known = len(hashes & ledger.keys.hashes)
        counts = {"released": n_known}
        if not n_known:
            return Report(ctx.spec.name, ["none of these keys was erased."], counts)
        name = tables.erasures.write(ledger.without(hashes))
        cause = Cause(what="release")
        facts = stepper.facts(cause).with_state({"erased": name})
        stepper.commit(facts, [])
        stepper.publish(ctx.executor)
    released = amount(n_known, "key")
    done = f"{released} released in step {facts.step}: their records are accepted again."
    return Report(ctx.spec.name, [done], counts, step=facts.step)


def _step(executor: Executor, stepper: Stepper, name: str, reason: str) -> StepFacts:
    """Commit the erasing step: it rewrites the state's files; those of the other tables follow from it."""
    plan = stepper.plan
    action = EraseRows(name)
    present = stepper.tables.facts()
    there = [table for table in Decision.OWN_OUTPUTS if table in present]
    decision = Decision(tables=dict.fromkeys(there, action))
    cause = Cause(what="erase", why=reason)
    facts = stepper.facts(cause, decision=decision).with_state({"erased": name})
    erased = plan.erasures.keys(name)
    doomed = ErasureKey.of(plan).doomed_in("state", erased)
    actions = plan.state.erasing(executor, stepper.newest(), doomed)
    stepper.commit(facts, actions)
    return facts


def _found(plan: Plan, erased: ErasedKeys) -> list[Place]:
    """Count the rows of keys in the tables, and in the files of their earlier versions."""
    places = []
    for name in TABLES:
        snapshot = Snapshot.read(plan.at(name))
        if snapshot is None:
            continue
        doomed = ErasureKey.of(plan).doomed_in(name, erased)
        newest = Place(name, doomed.found_in(snapshot))
        in_earlier = doomed.unnamed(snapshot)
        earlier = Place(f"{name}: files of earlier versions", in_earlier.found)
        places += [newest, earlier]
    return places


def _unreadable(files: Mapping[str, Held]) -> Iterator[Place]:
    """Yield the places of files that cannot be read."""
    for name, held in files.items():
        yield Place(name, held, "gone by the next vacuum after 7 days: they cannot be read")


def _report(
    ctx: Context, n_keys: int, found: Sequence[Place], rest: Sequence[Place], step: int | None = None
) -> Report:
    """Make the report of an erasure, planned or done.

    Args:
        ctx: The pipeline.
        n_keys: Number of the keys.
        found: Their rows in the tables, in the newest version and in files of earlier ones.
        rest: Other places.
        step: The step that erased them; None of a plan.
    """
    total = sum((place.found for place in found), Held())
    places = [*found, *rest]
    counts = {
        "keys": n_keys,
        "rows": total.rows,
        "files": total.files,
        "bytes": total.bytes,
    }
    details = {"places": [place.as_dict() for place in places]}
    is_planned = step is None
    keys = amount(n_keys, "key")
    done = f"{keys} erased in step {step}"
    if is_planned:
        done = f"{keys} to erase"
    lines = [f"{done}: {_held_text(total)}."]
    for place in places:
        is_any = place.found != Held()
        if is_any or place.fate != NOW:
            lines.append(place.text(is_planned=is_planned))
    if not is_planned:
        return Report(ctx.spec.name, lines, counts, details, step)
    next_step = "To do it: the same with '--apply'. Time travel, 'rewind' and change feeds then begin at that step."
    return Report(ctx.spec.name, lines, counts, details, next_step=next_step)


def _held_text(found: Held) -> str:
    """Describe the rows of keys in tables."""
    if not found.rows:
        return "none found: the tables and files of earlier versions have no row of these keys"
    rows = amount(found.rows, "row")
    files = amount(found.files, "file")
    n_bytes = amount(found.bytes, "byte")
    return f"{rows} in {files}, {n_bytes}"
