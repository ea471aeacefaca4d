"""Rows of the sink compared with those that it must have, in this process; on Spark: `tests/spark/test_rules.py`."""

import json
import random

from oracles.random_rows import KEY, compared_at_random

from ebbtide.checks._completeness import differing_keys
from ebbtide.checks._engines import InProcess, broken
from ebbtide.checks._samples import ROWS_AS_TEXT
from ebbtide.columns import equality_key


def rows_by_key(rows):
    """Key to what the rows are equal by, sorted; a row of a null key is of no key."""
    found = {}
    for row in rows:
        values = [value for name, value in row.items() if name not in ("_step", "_ebbtide_is_decided")]
        found.setdefault(row[KEY[0]], []).append(repr(equality_key(values)))
    return found


def test_keys_are_found_whose_rows_are_not_equal_to_the_one_that_is_to_be():
    n_found = 0
    for seed in range(12):
        rows = compared_at_random(random.Random(seed))
        [found] = broken(InProcess(), rows, [differing_keys.expected()])
        decided = rows_by_key(row for row in rows.inputs["decided"].read().to_pylist() if row["_ebbtide_is_decided"])
        shown = rows_by_key(rows.inputs["shown"].read().to_pylist())
        want = {key for key in {*decided, *shown} if decided.get(key) != shown.get(key) or key is None}
        assert {row.get(KEY[0]) for row in found.sample} == want, seed
        assert found.count == len(want)
        n_found += found.count
        for row in found.sample:
            for name in set(ROWS_AS_TEXT) & row.keys():
                assert json.loads(row[name])[KEY[0]] == row.get(KEY[0])
    assert n_found > 12
