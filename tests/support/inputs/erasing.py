"""Pipelines whose records have planted bytes in every part, to be erased; what a scan finds of them judges the erasure.

Nothing here uses what the erasure finds rows by: plants are found by their bytes, and rows are folded from the lines.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from click.testing import CliRunner
from frame.shell import Shell
from local.local_pipeline import LATER, KeptFolder, LocalPipeline
from local.local_run import HOUR, SPARK
from operating import operation_named

from ebbtide.cli import main
from ebbtide.operations import Context, Report
from ebbtide.sessions import executor_of

SCHEMA = "id STRING, v STRING, nested STRUCT<a: STRING, b: ARRAY<STRING>>, raw BINARY, n BIGINT"
POSITIONED = {"type": "plain", "position": ["p", "o"]}
KINDS: dict[str, dict[str, Any]] = {
    "sequence": {"order": {"sequence": ["n"]}, "ttl": "2h"},
    "arrival": {"order": "arrival", "materializer": {"emission": "every"}, "format": POSITIONED},
    "headers": {"order": {"sequence": ["n"]}},
    "rewrite": {"order": {"sequence": ["n"]}, "sink": {"write": "rewrite", "change_feed": "images"}},
    "function": {"function": "ebbtide.functions:LagLead", "output_key": ["id", "n"], "options": {"order_by": ["n"]}},
}
"""Kind to the fields of its spec."""


@dataclass
class Person:
    """A key, and all that was planted under it.

    Args:
        id: Its key, planted too.
    """

    id: str
    planted: dict[str, list[str]] = field(default_factory=dict)

    def plant(self, part: str) -> str:
        """Return a canary of this person's for a part of a record."""
        canary = secrets.token_hex(16)
        self.planted.setdefault(part, []).append(canary)
        return canary

    def row(self, n: int) -> dict[str, Any]:
        """Make a row with a canary in each column."""
        nested = {"a": self.plant("nested"), "b": [self.plant("list")]}
        raw = base64.b64encode(bytes.fromhex(self.plant("binary"))).decode()
        return {"id": self.id, "v": self.plant("value"), "nested": nested, "raw": raw, "n": n}

    @property
    def canaries(self) -> list[str]:
        """All of them."""
        return [self.id, *(canary for some in self.planted.values() for canary in some)]


class Plants:
    """A pipeline of a kind, people who are to be erased, and people who stay.

    Args:
        folder: Where its source and its tables are.
        kind: One of `KINDS`.
        n_erased: People to be erased.
        n_kept: People who stay.
        make: Makes the pipeline.
    """

    def __init__(self, folder: Path, kind: str, n_erased: int, n_kept: int, make: Any = LocalPipeline) -> None:
        self.kind = kind
        self.erased = [Person(secrets.token_hex(16)) for _ in range(n_erased)]
        self.kept = [Person(secrets.token_hex(16)) for _ in range(n_kept)]
        self.folder = folder
        self.rows: dict[str, dict[str, Any]] = {}
        self.files: list[list[str]] = []
        self.pipeline = make(folder, schema=SCHEMA, **KINDS[kind])
        if kind == "headers":
            self.pipeline.spec = self.pipeline.with_fields(source={"records": "kafka"})
        self._number = 0

    @property
    def people(self) -> list[Person]:
        """All of them."""
        return [*self.erased, *self.kept]

    @property
    def canaries(self) -> list[str]:
        """All that is to be erased."""
        return [canary for person in self.erased for canary in person.canaries]

    def line(self, kind: str, row: Any, person: Person) -> str:
        """Make a record, with its place; in an envelope also with a key and a header."""
        self._number += 1
        change = json.dumps({"kind": kind, "row": row, "p": 0, "o": self._number})
        if self.kind != "headers":
            return change
        headers = [["trace", person.plant("header")]]
        envelope = {"topic": "t", "partition": 0, "offset": self._number, "key": person.id, "value": change}
        return json.dumps({**envelope, "headers": headers})

    def lines(self) -> Iterator[list[str]]:
        """Yield the records of each file: rows, their updates, deletes of each third of them with bad records of all."""
        inserted = {person.id: person.row(1) for person in self.people}
        self.rows = dict(inserted)
        yield [self.line("+I", inserted[person.id], person) for person in self.people]
        if self.kind == "function":
            yield self._bad()
            return
        retracts = self.pipeline.spec.retracts
        updates = []
        for person in self.people:
            if retracts:
                updates.append(self.line("-U", self.rows[person.id], person))
            self.rows[person.id] = person.row(2)
            updates.append(self.line("+U", self.rows[person.id], person))
        yield updates
        deletes = []
        for person in self.people[::3]:
            row = self.rows.pop(person.id)
            deletes.append(self.line("-D", row if retracts else {**row, "n": 3}, person))
        yield [*deletes, *self._bad()]

    def _bad(self) -> list[str]:
        wrong = [self.line("+I", {**person.row(9), "n": person.plant("bad")}, person) for person in self.people]
        lacking = [self.line("+I", {"id": person.id, "v": person.plant("bad")}, person) for person in self.people]
        return [*wrong, *lacking]

    def play(self, run: Any = None, **given: Any) -> None:
        """Have all happen: a step for each file, each followed by a checkpoint, time that passes, maintenance, and left-overs."""
        run = run or (lambda **how: self.pipeline.do("run", **how))
        for lines in self.lines():
            self.files.append(lines)
            self.pipeline.put(*lines)
            run(checkpoints=1, width=100, **given)
        self.pipeline.do("run", LATER + 3 * HOUR, checkpoints=1, width=100)
        self.leave()

    def leave(self) -> None:
        """Leave what killed processes leave: staged rows, unfinished files, the log of a command."""
        home = Path(self.pipeline.root, self.pipeline.spec.name)
        if not home.is_dir():
            return
        person = self.erased[0]
        rows = pa.table({"id": [person.id], "v": [person.plant("staged")]})
        staged = home / "staged" / "7"
        staged.mkdir(parents=True)
        with pa.ipc.new_file(str(staged / "part-0.arrow"), rows.schema) as writer:
            writer.write_table(rows)
        logs = Path(self.pipeline.root, ".logs")
        logs.mkdir(exist_ok=True)
        (logs / f"2026-01-01-{2**22 + 1}.log").write_text(f"The value '{person.plant('log')}' is malformed\n")

    def act(
        self, action: str, spark: Any = SPARK, clock_ms: int = LATER + 3 * HOUR, where: str | None = None, **known: Any
    ) -> Report:
        """Plan, apply or release the erasure, of all keys to be erased or of those of rows by a condition; see `Context` for `known`."""
        file = self.folder / "keys.jsonl"
        file.write_text("".join(json.dumps({"id": person.id}) + "\n" for person in self.erased))
        operation = operation_named("erase")
        ctx = Context(
            self.pipeline.spec, self.pipeline.root, executor_of(spark), by="me", clock=lambda: clock_ms, **known
        )
        given = {"keys": str(file)} if where is None else {"where": where}
        return operation.act(action, ctx, operation.asked(given))

    def command(self, *options: str, keys: list[str] | None = None) -> tuple[int, str]:
        """Run `ebbtide erase` with a file of keys, by itself those to be erased; return its exit code and all that it prints."""
        attributes = json.loads(self.pipeline.spec.model_dump_json(by_alias=True, exclude_unset=True))
        document = {"type": "ebbtide.UpsertPipeline", "attributes": attributes}
        (self.folder / "defs.yaml").write_text(yaml.safe_dump(document))
        file = self.folder / "keys.jsonl"
        lines = [json.dumps({"id": person.id}) for person in self.erased] if keys is None else keys
        file.write_text("\n".join(lines))
        asked = ["erase", str(self.folder), "--root", self.pipeline.root, "--keys", str(file)]
        result = CliRunner().invoke(main, [*asked, *options])
        return result.exit_code, " ".join(result.output.split())

    def want(self) -> list[dict[str, Any]]:
        """The rows of those who stay, folded from the records: the newest of each key that was not deleted."""
        kept = {person.id for person in self.kept}
        rows = []
        for id_, row in self.rows.items():
            if id_ in kept:
                raw = base64.b64decode(row["raw"])
                rows.append({**row, "raw": raw})
        return sorted(rows, key=lambda row: row["id"])

    def shown(self) -> list[dict[str, Any]]:
        """The rows of the sink."""
        rows = self.pipeline.table("sink", self.pipeline.spec.sink_table.columns)
        return sorted(rows, key=lambda row: row["id"])


class Played:
    """Plants by sequence that have played, once for many tests: three people to be erased, and three who stay.

    Args:
        home: Takes them, and the local copies of their tables.
    """

    def __init__(self, home: Path) -> None:
        self.copies = home / "copies"
        self.plants = Plants(home / "plants", "sequence", 3, 3)
        with Shell() as shell:
            shell.export(EBBTIDE_CACHE=self.copies)
            self.plants.play()
        self.files = KeptFolder(home)
