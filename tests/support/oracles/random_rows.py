"""Rows of any type at random, and what damage leaves of them."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ebbtide.checks._comparing import compared
from ebbtide.checks._dialects import Dialect
from ebbtide.checks._inputs import GivenRows
from ebbtide.checks._rule import Rows

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EARLY = datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC).replace(tzinfo=None)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    'k`e"y.': (pa.int64(), [None, 1, 2, 3]),
    "text": (pa.string(), [None, "", "a", "é", "Z'\\", "null"]),
    "double": (pa.float64(), [None, math.nan, 0.0, -0.0, 1e300, math.inf]),
    "small": (pa.decimal128(38, 10), [None, Decimal("1.5"), Decimal("-0.0000000001")]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1, 1, 1), date(2026, 1, 2)]),
    "at": (pa.timestamp("us", tz="UTC"), [None, AT, AT + timedelta(microseconds=1), AT + timedelta(milliseconds=1)]),
    "local": (pa.timestamp("us"), [None, AT.replace(tzinfo=None), EARLY]),
    "raw": (pa.binary(), [None, b"", b"\x00\xff"]),
    "list": (pa.list_(pa.int32()), [None, [], [1, None], [None, 1]]),
    "map": (pa.map_(pa.string(), pa.timestamp("us")), [None, [], [("a", None)], [("a", EARLY)]]),
    "struct": (
        pa.struct({"x": pa.float64(), "y": pa.string()}),
        [None, {"x": None, "y": None}, {"x": math.nan, "y": "b"}, {"x": 0.0, "y": "b"}, {"x": -0.0, "y": "b"}],
    ),
}
"""Column to its type and some values."""
KEY = [next(iter(VALUES))]
N_KEYS = 4


def rows_at_random(rng: random.Random) -> pa.Table:
    """Draw rows whose keys are distinct."""
    columns = {name: pa.array(rng.choices(values, k=N_KEYS), type_) for name, (type_, values) in VALUES.items()}
    columns[KEY[0]] = pa.array(range(N_KEYS), pa.int64())
    return pa.table(columns)


def damaged(rng: random.Random, rows: pa.Table) -> pa.Table:
    """Return rows of which some are gone, some there twice, some have another value in a column."""
    found = rows.to_pylist()
    for _ in range(rng.randint(0, 4)):
        row = dict(rng.choice(found))
        name = rng.choice(list(VALUES))
        row[name] = rng.choice(VALUES[name][1])
        found[rng.randrange(len(found))] = row
    if rng.random() < 0.5:
        found.append(rng.choice(found))
    if rng.random() < 0.5:
        found.pop(rng.randrange(len(found)))
    return pa.Table.from_pylist(found, rows.schema)


def compared_at_random(rng: random.Random) -> Rows:
    """Compare rows, some of which are not to be there, with damaged ones: inputs `decided` and `shown`."""
    rows = rows_at_random(rng)
    n = len(rows)
    decided = rows.append_column("_ebbtide_is_decided", pa.array(rng.choices([True, True, False], k=n)))

    def query(sql: Dialect) -> str:
        return compared(sql, "SELECT * FROM decided", "SELECT * FROM shown", KEY, rows.schema)

    inputs = {"decided": GivenRows(decided), "shown": GivenRows(damaged(rng, rows))}
    return Rows(inputs, query, [*KEY, "_decided", "_shown"], KEY)
