"""Savepoints: a verified copy of a pipeline's folder as of one step, taken under its runs; a pipeline starts from it.

A savepoint is a root: `URI/NAME` has the tables as of the step, their logs up to it, a ledger without a holder, and
`savepoint.json`, a document of `Contents`. That file is there first, and says that the copy is whole only in the end. So all that looks at
a root looks at a savepoint, and an older release's is read by the functions that read an older release's tables.

No lease is taken. A step is chosen that all tables have performed; files that a version names outlive it by Delta's retention. If one
is gone nevertheless, as after an erasure, another step is chosen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ebbtide.amounts import amount
from ebbtide.delta import Held, Log, Snapshot
from ebbtide.durations import to_ms
from ebbtide.errors import ConfigError, DamagedFileError
from ebbtide.ledger import LedgerFacts, StepFacts
from ebbtide.model import Decision, StoredDocument
from ebbtide.operations._operation import Context, Report
from ebbtide.runtime import AtRest, Plan
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

Digest = tuple[int, str]
"""A file's bytes, and their digest; see `Location.digest`."""
FILE = "savepoint.json"
"""Name of the file that describes a savepoint, in the pipeline's folder there."""
STARTED = "started-from.json"
"""Name of the file of a pipeline that has started from a savepoint: what it has begun with."""
TRIES = 5
"""Tries to copy a step whose files go meanwhile."""
POLL_S = 0.05
"""Seconds between two looks at tables that a step under way has yet to reach."""
_TABLES = (*Decision.OWN_OUTPUTS, "state")
"""The state comes last: without its log there is no pipeline."""


class Contents(BaseModel):
    """The content of a savepoint: its `savepoint.json`."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    format: int = Field(default=StoredDocument.FORMAT, alias="ebbtide", description="Version of the stored formats.")
    pipeline: str = Field(description="Name of the pipeline.")
    is_whole: bool = Field(default=False, description="All files are there.")
    step: int = Field(default=0, description="The step.")
    uid: str | None = Field(default=None, description="Identity of the step.")
    now_ms: int = Field(default=0, description="Its clock, epoch ms.")
    taken_ms: int = Field(default=0, description="When it was taken, epoch ms.")
    by: str = Field(default="", description="Who took it.")
    code: str = Field(default="", description="Release of Ebbtide that made the step.")
    versions: dict[str, int] = Field(default_factory=dict, description="Table to its version.")
    erased: str | None = Field(default=None, description="Name of its file of erased keys.")
    turn: LedgerFacts | None = Field(default=None, description="The turn of its ledger.")
    files: dict[str, Digest] = Field(default_factory=dict, description="File to its bytes and digest.")

    def of_table(self, name: str) -> dict[str, Digest]:
        """Return the content of a table's files, by their names below it."""
        prefix = f"{name}/"
        return {file.removeprefix(prefix): self.files[file] for file in self.files if file.startswith(prefix)}

    @property
    def held(self) -> Held:
        """Files and bytes."""
        return Held(files=len(self.files), bytes=sum(n_bytes for n_bytes, _ in self.files.values()))

    def text(self) -> str:
        """Describe it in a sentence."""
        taken = datetime.fromtimestamp(self.taken_ms / 1000, UTC).isoformat(timespec="seconds")
        by = f" by {self.by}" if self.by else ""
        return f"savepoint of step {self.step}, taken {taken}{by}: {amount(self.held.files, 'file')}, {amount(self.held.bytes, 'byte')}."


class _Chosen(NamedTuple):
    """A step that all tables have performed.

    Args:
        facts: Its facts.
        turn: A turn of the ledger of its incarnation.
        versions: Table to the version after it.
    """

    facts: StepFacts
    turn: LedgerFacts
    versions: dict[str, int]


def take(ctx: Context, to: str) -> Report:
    """Take a savepoint.

    Args:
        ctx: The pipeline.
        to: Its URI: a folder that does not exist, or has no folder of the pipeline.

    Raises:
        ConfigError: there is something at the URI, the pipeline has made no step, or a part of it is in none of its tables.
        DamagedFileError: the copy is not what was copied.
        TableMismatchError: the tables do not belong together.
    """
    plan = Plan.under(ctx.root, ctx.spec)
    _refuse_parts_elsewhere(plan)
    copy = Plan.under(to, ctx.spec)
    _refuse_taken(copy, ctx.spec)
    _mark(copy, Contents(pipeline=ctx.spec.name))
    for number in range(TRIES):
        chosen = _choose(plan)
        try:
            contents = _contents(ctx, chosen, _copied(plan, copy, chosen.versions, None))
            break
        except FileNotFoundError:
            if number == TRIES - 1:
                raise
            # Of the former step nothing stays that the next one lacks.
            Location(copy.root).delete()
            _mark(copy, Contents(pipeline=ctx.spec.name))
    _add_ledger(plan, copy, contents, ctx.now_ms)
    _refuse_unfit(copy, contents)
    _mark(copy, contents.model_copy(update={"is_whole": True}))
    line = f"{contents.text()} It is at '{to}'."
    next_step = f"To start from it: 'ebbtide run SPEC --root OTHER --from {to}'."
    return _report(ctx.spec, contents, [line], next_step)


def start(ctx: Context, uri: str) -> Report:
    """Give a pipeline without tables those of a savepoint; nothing happens if it has started from it before.

    One that is killed is done again. Until then a run refuses the tables: the state comes last.

    Args:
        ctx: The pipeline.
        uri: The savepoint's.

    Raises:
        ConfigError: there is no whole savepoint, or the pipeline has tables.
        DamagedFileError: a file of the savepoint is missing or has other bytes.
    """
    copy, plan = Plan.under(uri, ctx.spec), Plan.under(ctx.root, ctx.spec)
    contents = _whole(copy, ctx.spec)
    note = contents.model_copy(update={"files": {}})
    begun = _read(plan, STARTED)
    if begun == note:
        return _report(ctx.spec, contents, [f"has started from the {contents.text()}"])
    is_same = begun is not None and not begun.is_whole and begun.uid == contents.uid
    if not (is_same and _has_log_of(plan, contents)) and Location(plan.root).usage().files:
        raise _has_tables(plan, uri)
    _mark(plan, note.model_copy(update={"is_whole": False}), STARTED)
    try:
        _add_ledger(copy, plan, contents, ctx.now_ms)
        _copied(copy, plan, contents.versions, contents)
    except FileNotFoundError as error:
        raise _damaged(copy, str(error)) from error
    _refuse_unfit(plan, contents)
    _mark(plan, note, STARTED)
    return _report(ctx.spec, contents, [f"starts from the {contents.text()}"])


def show(ctx: Context, uri: str) -> Report:
    """Describe a savepoint, and read all its files; or list those of a folder.

    Args:
        ctx: The pipeline.
        uri: The savepoint's, or a folder of several.

    Raises:
        ConfigError: there is none.
        DamagedFileError: a file is missing or has other bytes.
    """
    copy = Plan.under(uri, ctx.spec)
    if _read(copy) is None:
        return _list(ctx, uri)
    contents = _whole(copy, ctx.spec)
    for name, (n_bytes, digest) in contents.files.items():
        file = Location(f"{copy.root}/{name}")
        found = file.digest() if file.is_file() else None
        if found != (n_bytes, digest):
            raise _damaged(copy, f"{name}: {'is missing' if found is None else 'has other bytes'}")
    _refuse_unfit(copy, contents)
    return _report(ctx.spec, contents, [contents.text(), "All files are as they were copied."])


def delete(ctx: Context, uri: str) -> Report:
    """Delete a savepoint, also one that is not whole.

    Args:
        ctx: The pipeline.
        uri: The savepoint's.

    Raises:
        ConfigError: there is none.
    """
    copy = Plan.under(uri, ctx.spec)
    contents = _read(copy)
    if contents is None:
        raise _none(copy, uri)
    Location(copy.root).delete()
    return _report(ctx.spec, contents, [f"deleted: {contents.text()}"])


def _list(ctx: Context, folder: str) -> Report:
    found = {}
    for name in Location(folder).subfolders():
        contents = _read(Plan.under(f"{folder}/{name}", ctx.spec))
        if contents is not None:
            found[name] = contents
    if not found:
        raise _none(Plan.under(folder, ctx.spec), folder)
    in_order = sorted(found, key=lambda name: found[name].taken_ms)
    lines = [f"{amount(len(found), 'savepoint')} at '{folder}'."]
    lines += [f"{name}: {found[name].text() if found[name].is_whole else 'not whole.'}" for name in in_order]
    listed = [{"name": name, "step": found[name].step, "is_whole": found[name].is_whole} for name in in_order]
    return Report(ctx.spec.name, lines, {"savepoints": len(found)}, {"listed": listed})


def _refuse_parts_elsewhere(plan: Plan) -> None:
    """Refuse a pipeline with a part that is in none of its tables: a copy would lack it."""
    spec = plan.spec
    parts = {
        f"a sink of type {spec.sink.type}": plan.sink_log is None,
        "the checkpoint of a query of Spark": spec.reads_stream_of_spark,
    }
    elsewhere = [part for part, is_there in parts.items() if is_there]
    if elsewhere:
        raise ConfigError.of(
            f"A savepoint of '{spec.name}' would lack a part.",
            got=", ".join(elsewhere),
            allowed="pipelines whose sink is a Delta table, and which read files or topics",
        )


def _refuse_taken(copy: Plan, spec: Pipeline) -> None:
    """Refuse a folder that holds anything; one that a killed savepoint has left is deleted."""
    known = _read(copy)
    if known is not None and not known.is_whole:
        Location(copy.root).delete()
    elif Location(copy.root).usage().files:
        raise ConfigError.of(
            f"There is a folder of '{spec.name}' already.",
            got=copy.root,
            allowed="another --to for each savepoint",
        )


def _choose(plan: Plan) -> _Chosen:
    """Return the newest step, once all tables have performed it.

    Raises:
        ConfigError: there is none, or a run that died has left it unfinished.
    """
    end_s = time.monotonic() + to_ms(plan.spec.lease_ttl) / 1000
    while True:
        turn = plan.ledger.turn
        last = plan.state.last()
        if last is None or turn is None:
            raise ConfigError.of(f"'{plan.spec.name}' has made no step yet.", next_step="Run 'ebbtide run' first.")
        version, facts = last
        versions = dict(_versions(plan, facts)) if facts.incarnation == turn.incarnation else {}
        if (
            not (facts.decision.tables.keys() & {*Decision.OWN_OUTPUTS}) - versions.keys()
            and turn.incarnation == facts.incarnation
        ):
            return _Chosen(facts, turn, {**versions, "state": version})
        if time.monotonic() > end_s:
            raise ConfigError.of(
                f"Step {facts.step} of '{plan.spec.name}' is not finished.",
                got=f"performed by {', '.join(versions) or 'no table'}",
                next_step="Run 'ebbtide run', which finishes it; then do this again.",
            )
        time.sleep(POLL_S)


def _versions(plan: Plan, facts: StepFacts) -> Iterator[tuple[str, int]]:
    """Yield each output table that has performed a step, with its version after it; one that it does not concern as of the step."""
    for name in Decision.OWN_OUTPUTS:
        log = Log(plan.at(name))
        if not log.versions():
            continue
        for version, own in log.own_commits():
            if own["step"] <= facts.step:
                if own["step"] == facts.step or name not in facts.decision.tables:
                    yield name, version
                break
        else:
            if name not in facts.decision.tables:
                yield name, log.versions()[0]


def _copied(plan: Plan, copy: Plan, versions: dict[str, int], known: Contents | None) -> dict[str, Digest]:
    """Copy tables as of some versions; return the content of each file, by its name below the pipeline's folder."""
    files = {}
    for name in _TABLES:
        if name in versions:
            expected = None if known is None else known.of_table(name)
            as_of = Snapshot.read(plan.at(name), versions[name], any_features=True)
            if as_of is None or as_of.version != versions[name]:
                raise FileNotFoundError(f"version {versions[name]} of '{plan.at(name)}'")
            copied = as_of.copied_as_of(copy.at(name), expected)
            files.update({f"{name}/{file}": found for file, found in copied.items()})
    return files


def _contents(ctx: Context, chosen: _Chosen, files: dict[str, Digest]) -> Contents:
    facts = chosen.facts
    return Contents(
        pipeline=ctx.spec.name,
        step=facts.step,
        uid=facts.uid,
        now_ms=facts.now_ms,
        taken_ms=ctx.now_ms,
        by=ctx.by,
        code=facts.code,
        versions=chosen.versions,
        erased=facts.state.erased,
        turn=chosen.turn,
        files=files,
    )


def _add_ledger(plan: Plan, copy: Plan, contents: Contents, now_ms: int) -> None:
    """Begin the ledger of a copy, and give it the erased keys: their records stay refused."""
    if contents.turn is None:
        raise _damaged(plan, "no turn of the ledger")
    copy.ledger.begin_as(contents.turn, now_ms)
    if contents.erased is not None:
        copy.erasures.begin_with(contents.erased, plan.erasures.read(contents.erased))


def _has_log_of(plan: Plan, contents: Contents) -> bool:
    """Return whether all files of the state's log are a savepoint's: no run has begun its tables since."""
    log = Log(plan.state.path)
    prefix = f"{log.folder.removeprefix(f'{plan.root}/')}/"
    expected = {name.removeprefix(prefix): found for name, found in contents.files.items() if name.startswith(prefix)}
    return all((log.folder / name).digest() == expected.get(name) for name in log.names())


def _refuse_unfit(copy: Plan, contents: Contents) -> None:
    """Refuse a copy whose tables do not belong together, or are of another step."""
    found = AtRest.of(copy.spec, copy.all_pipelines)
    found.refuse_tables()
    found.diagnosis.refuse("files")
    last = found.head.facts
    if not isinstance(last, StepFacts) or (last.step, last.uid) != (contents.step, contents.uid):
        raise _damaged(copy, f"step {last.step}")


def _mark(copy: Plan, contents: Contents, file: str = FILE) -> None:
    text = contents.model_dump_json(by_alias=True)
    Location(f"{copy.root}/{file}").replace_bytes(text.encode())


def _read(copy: Plan, file: str = FILE) -> Contents | None:
    """Return what a folder says of itself in a file; None without it."""
    location = Location(f"{copy.root}/{file}")
    raw = location.read_bytes()
    if raw is None:
        return None
    stored = StoredDocument("The savepoint", location)
    return stored.read(Contents, stored.parsed(raw))


def _whole(copy: Plan, spec: Pipeline) -> Contents:
    contents = _read(copy)
    if contents is None or not contents.is_whole:
        raise _none(copy, copy.all_pipelines)
    if contents.pipeline != spec.name:
        raise _damaged(copy, f"pipeline {contents.pipeline}")
    return contents


def _report(spec: Pipeline, contents: Contents, lines: list[str], next_step: str = "") -> Report:
    held = contents.held
    counts = {"savepoint_step": contents.step, "now_ms": contents.now_ms, "files": held.files, "bytes": held.bytes}
    return Report(spec.name, lines, counts, {"versions": contents.versions}, next_step=next_step)


def _none(copy: Plan, uri: str) -> ConfigError:
    return ConfigError.of(
        f"There is no savepoint of '{copy.spec.name}'.",
        got=uri,
        allowed="the --to of 'ebbtide savepoint', once it has ended well",
    )


def _has_tables(plan: Plan, uri: str) -> ConfigError:
    return ConfigError.of(
        f"'{plan.spec.name}' has tables, and does not start from a savepoint.",
        got=plan.root,
        allowed=f"a --root without them: then --from {uri} copies the savepoint there",
        next_step="To go back in these tables: 'ebbtide rewind'.",
    )


def _damaged(copy: Plan, got: str) -> DamagedFileError:
    return DamagedFileError.of(
        f"The savepoint at '{copy.root}' is damaged.", got=got, next_step="Use another savepoint."
    )
