"""Makes the movements of stock for `make demo`, and the stock that they leave. The same ones each time."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

MADE = Path(__file__).parent / "made"
SOURCE = MADE / "movements"
TRUTH = MADE / "stock_levels.jsonl.gz"
N_MOVEMENTS = 500_000
N_ARTICLES = 5_000
N_WAREHOUSES = 20
N_FILES = 8
LATE = 20_000
"""Movements by which one may be late."""
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def make() -> None:
    """Make both, unless they are there."""
    if TRUTH.exists():
        return
    shutil.rmtree(MADE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    chance = random.Random(2026)  # noqa: S311 - the same ones each time
    movements = [_movement(chance, number) for number in range(N_MOVEMENTS)]
    arrived = sorted(movements, key=lambda each: each["movement"] + chance.randrange(LATE))
    arrived += chance.sample(movements, N_MOVEMENTS // 100)  # delivered twice
    for number in range(N_FILES):
        lines = [json.dumps(each) + "\n" for each in _share(arrived, number)]
        (SOURCE / f"{number:02}.jsonl").write_text("".join(lines), encoding="utf-8")
    # Last: what was interrupted before is made again.
    with gzip.open(TRUTH, "wt", encoding="utf-8") as truth:
        truth.writelines(json.dumps(row) + "\n" for row in _left(movements))


def _movement(chance: random.Random, number: int) -> Row:
    """Return a movement; one in ten takes the article out of the warehouse."""
    return {
        "kind": "-D" if chance.random() < 0.1 else "+U",
        "sku": f"A-{chance.randrange(N_ARTICLES):05}",
        "warehouse": chance.randrange(N_WAREHOUSES),
        "on_hand": chance.randrange(1_000),
        "movement": number,
        "moved_at": (FIRST + timedelta(seconds=number)).isoformat(),
    }


def _share(arrived: Sequence[Row], number: int) -> Sequence[Row]:
    """Return the movements of a file."""
    size = -(-len(arrived) // N_FILES)
    return arrived[number * size : (number + 1) * size]


def _left(movements: Sequence[Row]) -> list[Row]:
    """Return the rows that the movements leave, in their order: the newest of each key."""
    newest = {(each["sku"], each["warehouse"]): each for each in movements}
    rows = [each for each in newest.values() if each["kind"] != "-D"]
    return [{name: value for name, value in row.items() if name != "kind"} for row in rows]
