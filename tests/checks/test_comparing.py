"""Rows of the sink compared with those that it must have, in this process; on Spark: `tests/spark/test_rules.py`."""

import json
import random
from dataclasses import dataclass

import pyarrow as pa
from oracles.random_rows import KEY, compared_at_random, damaged, rows_at_random

from ebbtide.checks._engines import InProcess, broken
from ebbtide.checks._ordering import decision_mismatches
from ebbtide.checks._samples import sample_of
from ebbtide.columns import equality_key
from ebbtide.runtime._workers.comparing import CompareRange
from ebbtide.tables import HashRange


def rows_by_key(rows, equal_by=equality_key):
    """Key to what the rows are equal by."""
    found = {}
    for row in rows:
        values = [value for name, value in row.items() if name != "_ebbtide_is_decided"]
        found.setdefault(row[KEY[0]], []).append(repr(equal_by(values)))
    return found


def has_rows_of_its_key(sample):
    for row in sample:
        for name in {"_decided", "_shown"} & row.keys():
            assert json.loads(row[name])[KEY[0]] == row.get(KEY[0])
    return True


def test_rows_are_found_that_are_not_equal_to_the_one_that_is_to_be():
    n_found = 0
    for seed in range(12):
        rows = compared_at_random(random.Random(seed))
        [found] = broken(InProcess(), rows, [decision_mismatches.expected()])
        decided = rows.inputs["decided"].read().to_pylist()
        is_decided = {row[KEY[0]]: row["_ebbtide_is_decided"] for row in decided}
        wanted = rows_by_key(decided, list)  # unlike in ranges of keys, -0.0 is not 0.0
        shown = rows_by_key(rows.inputs["shown"].read().to_pylist(), list)
        want = []
        for key, [row] in wanted.items():
            own = shown.get(key, [])
            differing = [other for other in own if not is_decided[key] or other != row]
            want += [key] * (len(differing) or (is_decided[key] and not own))
        assert [row[KEY[0]] for row in found.sample] == want, seed
        assert found.count == len(want)
        assert has_rows_of_its_key(found.sample)
        n_found += found.count
    assert n_found > 12


@dataclass(frozen=True)
class Given:
    """Rows of one side of a comparison."""

    table: pa.Table
    key: tuple[str, ...]

    @property
    def n_rows(self):
        return len(self.table)

    def rows(self, part):
        return part.only(self.table, self.key).append_column(
            "_step", pa.nulls(len(part.only(self.table, self.key)), pa.int64())
        )


def test_keys_are_found_whose_rows_are_not_exactly_the_one_that_is_to_be():
    n_found = 0
    for seed in range(12):
        rng = random.Random(seed)
        rows = rows_at_random(rng)
        decided = rows.filter(pa.array(rng.choices([True, True, False], k=len(rows))))
        shown = damaged(rng, rows)
        key = tuple(KEY)
        accepted = pa.schema([rows.schema.field(KEY[0]), ("_step", pa.int64())]).empty_table()
        names = tuple(rows.column_names)
        compare = CompareRange(Given(decided, key), Given(shown, key), names, accepted, n_samples=20)
        wanted, found = rows_by_key(decided.to_pylist()), rows_by_key(shown.to_pylist())
        want = {name for name in {*wanted, *found} if wanted.get(name) != found.get(name)}
        for n_parts in (1, 3):
            compared = [compare(HashRange(number, n_parts)) for number in range(n_parts)]
            assert {name for each in compared for name in each.differing[KEY[0]].to_pylist()} == want, seed
            samples = sample_of(pa.concat_tables([each.samples for each in compared]))
            assert {row.get(KEY[0]) for row in samples} == want
            assert len(samples) == len(want)
            assert has_rows_of_its_key(samples)
            assert {row.get(KEY[0]) for row in samples if "_decided" in row} == want & wanted.keys()
            assert {row.get(KEY[0]) for row in samples if "_shown" in row} == want & found.keys()
        n_found += len(want)
    assert n_found > 12
