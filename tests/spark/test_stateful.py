"""Stateful pipelines on Spark and Delta: the same function, its states in a table."""

from datetime import date
from decimal import Decimal

import pytest
from clusters.spark_support import sink, write
from frame.limits import set_limits
from servers.store_support import line, stateful

from ebbtide import StatefulPipeline, run
from ebbtide.runtime import Plan
from ebbtide.testing import MemoryPipeline


def over(source, function, **more):
    return stateful(function, source={"path": str(source), "records": "value", "max_files_per_step": 1}, **more)


def at(ms):
    return lambda: ms


def test_states_of_every_type_live_in_a_table_and_the_sink_is_that_of_memory(spark, tmp_path):
    set_limits(width=1000)  # superseded versions are left for the compaction
    parts = [
        [line(i % 5, v="abc"[(i + n) % 3], seq=i, day=f"2026-01-0{1 + i % 3}") for i in range(20)] for n in range(3)
    ]
    spec = over(write(tmp_path / "in", *parts), "user_functions:Everything", ttl={"recent": "365d"})
    assert run(spark, spec, str(tmp_path)).totals["updated"] == 15
    memory = MemoryPipeline(spec)
    for part in parts:
        memory.step(part)
    got = sink(spark, tmp_path, spec)
    assert [{**row, "per_word": sorted(row["per_word"])} for row in got] == [
        {**row, "per_word": sorted(row["per_word"])} for row in memory.rows()
    ]
    assert run(spark, spec, str(tmp_path)).steps == []

    tables = Plan.under(str(tmp_path), spec)
    before = {
        row["_sub"]: row
        for row in tables.state.frames.latest_versions(spark, tables.state.last()[0])
        .where("_state = 'profile'")
        .collect()
    }
    profile = before[""]["_value_profile"]
    assert isinstance(next(iter(profile["by_day"].values())), Decimal)
    assert isinstance(next(iter(profile["by_day"])), date)


HELPED = {
    "helped/__init__.py": "",
    "helped/functions.py": """
import helped.words
from ebbtide import StatefulFunction, ValueStateDescriptor

class Longest(StatefulFunction):
    output = "word STRING"
    word = ValueStateDescriptor("STRING")

    def process(self, key, rows, ctx):
        self.word.update(helped.words.longest([self.word.get() or "", *(change.row["v"] for change in rows)]))
        yield {"word": self.word.get()}
""",
    "helped/words.py": "def longest(words):\n    from helped import sizes\n    return max(words, key=sizes.size)\n",
    "helped/sizes.py": "size = len\n",
    "pyproject.toml": "",
    "defs.yaml": """
attributes: {name: t, source: {path: in, records: value}, format: {type: plain}, schema: 'id BIGINT, v STRING', key: [id],
             function: 'helped.functions:Longest'}
""",
}


@pytest.mark.grid
def test_function_whose_module_imports_others_of_its_project_runs_on_workers(spark, tmp_path):
    for name, text in HELPED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    write(tmp_path / "in", [line(1, v="a"), line(1, v="abc"), line(2, v="b")])
    spec = StatefulPipeline.load(tmp_path)
    run(spark, spec, str(tmp_path))
    assert sink(spark, tmp_path, spec) == [{"id": 1, "word": "abc"}, {"id": 2, "word": "b"}]
