"""State of entries that expire stays as small as those that live, with maintenance between the runs: `benchmarks/maintained.py` in small."""

import os
import random
from pathlib import Path

from local.local_pipeline import LocalPipeline
from local.local_run import BATCH_MS, SPARK, START
from local.support import change

from ebbtide.delta import Log, Snapshot, Writer
from ebbtide.delta import _vectors as vectors
from ebbtide.operations import maintain
from ebbtide.tables import _joining as joining

STEPS_OF_RUNS = (8, 4, 4, 4)
LIVES_FOR = 8
"""Steps that a row lives for: the clock goes on by `BATCH_MS` a step."""
FIELDS = {
    "schema": "id BIGINT NOT NULL, n INT, text STRING",
    "order": "arrival",
    "ttl": f"{LIVES_FOR * BATCH_MS}ms",
    "materializer": {"on_expire": "delete"},
}


class Written:
    """The rows that were written, each with the time of its last write: the truth that the tables are compared with."""

    def __init__(self):
        self.chance = random.Random(3)
        self.rows = {}
        self.n_steps = 0

    def step(self):
        """Write new rows, change and delete some that live: the lines of a file."""
        now_ms = START + self.n_steps * BATCH_MS
        self.n_steps += 1
        living = sorted(self.living(now_ms))
        lines = []
        for number in self.chance.sample(living, min(20, len(living))):
            row, _ = self.rows.pop(number)
            if self.chance.random() < 0.3:
                lines.append(change("-D", **row))
            else:
                lines += [change("-U", **row), self.put("+U", number, now_ms)]
        first = self.n_steps * 1_000
        return lines + [self.put("+I", number, now_ms) for number in range(first, first + 150)]

    def put(self, kind, number, now_ms):
        row = {"id": number, "n": self.chance.randrange(10**9), "text": f"{self.chance.getrandbits(256):x}"}
        self.rows[number] = (row, now_ms)
        return change(kind, **row)

    def living(self, now_ms):
        return {row["id"]: row["n"] for row, at_ms in self.rows.values() if at_ms + LIVES_FOR * BATCH_MS > now_ms}


def kept_up(pipeline, job, now_ms):
    return maintain(SPARK, pipeline.spec, pipeline.root, job, clock=lambda: now_ms)


def bytes_an_entry(pipeline, living):
    return sum(file.size for file in pipeline.plan.state.snapshot().files.values()) / len(living)


def names_on_disk(folder):
    return {path.name for path in folder.rglob("*") if path.is_file() and "_delta_log" not in path.parts}


def named_in_log(table):
    """Names of files that VACUUM knows of: those of the newest version, and those that a commit has removed or left for readers of changes."""
    acts = [file.add for file in Snapshot.read(table).files.values()]
    for version in Log(table).versions():
        acts += [action[kind] for action in Log(table).commit(version) for kind in ("remove", "cdc") if kind in action]
    names = {act["path"].rpartition("/")[2] for act in acts}
    located = {vectors.location_of(table, act["deletionVector"]) for act in acts if act.get("deletionVector")}
    return names | {place.rpartition("/")[2] for place in located if place}


def test_state_stays_as_small_as_its_live_entries_where_it_is_maintained(tmp_path):
    maintained, left_alone, fresh = (LocalPipeline(tmp_path / name, **FIELDS) for name in ("a", "b", "c"))
    written = Written()
    after_cleanup, after_compaction, without = [], [], []
    for number, n_steps in enumerate(STEPS_OF_RUNS):
        for _ in range(n_steps):
            lines = written.step()
            maintained.put(*lines)
            left_alone.put(*lines)
        now_ms = START + (written.n_steps - 1) * BATCH_MS
        maintained.run(now_ms)
        left_alone.run(now_ms)
        living = written.living(now_ms)
        assert maintained.rows() == left_alone.rows() == living
        without.append(bytes_an_entry(left_alone, living))
        kept_up(maintained, "cleanup", now_ms)
        after_cleanup.append(bytes_an_entry(maintained, living))
        if number % 3 == 2:
            assert kept_up(maintained, "compaction", now_ms)["entries"] == len(living)
            after_compaction.append(bytes_an_entry(maintained, living))
        for name in ("state", "sink"):
            assert len(Snapshot.read(maintained.plan.at(name)).files) <= joining.WIDTH
            unknown = names_on_disk(maintained.home / name) - named_in_log(maintained.plan.at(name))
            assert not unknown, f"{name}: no commit names these"
    fresh.put(*(change("+I", **row) for row, _ in written.rows.values() if row["id"] in living))
    fresh.run(START)
    least = bytes_an_entry(fresh, living)
    assert max(after_compaction) <= 1.1 * least
    assert max(after_cleanup) <= 1.4 * least, "a file may hide a quarter of its rows, and older versions are left"
    assert max(without) >= 2 * least, "what was measured is worth maintaining"
    for name in ("state", "sink"):
        shorten_retention(maintained.plan.at(name))
        Writer().trim_log(maintained.plan.at(name))
        assert len(Log(maintained.plan.at(name)).versions()) <= 2
    assert maintained.rows() == living


def shorten_retention(table):
    """Have all commits be older than the log keeps them."""
    for commit in Path(table, "_delta_log").iterdir():
        os.utime(commit, (10**9, 10**9))
