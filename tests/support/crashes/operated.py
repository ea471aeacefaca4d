"""Faults that operators meet, each made for real to a pipeline that its commands have run; and what their commands, alerts and Dagster say."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from click import Context
from click.testing import CliRunner, Result
from crashes import damages
from frame.alert_rules import firing
from frame.users import without_override
from local.local_pipeline import LocalPipeline, up
from local.local_run import change_state, make_table
from local.metrics_support import Samples, command, samples_of

import ebbtide
from ebbtide.cli import main
from ebbtide.dagster import ClockResource, StorageResource, pipeline_definitions
from ebbtide.delta import Log, Snapshot
from ebbtide.ledger import Lease
from ebbtide.runtime import system_clock

NAMED = re.compile(r"'\S*ebbtide ([a-z][^']*)'")
"""A command in the output of another one, ready to type."""
ROWS = {1: 1, 2: 1, 3: 1, 4: 4}
"""Rows of the sink once all is read."""
MORE = up(4, 4, "+I")
"""A record that waits."""
DAY_MS = 86_400_000
FEATURE = "rowTracking"


class Operated(LocalPipeline):
    """A pipeline that is run by its command, at the present time, so that each command may be tried on it.

    Three steps are made; the folder `earlier` has its tables as the first one left them, `now` as the last one did.
    """

    def order(self, name: str, *options: str) -> Result:
        """Call a command on it."""
        return command(self, self.source.parent, name, *options)

    def run_at(self, clock_ms: int) -> None:
        """Run on a host whose clock says so."""
        ebbtide.run(ebbtide.InProcess(lambda _: clock_ms), self.spec, self.root, clock=lambda: clock_ms)

    def typed(self, line: str) -> Result:
        """Call a command as a message names it; what it would only plan it does, and it is not asked twice."""
        words = shlex.split(line)
        known = main.get_command(Context(main), words[0])
        assert known is not None, line
        names = {name for option in known.params for name in option.opts}
        further = [option for option in ("--apply", "--yes") if option in names and option not in words]
        return CliRunner().invoke(main, [*words, *further])

    def follow_up(self, names: Iterable[str]) -> list[str]:
        """Call commands one after the other, each as the last one named it, or `status`; return those that no output names."""
        said = ""
        for name in names:
            said += self.order("status").output
            lines = [line for line in NAMED.findall(said) if line.split()[0] == name]
            if not lines:
                return [name, said]
            said = self.typed(lines[0]).output
        return []

    def prepare(self) -> None:
        """Make the steps."""
        for number in (1, 2, 3):
            self.put(up(number, 1), *(["{"] if number != 2 else []))
            assert self.order("run").exit_code == 0
            if number == 1:
                shutil.copytree(self.home, self.home.with_name("earlier"))
        shutil.copytree(self.home, self.home.with_name("now"))

    def put_back(self, name: str) -> None:
        """Put a folder back to what the last step left."""
        shutil.rmtree(self.home / name, ignore_errors=True)
        shutil.copytree(self.home.with_name("now") / name, self.home / name)

    def forget(self) -> None:
        """Begin with no table."""
        shutil.rmtree(self.home)

    def folder(self, name: str) -> Path:
        """The folder of a table's log."""
        return self.home / name / Log.FOLDER

    def scraped(self) -> Samples:
        """Return the samples of its metrics; the disk is this machine's."""
        found = samples_of(self.order("status", "--metrics").stdout)
        return {key: value for key, value in found.items() if not key[0].startswith("ebbtide_disk")}

    def ticked(self) -> tuple[list[str], str]:
        """Return the jobs that Dagster's sensor launches at its first look, and what its second one says."""
        [sensor] = [each for each in pipeline_definitions(self.spec).sensors if each.name == "ebbtide_backlog"]
        resources = {"storage": StorageResource(root=self.root), "clock": ClockResource()}

        def look(cursor: str | None) -> dg.SensorResult:
            with dg.build_sensor_context(dg.DagsterInstance.ephemeral(), cursor, resources=resources) as context:
                found = sensor(context)
                assert isinstance(found, dg.SensorResult)
                return found

        first = look(None)
        second = look(first.cursor)
        said = second.skip_reason
        launched = [str(request.job_name) for request in first.run_requests or ()]
        return launched, said.skip_message if isinstance(said, dg.SkipReason) else ""


Make = Callable[[Operated], Any]


def tear(name: str) -> Make:
    """Cut the newest commit of a table."""

    def make(pipeline: Operated) -> None:
        newest = max(pipeline.folder(name).glob("*.json"))
        newest.write_bytes(newest.read_bytes()[:20])

    return make


def lose_first_commit(name: str) -> Make:
    """Delete the first commit of a table."""
    return lambda pipeline: min(pipeline.folder(name).glob("*.json")).unlink()


def lose(name: str) -> Make:
    """Delete a folder."""
    return lambda pipeline: shutil.rmtree(pipeline.home / name)


def earlier(name: str) -> Make:
    """Put a table back to what the first step left."""
    return lambda pipeline: damages.put_earlier_back(pipeline, name)


def change_spec(**fields: Any) -> Make:
    """Change the spec."""

    def make(pipeline: Operated) -> None:
        pipeline.spec = pipeline.with_fields(**fields)

    return make


def nothing(_: Operated) -> None:
    """Leave all as it is."""


def need_spark(pipeline: Operated) -> None:
    """Ask for a transform, and for no Spark."""
    select = {"id": "id", "n": "n"}
    change_spec(engine="local", transform={"schema": "id BIGINT, n INT", "key": ["id"], "select": select})(pipeline)


def spec_back(pipeline: Operated) -> None:
    """Change the spec back."""
    pipeline.spec = pipeline.with_fields()


def has_feature(pipeline: Operated) -> None:
    """Turn a feature of the sink on that Ebbtide does not write, as another client does."""
    sink = _sink(pipeline)
    _alter(pipeline, {"protocol": {**sink.protocol, "writerFeatures": [*sink.protocol["writerFeatures"], FEATURE]}})


def no_feature(pipeline: Operated) -> None:
    """Drop it again."""
    sink = _sink(pipeline)
    features = [name for name in sink.protocol["writerFeatures"] if name != FEATURE]
    _alter(pipeline, {"protocol": {**sink.protocol, "writerFeatures": features}})


def append_only(is_on: str) -> Make:
    """Forbid deletes from the sink, as another client does, or allow them again."""

    def make(pipeline: Operated) -> None:
        metadata = _sink(pipeline).metadata
        _alter(
            pipeline,
            {"metaData": {**metadata, "configuration": {**metadata["configuration"], "delta.appendOnly": is_on}}},
        )

    return make


def _sink(pipeline: Operated) -> Snapshot:
    found = Snapshot.read(pipeline.plan.sink.path, any_features=True)
    assert found is not None
    return found


def _alter(pipeline: Operated, action: dict[str, Any]) -> None:
    """Commit an action to the sink, whatever its features are."""
    commit = pipeline.folder("sink") / f"{_sink(pipeline).version + 1:020d}.json"
    info = {"commitInfo": {"timestamp": system_clock(), "operation": "SET TBLPROPERTIES"}}
    commit.write_text("".join(json.dumps(line) + "\n" for line in (info, action)))


def files_of(pipeline: Operated, name: str) -> Iterator[Path]:
    """Yield the data files of a table."""
    found = Snapshot.read(pipeline.plan.at(name))
    assert found is not None
    for file in found.files.values():
        yield Path(file.location(found.table))


def lose_files(name: str) -> Make:
    """Delete all data files of a table."""
    return lambda pipeline: [file.unlink() for file in files_of(pipeline, name)]


def cut_files(name: str) -> Make:
    """Cut all data files of a table."""
    return lambda pipeline: [file.write_bytes(file.read_bytes()[:-30]) for file in files_of(pipeline, name)]


def theirs(pipeline: Operated) -> None:
    """Put a table of another client in the sink's place, before the first step."""
    pipeline.forget()
    make_table(pipeline.plan.sink.path, pipeline.spec.sink_table.columns)


def move_source(pipeline: Operated) -> None:
    """Move the source's files."""
    pipeline.source = pipeline.source.rename(pipeline.source.with_name("moved"))
    spec_back(pipeline)


def no_source(pipeline: Operated) -> None:
    """Move the source's files away."""
    pipeline.source.rename(pipeline.source.with_name("aside"))


def source_again(pipeline: Operated) -> None:
    """Move them back."""
    pipeline.source.with_name("aside").rename(pipeline.source)


def append_to_source(pipeline: Operated) -> None:
    """Add a record to a file that was read."""
    with (pipeline.source / "0000.jsonl").open("a") as file:
        file.write(up(4, 3) + "\n")


def torn_archive(pipeline: Operated) -> None:
    """Deliver half a file."""
    whole = gzip.compress(f"{up(4, 3)}\n".encode() * 50)
    (pipeline.source / "0004.jsonl.gz").write_bytes(whole[:-9])


def whole_archive(pipeline: Operated) -> None:
    """Deliver it again."""
    (pipeline.source / "0004.jsonl.gz").write_bytes(gzip.compress(f"{up(4, 3)}\n".encode() * 50))


def late_file(pipeline: Operated) -> None:
    """Deliver a file under a name that sorts below those that were read."""
    (pipeline.source / "0000-late.jsonl").write_text(up(4, 4) + "\n")


def late_file_later(pipeline: Operated) -> None:
    """Give it another name."""
    (pipeline.source / "0000-late.jsonl").rename(pipeline.source / "0009.jsonl")


def all_bad(pipeline: Operated) -> None:
    """Have only bad records read since the first one."""
    pipeline.forget()
    for file in pipeline.source.iterdir():
        file.write_text("{\n")
    assert pipeline.order("run").exit_code == 1


def good_source(pipeline: Operated) -> None:
    """Deliver good ones under the same names."""
    for number, file in enumerate(sorted(pipeline.source.iterdir())):
        file.write_text(up(number + 1, 4 if number == 3 else 1) + "\n")


def many_bad(pipeline: Operated) -> None:
    """Have more bad records read than the spec allows, and judged."""
    pipeline.fields = {**pipeline.fields, "checks": {"max_quarantine_rate": 0.1}}
    spec_back(pipeline)
    pipeline.put("{", up(1, 0))
    pipeline.order("run")
    pipeline.order("check", "--only", "quarantine_rate")


def too_many_at_once(pipeline: Operated) -> None:
    """Allow fewer bad records than come."""
    _add(pipeline, "{", "{")
    change_spec(quarantine={"max_rows_per_step": 1})(pipeline)


def unknown_column(pipeline: Operated) -> None:
    """Refuse columns that the schema lacks, of which one comes."""
    _add(pipeline, up(4, 4, colour="red"))
    change_spec(schema_evolution_mode="fail")(pipeline)


def _add(pipeline: Operated, *lines: str) -> None:
    """Have further records in the newest file, which no run has read."""
    newest = max(pipeline.source.iterdir())
    newest.write_text(newest.read_text() + "".join(line + "\n" for line in lines))


def pause(pipeline: Operated) -> None:
    """Pause it."""
    assert pipeline.order("pause", "--reason", "a migration").exit_code == 0


def step_at(days: int) -> Make:
    """Make a step on a host whose clock is some days ahead."""

    def make(pipeline: Operated) -> None:
        pipeline.put(up(1, 0))
        pipeline.run_at(system_clock() + days * DAY_MS)

    return make


def held_clock(pipeline: Operated) -> None:
    """Have the clock of the last step held, on a host whose clock is right: the steps before were made long ago."""
    pipeline.forget()
    pipeline.fields = {**pipeline.fields, "max_clock_jump": "1d"}
    spec_back(pipeline)
    pipeline.run_at(system_clock() - 400 * DAY_MS)
    pipeline.put(up(1, 0))
    pipeline.run_at(system_clock())


def killed(pipeline: Operated) -> None:
    """Leave the lease behind, as a process does that is killed."""
    if os.fork() == 0:
        Lease(pipeline.plan.at("ledger"), "t", 60).__enter__()
        os._exit(9)
    os.wait()


def old_records(pipeline: Operated) -> None:
    """Have records wait for longer than the spec allows."""
    pipeline.fields = {**pipeline.fields, "freshness": {"fail_window": "2h"}}
    spec_back(pipeline)
    then = (datetime.now(UTC) - timedelta(hours=5)).timestamp()
    for file in pipeline.source.iterdir():
        os.utime(file, (then, then))


@contextmanager
def no_rights(pipeline: Operated) -> Iterator[None]:
    """Take the right to write to its tables away."""
    folders = [pipeline.home, *(path for path in pipeline.home.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with without_override():
            yield
    finally:
        for folder in folders:
            folder.chmod(0o755)


def rows_of_the_state_changed(pipeline: Operated) -> None:
    """Delete rows of the state, as another client does."""
    change_state(pipeline.plan)


@dataclass(frozen=True)
class Seen:
    """What is seen of a fault, before and after its run.

    Args:
        level: The level that `status` shows before the run.
        text: What it says.
        samples: Samples of the metrics.
        alerts: The rules that fire.
        launched: The jobs that Dagster launches.
        said: What its sensor says.
    """

    level: str
    text: str
    samples: Samples
    alerts: frozenset[str]
    launched: list[str]
    said: str

    @classmethod
    def of(cls, pipeline: Operated, before: Samples) -> Seen:
        """Look at a pipeline."""
        found = json.loads(pipeline.order("status", "--json").stdout)
        text = pipeline.order("status").output
        samples = pipeline.scraped()
        launched, said = pipeline.ticked()
        alerts = firing(before, samples, system_clock())
        return cls(found["level"], text, samples, alerts, launched, said)
