"""A project of several pipelines that one process follows: their specs, their sources, and what their sinks should show."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from frame.waiting import PATIENCE_S
from servers.kafka_support import plainly

from ebbtide import load
from ebbtide.delta import Snapshot
from ebbtide.errors import EbbtideError

NAMES = ("a", "b", "c")


class Project:
    """Pipelines in folders of a project, and their sources.

    Args:
        folder: Of the project.
        names: Of the pipelines.
        broker: Has a topic of each; None: their sources are folders of files.
        fields: Further fields of the specs.
    """

    def __init__(self, folder: Path, names: tuple[str, ...] = NAMES, broker: Any = None, **fields: Any) -> None:
        self.folder = folder
        self.root = str(folder / "root")
        self.truth: dict[str, dict[int, int]] = {name: {} for name in names}
        self._broker = broker
        self._n_put = 0
        (folder / "pyproject.toml").write_text("")
        for name in names:
            source = {"path": f"data/{name}", "records": "value"}
            if broker is None:
                self._source(name).mkdir(parents=True)
            else:
                broker.create(self._topic(name))
                source = {"type": "kafka", "bootstrap_servers": broker.servers, "topic": self._topic(name)}
            attributes = {
                "name": name,
                "source": source,
                "format": {"type": "plain"},
                "schema": "id BIGINT, n BIGINT",
                "key": ["id"],
                "order": {"sequence": ["n"]},
                "trigger_interval": "50ms",
                **fields,
            }
            spec = folder / "defs" / name / "defs.yaml"
            spec.parent.mkdir(parents=True)
            spec.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": attributes}))

    def _source(self, name: str) -> Path:
        return self.folder / "data" / name

    def _topic(self, name: str) -> str:
        return f"{self.folder.name}.{name}"

    def put(self, name: str, n_rows: int) -> None:
        """Add changes of some keys."""
        self._n_put += 1
        number = self._n_put
        rows = {id_: 1000 * number + id_ for id_ in range(number, number + n_rows)}
        self.truth[name] |= rows
        lines = [json.dumps({"kind": "+U", "row": {"id": id_, "n": n}}) for id_, n in rows.items()]
        if self._broker is not None:
            self._broker.put(self._topic(name), plainly(*lines))
            return
        written = self._source(name) / f".{number:04d}"
        written.write_text("\n".join(lines) + "\n")
        written.rename(written.with_name(f"{number:04d}.jsonl"))

    def rows(self, name: str) -> dict[int, int]:
        """What a sink shows; empty before there is one."""
        try:
            sink = Snapshot.read(f"{self.root}/{name}/sink")
        except EbbtideError:
            return {}
        columns = load(self.folder / "defs" / name).sink_table.columns
        return {} if sink is None else {row["id"]: row["n"] for row in sink.rows(columns).to_pylist()}

    def wait(self, process: subprocess.Popen[str], *names: str) -> None:
        """Wait until sinks are equal to the truth."""
        end_s = time.monotonic() + PATIENCE_S
        while any(self.rows(name) != self.truth[name] for name in names):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end_s
            time.sleep(0.05)

    def command(self, *options: str) -> list[str]:
        return ["run", str(self.folder / "defs"), "--root", self.root, "--follow", *options]

    def follow(self, *options: str) -> subprocess.Popen[str]:
        """Begin to follow all in a process of its own."""
        run = [sys.executable, "-m", "ebbtide.cli", *self.command(*options)]
        return subprocess.Popen(run, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
