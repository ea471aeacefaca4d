"""A state that is folded at random points is read like one that is not, by steps, checks and repairs."""

import random
from itertools import product

import pytest
from local.folding import KINDS, FoldedAtRandom, in_sink, newest_versions_of, spec_at_random, steps_at_random, told

from ebbtide.testing import MemoryPipeline

MORE = [pytest.param(kind, seed, marks=pytest.mark.grid) for kind, seed in product(KINDS, range(1, 10))]


@pytest.mark.parametrize(
    ("kind", "seed"), [*product(KINDS, range(1)), ("sequence", 36), ("rows of a function", 38), *MORE]
)
def test_state_folded_at_random_points_agrees_with_the_sink(tmp_path, kind, seed):
    rng = random.Random(f"{kind}{seed}")
    spec = spec_at_random(kind, rng)
    folded, unfolded = FoldedAtRandom(spec, tmp_path, rng), MemoryPipeline(spec)
    for lines, now_ms in steps_at_random(kind, rng):
        folded.play(lines, now_ms)
        if lines:
            unfolded.step(lines, now_ms=now_ms)
        else:
            unfolded.tick(now_ms=now_ms)
        assert folded.rows() == unfolded.rows(), "a step reads the same entries"
        shown = in_sink(folded.plan)
        for key, row in told(folded.plan).items():
            assert shown.get(key) == row, "as a check reads it"
        if kind == "rows of a function":
            continue  # its state keeps no rows to compare or repair the sink with
        entries = [entry for entry in newest_versions_of(folded.plan) if not entry["_removed"]]
        visible = [entry for entry in entries if entry.get("_shown", not entry.get("_tombstone"))]
        rows = {(entry["id"],): {name: entry[name] for name in ("id", "n", "w")} for entry in visible}
        assert len(rows) == len(visible), "one row of a key is shown"
        without_cause = {key: {name: row[name] for name in ("id", "n", "w")} for key, row in shown.items()}
        assert rows.items() <= without_cause.items(), "as a repair reads it"
        frontier = folded.head.facts.frontier
        if frontier is not None and not frontier.orphans:
            assert rows == without_cause
