"""Writes what pages say of `naive_merge.py` from its results, `naive_merge.json`. A test holds the pages to it.

```
python benchmarks/figures.py
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
MEASURES = ("cpu_s", "warm_cpu_s", "wall_s")
FRACTIONS = {1 / 5: "a fifth", 1 / 4: "a quarter", 1 / 3: "a third", 1 / 2: "half"}


SIDES = {
    "local": "Ebbtide in one process",
    "ebbtide": "Ebbtide on Spark",
    "duckdb": "DuckDB and delta-rs, without Spark",
    "paimon": "Paimon 0.9, deletion vectors, Spark 3.5",
    "iceberg": "Iceberg 1.12, format 3, MERGE, Spark 4.1",
    "naive": "Delta's MERGE, Spark 4.2",
    "floor": "Spark reads, shuffles and appends, no logic",
}
"""What pages call the sides."""


def figures() -> dict[str, tuple[str, str]]:
    """Return what each page says, by the page: the pattern of the place, and the text."""
    results = json.loads((PROJECT / "benchmarks" / "naive_merge.json").read_text(encoding="utf-8"))
    ratios = [each["cpu_s"]["ebbtide"] / each["cpu_s"]["naive"] for each in results["rounds"]]
    worst = max(ratios)
    fraction = next(words for most, words in FRACTIONS.items() if worst < most)
    events, rows, wrong = results["events"], results["rows"], results["wrong"]["naive"]
    readme = (
        f"On {events:,} Debezium events of a shop it got **{wrong:,} of {rows:,} rows wrong**. "
        f"Ebbtide got none wrong, at **less than {fraction} of the CPU**."
    )
    row = (
        f"| {events:,} events of a shop in 8 steps, against newest-per-key and MERGE | {min(ratios):.2f} to {worst:.2f} of its CPU; "
        f"rows wrong: 0 against {wrong:,} of {rows:,} |"
    )
    return {
        "README.md": (r"On [\d,]+ Debezium events of a shop it got .+ of the CPU\*\*\.", readme),
        "benchmarks/README.md": (r"(?s)\| in 8 steps \|.+?(?=\n\n)", "\n".join(sides(results))),
        "docs/explanation/performance.md": (r"\| [\d,]+ events of a shop in 8 steps, .+ \|", row),
    }


def sides(results: dict[str, Any]) -> Iterator[str]:
    """Lay out the rounds in which each side was measured."""
    rounds = [each for each in results["rounds"] if "warm_cpu_s" in each]
    yield "| in 8 steps | rows wrong | CPU s | CPU s of a warm step | wall s |"
    yield "|---|---|---|---|---|"
    for side, name in SIDES.items():
        cells = ["; ".join(f"{each[measure][side]}" for each in rounds) for measure in MEASURES]
        wrong = results["wrong"].get(side)
        yield f"| {name} | {'' if wrong is None else f'{wrong:,}'} | {' | '.join(cells)} |"


def main() -> None:
    """Write the pages."""
    for name, (pattern, text) in figures().items():
        page = PROJECT / name
        page.write_text(re.sub(pattern, text, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
