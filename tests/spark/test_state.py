"""Stored state, read as rows."""

import json

import pytest
from clusters.spark_support import LOCAL, write
from servers.store_support import line, stateful

from ebbtide import run
from ebbtide.errors import ConfigError
from ebbtide.inspect import create_view, state

DAY = 86_400_000


@pytest.mark.grid
def test_state_is_read_as_rows_as_of_a_step_and_as_a_view(spark, tmp_path):
    root = str(tmp_path)
    parts = [[line(1, v="a", seq=5, day="2026-01-01")], [line(1, v="b", seq=6, day="2026-01-02")]]
    source = {"path": str(write(tmp_path / "in", *parts)), "records": "value", "max_files_per_step": 1}
    spec = stateful("user_functions:Everything", source=source, ttl={"recent": "1d"})
    last = run(LOCAL, spec, root).steps[-1].clock.now_ms
    [row] = state(spark, spec, root, state="profile").collect()
    assert (row["id"], row["state"], row["value"]["tags"], row["live"], row["expires"]) == (
        1,
        "profile",
        ["a", "b"],
        True,
        None,
    )
    assert [r["value"] for r in state(spark, spec, root, state="recent").orderBy("position").collect()] == [5, 6]
    assert {r["live"] for r in state(spark, spec, root, state="recent", now_ms=last + DAY).collect()} == {False}
    assert state(spark, spec, root, as_of_step=1).where("map_key = 'b'").count() == 0
    name = create_view(spark, spec, root)
    rows = spark.sql(f"SELECT state, map_key, value FROM {name} WHERE map_key IS NOT NULL ORDER BY map_key").collect()
    assert [(r["state"], r["map_key"], json.loads(r["value"])) for r in rows] == [
        ("per_word", "a", 1),
        ("per_word", "b", 1),
    ]
    with pytest.raises(ConfigError, match=r"Got: nope\. Allowed: profile, recent, per_word"):
        state(spark, spec, root, state="nope")
    with pytest.raises(ConfigError, match=r"Got: 9\. Allowed: 1 to 2"):
        state(spark, spec, root, as_of_step=9)
