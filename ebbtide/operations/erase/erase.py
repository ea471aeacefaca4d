"""Erases keys: one step rewrites the files of all tables that hold their rows; then what is left of them on disk is deleted."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ebbtide.amounts import amount
from ebbtide.delta.erasing import FileWithout, Found, found_in, unnamed
from ebbtide.delta.snapshot import Snapshot
from ebbtide.ledger.erasures import Erasure, Erasures, erased_keys, ledger_of, mark_unfinished, unfinished
from ebbtide.ledger.facts import Cause, Head, StepFacts
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.decision import Decision
from ebbtide.model.decision import Erase as EraseRows
from ebbtide.model.erased import ErasedKeys, hashes_of
from ebbtide.operations.erase.beyond import data_docs, places_beside, refuse_others
from ebbtide.operations.erase.keys import asked_keys
from ebbtide.operations.erase.views import computed_again, planned_views, views_above
from ebbtide.operations.operation import Context, Report
from ebbtide.operations.stepping import stepping
from ebbtide.runtime.erasing import doomed_in
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.purging import NOW, Place, purge
from ebbtide.runtime.refusals import refuse_changed_spec
from ebbtide.runtime.step import Stepper
from ebbtide.tables.step_commits import erasing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SALT_BYTES = 32
TABLES = ("state", *BESIDE_STATE)


def plan(ctx: Context, file: str | None, where: str | None) -> Report:
    """Return the plan of an erasure. Changes nothing.

    Args:
        ctx: The pipeline.
        file: Location of a file of keys; see `asked_keys`.
        where: A condition on rows, in place of it.
    """
    tables = Plan.under(ctx.root, ctx.spec)
    refuse_others(tables)
    keys = asked_keys(ctx.spark, tables, file, where)
    salt = secrets.token_bytes(SALT_BYTES)
    erased = ErasedKeys(salt, hashes_of(keys, keys.column_names, salt))
    last = Head.at_rest(tables.state.last()).facts
    docs = data_docs(ctx, [tables.spec.name, *views_above(tables)], deletes=False)
    rest = [*planned_views(tables), docs, *places_beside(tables, last)]
    report = _report(ctx, len(erased.hashes), _found(tables, erased), rest)
    return replace(report, has_matched=bool(report["rows"]))


def apply(ctx: Context, file: str | None, where: str | None, reason: str) -> Report:
    """Erase keys.

    Args:
        ctx: The pipeline.
        file: Location of a file of keys; see `asked_keys`.
        where: A condition on rows, in place of it.
        reason: Why; the ledger of erasures keeps it.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(ctx.root, ctx.spec)
    refuse_others(tables)
    spark = ctx.spark
    keys = asked_keys(spark, tables, file, where)
    with stepping(spark, tables, ctx.now_ms) as stepper:
        refuse_changed_spec(tables, stepper)
        stepper.publish(spark)
        ledger = _ledger(stepper)
        hashes = hashes_of(keys, keys.column_names, bytes.fromhex(ledger.salt))
        is_continued = unfinished(tables.root) is not None
        new = sorted(hashes - ledger.keys.hashes)
        erasure = Erasure(at_ms=ctx.now_ms, by=ctx.by, reason=reason, keys=tuple(new))
        ledger = ledger.model_copy(update={"erasures": (*ledger.erasures, erasure)})
        name = ledger.write(tables.root)
        # Before the step: a run that dies after it leaves files with erased rows, which the next one deletes.
        mark_unfinished(tables.root)
        facts = _step(spark, stepper, name, reason)
        stepper.publish(spark)
        purged = purge(stepper, name)
        found = [place for place in purged if place.name in TABLES]
        purged = [place for place in purged if place.name not in TABLES]
        beside = places_beside(stepper.plan, stepper.last)
    views = computed_again(ctx, tables)
    docs = data_docs(ctx, [tables.spec.name, *views_above(tables)], deletes=True)
    rest = [*purged, *views, docs, *beside]
    report = _report(ctx, len(hashes), found, rest, facts.step)
    were_erased = bool(hashes) and not new
    return replace(report, has_matched=bool(report["rows"]) or is_continued or were_erased)


def release(ctx: Context, file: str | None, where: str | None) -> Report:
    """Forget that keys were erased: their records are accepted again."""
    tables = Plan.under(ctx.root, ctx.spec)
    keys = asked_keys(ctx.spark, tables, file, where)
    with stepping(ctx.spark, tables, ctx.now_ms) as stepper:
        refuse_changed_spec(tables, stepper)
        stepper.publish(ctx.spark)
        ledger = _ledger(stepper)
        hashes = hashes_of(keys, keys.column_names, bytes.fromhex(ledger.salt))
        n_known = len(hashes & ledger.keys.hashes)
        if not n_known:
            return Report(ctx.spec.name, ["none of these keys was erased."], {"released": 0})
        left = [erasure.without(hashes) for erasure in ledger.erasures]
        ledger = ledger.model_copy(update={"erasures": tuple(left)})
        facts = stepper.facts(Cause(what="release")).with_state({"erased": ledger.write(tables.root)})
        stepper.commit(facts, [])
        stepper.publish(ctx.spark)
    done = f"{amount(n_known, 'key')} released in step {facts.step}: their records are accepted again."
    return Report(ctx.spec.name, [done], {"released": n_known}, step=facts.step)


def _ledger(stepper: Stepper) -> Erasures:
    """Return the ledger of erasures as of the last step; a new one with a salt of its own before the first erasure."""
    home = stepper.plan.root
    name = ledger_of(home, stepper.last)
    return Erasures(salt=secrets.token_hex(SALT_BYTES)) if name is None else Erasures.read(home, name)


def _step(spark: SparkSession, stepper: Stepper, name: str, reason: str) -> StepFacts:
    """Commit the step that erases: the state's files are rewritten by it, those of the other tables follow from it."""
    plan = stepper.plan
    action = EraseRows(name)
    present = stepper.tables.facts()
    decision = Decision(tables={table: action for table in BESIDE_STATE if table in present})
    facts = stepper.facts(Cause(what="erase", why=reason), decision=decision).with_state({"erased": name})
    doomed = doomed_in(plan, "state", erased_keys(plan.root, name))
    rewrite = FileWithout(plan.state.path, plan.state.schema, plan.state.bounded, doomed)
    stepper.commit(facts, erasing(spark, rewrite, stepper.newest()))
    return facts


def _found(plan: Plan, erased: ErasedKeys) -> list[Place]:
    """Count the rows of keys in the tables, and in the files of their earlier versions."""
    places = []
    for name in TABLES:
        snapshot = Snapshot.read(plan.at(name))
        if snapshot is not None:
            doomed = doomed_in(plan, name, erased)
            places.append(Place(name, found_in(snapshot, doomed)))
            places.append(Place(f"{name}: files of earlier versions", unnamed(snapshot, doomed).found))
    return places


def _report(
    ctx: Context, n_keys: int, found: Sequence[Place], rest: Sequence[Place], step: int | None = None
) -> Report:
    """Make the report of an erasure, planned or done.

    Args:
        ctx: The pipeline.
        n_keys: Number of the keys.
        found: What the tables hold of them, in the newest version and in files of earlier ones.
        rest: What lies beside that.
        step: The step that erased them; None of a plan.
    """
    total = sum((place.found for place in found), Found())
    places = [*found, *rest]
    counts = {"keys": n_keys, "rows": total.rows, "files": total.files, "bytes": total.bytes}
    details = {"places": [place.as_dict() for place in places]}
    keys = amount(n_keys, "key")
    held = f"{amount(total.rows, 'row')} in {amount(total.files, 'file')}, {amount(total.bytes, 'byte')}"
    if not total.rows:
        held = "none found: no row of theirs is in the tables, or in files of earlier versions"
    done = f"{keys} to erase" if step is None else f"{keys} erased in step {step}"
    lines = [f"{done}: {held}."]
    lines += [place.text(is_planned=step is None) for place in places if place.found != Found() or place.fate != NOW]
    if step is not None:
        return Report(ctx.spec.name, lines, counts, details, step)
    next_step = "To do it: the same with '--apply'. Time travel, 'rewind' and change feeds then begin at that step."
    return Report(ctx.spec.name, lines, counts, details, next_step=next_step)
