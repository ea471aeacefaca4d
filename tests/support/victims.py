"""Pipelines to be killed: their specs, their records, what their tables must hold, and what their tables do hold.

Each has three files with changes of a few keys and a bad record in each. What the sink must show is computed from the lines alone.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from oracles.reference import Event, Histories, fold_log

from ebbtide import ListStateDescriptor, StatefulFunction, StatefulPipeline, UpsertPipeline, ValueStateDescriptor
from ebbtide.delta import DataFile, Log, Snapshot
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline

Row = dict[str, Any]
FILES = 3
BAD = ["{", "[", "]"]
KINDS = ("arrival", "sequence", "stateful", "partitioned")
"""The last one is by sequence too; others have partitioned its sink, which has properties of the user's."""
PROPERTIES = {"delta.logRetentionDuration": "interval 40 days", "team": "shop"}
PARTITIONS = (None, "e u/%ü", "v0", "v1")
"""Values of its partition column."""
KEYS = 12
ALTERED_SCHEMA = "id BIGINT, text STRING, n BIGINT, more INT DEFAULT 7"
ALTERED = ("text", "more")
"""Columns that a migration has made: what the feed said before it is of others."""


class Totals(StatefulFunction):
    """Shows the sum of all values of a key, the values themselves, and the sum of those that have expired."""

    output = "total BIGINT, seen ARRAY<BIGINT>, ended BIGINT"
    total = ValueStateDescriptor("BIGINT")
    seen = ListStateDescriptor("BIGINT")
    ended = ValueStateDescriptor("BIGINT")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Row]:
        for change in rows:
            self.total.update((self.total.get() or 0) + change.row["n"])
            self.seen.add(change.row["n"])
        yield self.row()

    def on_expire(self, key: Any, entry: Any, ctx: Any) -> Iterator[Row]:
        if entry.state == "seen":
            self.ended.update((self.ended.get() or 0) + entry.value)
        yield self.row()

    def row(self) -> Row:
        """What the sink shows."""
        return {"total": self.total.get(), "seen": list(self.seen.get()), "ended": self.ended.get()}


def spec_of(kind: str, source: Path, *, ttl: str = "2h", **more: Any) -> Pipeline:
    """Make the spec of a kind of victim."""
    records = {"path": str(source), "records": "value", "max_files_per_step": 1}
    schema = more.pop("schema", "id BIGINT, v STRING, n BIGINT")
    fields: dict[str, Any] = {"name": kind, "source": records, "key": ["id"], **more}
    if kind == "stateful":
        by_state = {"total": ttl, "seen": ttl}
        return StatefulPipeline(
            format={"type": "plain"}, schema="id BIGINT, n BIGINT", function="victims:Totals", ttl=by_state, **fields
        )
    if kind == "partitioned":
        fields["sink"] = {"table_properties": PROPERTIES}
    if kind in ("sequence", "partitioned"):
        order = {"sequence": ["n"]}
        return UpsertPipeline(format={"type": "plain"}, schema=schema, order=order, ttl=ttl, **fields)
    placed = {"type": "plain", "position": ["p", "o"]}
    emitting = {"emission": "every"}
    return UpsertPipeline(format=placed, schema=schema, order="arrival", ttl=ttl, materializer=emitting, **fields)


def spec_for(job: str, kind: str, source: Path) -> Pipeline:
    """Make the spec that a job is asked for with: a migration has another one."""
    if job == "migrate":
        return spec_of(kind, source, ttl="1d")
    if job == "alter":
        return spec_of(kind, source, schema=ALTERED_SCHEMA, columns={"text": {"renamed_from": "v"}})
    return spec_of(kind, source)


def kinds_for(job: str) -> tuple[str, ...]:
    """Return the kinds that a job can be done with: a function's state says nothing of single columns or rows of its sink."""
    return tuple(kind for kind in KINDS if kind != "stateful") if job in ("alter", "adopt", "restore") else KINDS


def load(kind: str, text: str) -> Pipeline:
    """Read a spec that came from another process."""
    model = StatefulPipeline if kind == "stateful" else UpsertPipeline
    return model(**json.loads(text))


def changes_of(kind: str, seed: int = 0, n: int = 16) -> list[tuple[str, Row]]:
    """Draw changes, in order of arrival."""
    rng = random.Random(f"{kind}{seed}")
    changes: list[tuple[str, Row]] = []
    alive: list[Row] = []
    for number in range(n * FILES):
        row: Row = {"id": rng.randrange(KEYS), "v": f"v{number}", "n": number}
        if kind == "stateful":
            changes.append(("+I", {"id": row["id"], "n": number}))
        elif kind == "partitioned":
            row["v"] = PARTITIONS[number % len(PARTITIONS)]
            changes.append((rng.choice(["+I", "+U", "-D"]), row))
        elif kind == "sequence":
            changes.append((rng.choice(["+I", "+U", "-D", "-D"]), row))
        elif alive and rng.random() < 0.3:
            changes.append((rng.choice(["-U", "-D"]), alive.pop(rng.randrange(len(alive)))))
        else:
            alive.append(row)
            changes.append((rng.choice(["+I", "+U"]), row))
    if kind in ("sequence", "partitioned"):
        rng.shuffle(changes)
    return changes


def lines_of(kind: str, seed: int = 0) -> list[list[str]]:
    """Write the changes as the lines of the files, a bad one in each."""
    changes = changes_of(kind, seed)
    texts = []
    for number, (change, row) in enumerate(changes):
        texts.append(json.dumps({"p": 0, "o": number, "kind": change, "row": row}))
    size = len(texts) // FILES
    return [[*texts[at * size : (at + 1) * size], BAD[at]] for at in range(FILES)]


def write_source(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, lines in enumerate(lines_of(kind, seed)):
        (folder / f"{number:04d}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def mended_line(number: int) -> str:
    """What the bad record of a file should have been: a row of a key of its own."""
    row = {"id": 100 + number, "v": "mended", "n": 1_000 + number}
    return json.dumps({"p": 1, "o": number, "kind": "+I", "row": row})


def expected(kind: str, changes: list[tuple[str, Row]]) -> list[Row]:
    """Return what the sink must show, in order of key, by the reference."""
    if kind == "arrival":
        histories = Histories(["id"])
        for change, row in changes:
            histories.apply(change, row)
        return sorted(histories.shown(), key=lambda row: row["id"])
    if kind in ("sequence", "partitioned"):
        events = [_event(change, row) for change, row in changes]
        rows = fold_log(events, ["id"])
        return [rows[at] for at in sorted(rows)]
    seen: defaultdict[int, list[int]] = defaultdict(list)
    for _, row in changes:
        seen[row["id"]].append(row["n"])
    return [{"id": id_, "total": sum(values), "seen": values, "ended": None} for id_, values in sorted(seen.items())]


def _event(change: str, row: Row) -> Event:
    is_delete = change == "-D"
    return Event("d" if is_delete else "c", row["n"], row if is_delete else None, None if is_delete else row)


def shown(spec: Pipeline, root: Path | str) -> list[Row]:
    """Return the sink's rows, the user's columns only, in order of key."""
    rows = _rows(Plan.under(str(root), spec).at("sink"), spec.sink_table.columns)
    return sorted(rows, key=lambda row: row["id"])


def tables(spec: Pipeline, root: Path | str, *, with_feed: bool = True) -> dict[str, list[str]]:
    """Return all that a pipeline's tables mean: rows, live entries, emitted changes, bad records, files read, changes fed, the clock."""
    plan = Plan.under(str(root), spec)
    fed = [(kind, row) for _, kind, row in feed(plan)] if with_feed else []
    _, last = plan.state.last()
    sink = Snapshot.read(plan.at("sink"))
    assert spec.name != "partitioned" or sink is None or sink.partitioned, "it stays partitioned"
    return {
        "sink": texts(_rows(plan.at("sink"), plan.sink.schema)),
        "feed": texts(fed),
        "changelog": texts(_rows(plan.at("changelog"), plan.changelog.schema)) if spec.emits_every else [],
        "entries": texts(entries(plan)),
        "files": texts(plan.state.files(plan.state.snapshot().files.values()).items()),
        "quarantine": texts(_rows(plan.at("quarantine"), plan.quarantine.schema)),
        "clock": [repr((last.now_ms, last.frontier.watermark_ms))],
    }


def _rows(table: str, columns: pa.Schema) -> list[Row]:
    snapshot = Snapshot.read(table)
    rows: list[Row] = [] if snapshot is None else snapshot.rows(columns).to_pylist()
    return rows


def texts(rows: Iterable[Any]) -> list[str]:
    """Write rows as text, in order."""
    return sorted(map(repr, rows))


def entries(plan: Plan) -> list[Row]:
    """Return the newest version of each live entry of the state."""
    newest: dict[str, Row] = {}
    for row in plan.state.snapshot().rows(plan.state.schema).to_pylist():
        at = repr([row[name] for name in plan.operator.entry_key])
        is_entry = not plan.operator.has_named_states or row["_state"] is not None  # the others are rows for the sink
        if row["_entry"] == "row" and is_entry and row["_step"] >= newest.get(at, row)["_step"]:
            newest[at] = row
    return [row for row in newest.values() if not row["_removed"]]


def feed(plan: Plan) -> Iterator[tuple[int, str, Row]]:
    """Yield (version, kind, row) of the sink's change feed as Delta defines it: from its own files, else from the data files."""
    table, columns = plan.sink.path, _fed(plan)
    for version in Log(table).versions():
        actions = Log(table).commit(version)
        own = [action["cdc"] for action in actions if "cdc" in action]
        for file in own:
            rows = DataFile(file).read(table, columns.append(pa.field("_change_type", pa.string())))
            yield from ((version, row.pop("_change_type"), row) for row in rows.to_pylist())
        if not own:
            gone, came = (_changed(table, actions, action, columns) for action in ("remove", "add"))
            stayed = gone.keys() & came.keys()
            yield from ((version, "delete", row) for text, row in gone.items() if text not in stayed)
            yield from ((version, "insert", row) for text, row in came.items() if text not in stayed)


def _fed(plan: Plan) -> pa.Schema:
    """Return the columns that the feed has had from its beginning."""
    columns = plan.sink.schema
    return pa.schema([column for column in columns if column.name not in ALTERED])


def _changed(table: str, actions: list[Row], kind: str, columns: pa.Schema) -> dict[str, Row]:
    files = [DataFile(action[kind]) for action in actions if kind in action and action[kind]["dataChange"]]
    rows = [row for file in files for row in file.read(table, columns).to_pylist()]
    return {repr(row): row for row in rows}


def refuse_fed_twice(plan: Plan) -> None:
    """Refuse a feed that inserts what is there, or deletes what is not; in the end it must have made the sink."""
    key = plan.sink.key
    there: dict[str, Row] = {}
    by_version: defaultdict[int, list[tuple[str, Row]]] = defaultdict(list)
    for version, kind, row in feed(plan):
        by_version[version].append((kind, row))
    for version, changes in by_version.items():
        for kind, row in changes:
            if kind in ("delete", "update_preimage"):
                assert there.pop(repr([row[name] for name in key]), None) == row, f"version {version} deletes {row}"
        for kind, row in changes:
            if kind in ("insert", "update_postimage"):
                at = repr([row[name] for name in key])
                assert at not in there, f"version {version} inserts {row} twice"
                there[at] = row
    assert texts(there.values()) == texts(_rows(plan.sink.path, _fed(plan)))
