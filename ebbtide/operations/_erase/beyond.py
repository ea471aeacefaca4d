"""Places outside of a pipeline's tables that may hold erased keys. The report names them, or the erasure is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ebbtide.delta import Held, Log, Snapshot
from ebbtide.errors import BackfillError, ConfigError
from ebbtide.ledger import NoStep
from ebbtide.model import Erase
from ebbtide.operations._erase.data_docs import delete_sites, found_in_sites
from ebbtide.operations._places import NOW, Place
from ebbtide.runtime import Plan
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.ledger import StepFacts
    from ebbtide.operations._operation import Context

NOT_OURS = "not ours"
SHOWN = 20
"""Maximum number of records that are named."""


def refuse_others(plan: Plan) -> None:
    """Refuse an erasure that would break data outside of the tables, or would not reach it.

    Raises:
        BackfillError: a backfill is being built: it reads the erased records again.
        DeltaFeatureError: the sink has a feature that prevents Ebbtide from rewriting its files.
        ConfigError: another table under the root is a shallow clone of one of these, or the sink cannot erase.
    """
    if plan.backfill.ledger.turn is not None:
        raise BackfillError.of(
            f"A backfill of '{plan.spec.name}' is at '{plan.backfills}': it may hold rows of the keys.",
            next_step="Nothing was changed. Run 'ebbtide backfill swap' or 'ebbtide backfill drop' first.",
        )
    if plan.sink_log is None and not plan.sink.can(Erase("")):
        raise ConfigError.of(
            f"The sink of '{plan.spec.name}' cannot erase rows.",
            got=f"sink.type: {plan.spec.sink.type}",
            allowed="delta, or a sink whose 'can' includes Erase",
            next_step="Nothing was changed. Delete the records at the source, and erase in the sink with its own client.",
        )
    plan.refuse_unable_outputs(Erase(""))
    sink = None if plan.sink_log is None else Snapshot.read(plan.sink_log)
    if sink is not None:  # before the step: a step that the sink cannot apply would block the pipeline
        sink.refuse_unwritable(adds_rows=False)
    clones = list(_clones(plan))
    if clones:
        raise ConfigError.of(
            f"Tables under '{plan.all_pipelines}' are shallow clones: they read files that would be deleted.",
            got=", ".join(clones),
            allowed="no shallow clone of the pipeline's tables",
            next_step="Nothing was changed. Make deep clones of them, erase the keys there, or drop them.",
        )


def _clones(plan: Plan) -> Iterator[str]:
    """Yield other tables that use files in the pipeline's folder. A clone leaves no trace in its source."""
    home = f"{plan.root}/"
    for table in _other_tables(plan):
        versions = Log(table).versions()
        newest = Log(table).commit(versions[-1]).adds()
        oldest = Log(table).commit(versions[0]).adds()
        paths = [_without_scheme(str(add["path"])) for add in newest + oldest]
        if any(path.startswith(home) for path in paths):
            yield table


def _without_scheme(location: str) -> str:
    path = location.removeprefix("file://")
    return path.removeprefix("file:")


def _other_tables(plan: Plan) -> Iterator[str]:
    """Yield the Delta tables under the root, at most two levels deep, that are not the pipeline's."""
    for name in Location(plan.all_pipelines).subfolders():
        folder = Location(plan.all_pipelines) / name
        if folder == plan.root:
            continue
        inner = [folder / name for name in folder.subfolders()]
        for table in (folder, *inner):
            if Log(table).is_there():
                yield table


def places_beside(plan: Plan, last: StepFacts | NoStep) -> list[Place]:
    """Name the places outside of the tables.

    Args:
        last: Facts of its last step.
    """
    places = [*_source(plan, last), *_undecoded(plan)]
    if plan.sink_log is None:
        fate = f"{NOW}: erased by its own client; logs and backups of its store are {NOT_OURS}"
        name = f"sink of type {plan.spec.sink.type}"
        places.append(Place(name, Held(), fate))
    if Location(plan.root).is_in_object_store:
        _, _, location = plan.root.partition("://")
        bucket, _, prefix = location.partition("/")
        listing = f"aws s3api list-object-versions --bucket {bucket} --prefix {prefix}/"
        fate = f"{NOT_OURS}: a bucket with versioning keeps older versions of objects; '{listing}' lists them"
        places.append(Place("object store", Held(), fate))
    name = plan.spec.name
    wipe = f"'dagster asset wipe {name}', 'dagster run delete' of its runs, and their folders in DAGSTER_HOME/storage"
    dagster = f"{NOT_OURS}: samples of checks and logs of runs quote rows: {wipe}"
    fates = {
        "Dagster": dagster,
        "local copies on other hosts, or in other folders of EBBTIDE_CACHE": "deleted by the next run or check of the pipeline there",
        "positions in the source": "stay: names of source files and offsets are the pipeline's position in its source",
    }
    for place, fate in fates.items():
        places.append(Place(place, Held(), fate))
    return places


def data_docs(ctx: Context, names: Sequence[str], *, deletes: bool) -> Place:
    """Return the Data Docs of some pipelines, if their folder is known: samples of checks may quote rows.

    Args:
        ctx: Has the folder.
        names: Names of the pipelines.
        deletes: Delete them.
    """
    elsewhere = "those in another folder, or on another host, are deleted by the next check in Dagster there"
    if ctx.data_docs is None:
        return Place("Data Docs", Held(), elsewhere)
    total = Held()
    for name in names:
        sites = ctx.data_docs / name
        total += found_in_sites(sites)
        if deletes:
            delete_sites(sites)
    return Place("Data Docs", total, f"{NOW}; {elsewhere}")


def _source(plan: Plan, last: StepFacts | NoStep) -> Iterator[Place]:
    read = last.source.position
    path = plan.spec.source_path
    if read is not None:
        end = json.dumps(read.get("end", read))
        fate = f"{NOT_OURS}: records read up to {end}"
        yield Place("source", Held(), fate)
    elif path is not None:
        fate = f"{NOT_OURS}: the files at '{path}'"
        yield Place("source", Held(), fate)


def _can_be_parsed(raw: bytes) -> bool:
    from ebbtide.formats import BadRecordError, parse_exactly

    try:
        parse_exactly(raw)
    except BadRecordError:
        return False
    return True


def _undecoded(plan: Plan) -> Iterator[Place]:
    """Yield the bad records that cannot be parsed: they may or may not name a key."""
    if Snapshot.read(plan.at("quarantine")) is None:
        return
    rows = plan.quarantine.values("step", "origin", "raw")
    places = []
    n_bytes = 0
    for row in rows.to_pylist():
        raw = row["raw"] or b""
        if _can_be_parsed(raw):
            continue
        origin = row["origin"]
        position = f"{origin['partition']}:{origin['position']}"
        n_bytes += len(raw)
        places.append(f"step {row['step']} {origin['source']} {position}")
    if not places:
        return
    first = sorted(places)[:SHOWN]
    shown = ", ".join(first)
    fate = f"stay: they cannot be parsed; see 'ebbtide quarantine show', then 'ebbtide quarantine drop': {shown}"
    found = Held(len(places), 0, n_bytes)
    yield Place("quarantine: records without a key", found, fate)
