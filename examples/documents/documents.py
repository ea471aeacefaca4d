"""A sink of a project's own, or a further output: JSON documents, one for each step that changed rows, `LOCATION/00000012.json`. The newest one is the table."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from ebbtide.extend import Action, Apply, Clear, Erase, Restore, Rewrite, Sink, TableFacts, Work


class Options(BaseModel):
    """Fields beside `type: documents` in a spec's `sink`, or in one of its `outputs`."""

    model_config = ConfigDict(extra="forbid")

    indent: int | None = Field(default=None, description="Spaces by which a document is indented. Default: none.")


class Documents(Sink):
    """The sink.

    Args:
        options: What the spec says of it.
        location: Its folder.
        columns: The user's columns.
        key: Names of the key's columns.
    """

    Options = Options

    def __init__(self, options: Options, location: str, columns: pa.Schema, key: tuple[str, ...]) -> None:
        self.options = options
        self.path = location
        self.columns = columns
        self.key = key

    def create(self, executor: Any) -> None:
        """Make the document before the first step, without rows; its id is that of the table."""
        if not self._documents():
            Path(self.path).mkdir(parents=True, exist_ok=True)
            self._write(0, str(uuid.uuid4()), {})

    def facts(self) -> TableFacts | None:
        """Return id and step of the newest document."""
        documents = self._documents()
        if not documents:
            return None
        newest = json.loads(documents[-1].read_text())
        return TableFacts(id=newest["id"], step=newest["step"])

    def can(self, action: Action) -> bool:
        """Return whether `perform` knows an action; it goes back no further than to its first document."""
        if isinstance(action, Restore):
            return self._shown_after(action.version) is not None
        return isinstance(action, Apply | Clear | Erase | Rewrite)

    def perform(self, action: Action, work: Work) -> None:
        """Write the document of a step whole; a step that died before its document was there is performed again."""
        if isinstance(action, Erase):
            self._erase(work.doomed(action))
        newest = json.loads(self._documents()[-1].read_text())
        rows = newest["rows"]
        if isinstance(action, Clear):
            rows = {}
        elif isinstance(action, Rewrite):
            taken = work.take_shown(action, pa.Table.to_pylist)  # by task, where the rows are
            rows = {self._key_of(row): row for part in taken for row in part}
        elif isinstance(action, Restore):
            rows = json.loads(self._shown_after(action.version).read_text())["rows"]
        elif isinstance(action, Apply):
            for row in work.changes.rows(self.columns).to_pylist():
                if row.pop("_change") == "D":
                    rows.pop(self._key_of(row), None)
                else:
                    rows[self._key_of(row)] = row
        self._write(work.facts.step, newest["id"], rows)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the newest document."""
        return list(json.loads(self._documents()[-1].read_text())["rows"].values())

    def _key_of(self, row: dict[str, Any]) -> str:
        return json.dumps([row[name] for name in self.key], default=str)

    def _documents(self) -> list[Path]:
        return sorted(Path(self.path).glob("[0-9]*.json"))

    def _shown_after(self, step: int) -> Path | None:
        """Return the newest document of a step or an earlier one."""
        until = [document for document in self._documents() if int(document.stem) <= step]
        return until[-1] if until else None

    def _erase(self, doomed: Any) -> None:
        """Write each document again without the rows of erased keys, which `doomed` marks by the columns that it names."""
        for path in self._documents():
            document = json.loads(path.read_text())
            rows = document["rows"]
            keys = pa.Table.from_pylist(list(rows.values())).select(doomed.columns.names) if rows else None
            if keys is not None:
                is_erased = doomed.marks(keys.cast(doomed.columns))
                rows = {key: rows[key] for key, erased in zip(rows, is_erased, strict=True) if not erased}
            self._write(document["step"], document["id"], rows)

    def _write(self, step: int, id_: str, rows: dict[str, Any]) -> None:
        document = {"id": id_, "step": step, "rows": rows}
        unnamed = Path(self.path, f".{step}.tmp")
        unnamed.write_text(json.dumps(document, default=str, indent=self.options.indent))
        unnamed.rename(Path(self.path, f"{step:08}.json"))  # in one piece: rows and step, or neither
