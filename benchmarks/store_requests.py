"""Requests that a pipeline makes of an object store, and what they cost a month.

A run that goes on, its source and tables in a bucket of moto behind a proxy that counts: the start, looks that find nothing, small steps with
the look that follows each, a heartbeat of the lease, a run that finds nothing, a compaction. "In a row" is the most requests of which none began before the one before it was answered.

    python benchmarks/store_requests.py [--steps 20] [--delay-ms 30] [--local-source] [--list]

Not named `requests.py`: a script's folder comes first where Python looks for modules, and libraries import `requests`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ebbtide
from ebbtide import UpsertPipeline
from ebbtide.environment import CACHE
from ebbtide.ledger import Lease
from ebbtide.operations import maintain
from ebbtide.storage import Location

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from local.followed_run import Part, follow
from s3_server import BUCKET, Proxy, S3Server, environment

DOLLARS_PER_1000 = {"PUT": 0.005, "POST": 0.005, "LIST": 0.005, "GET": 0.0004, "HEAD": 0.0004, "DELETE": 0.0}
"""S3 Standard, us-east-1, as of 2026-11: aws.amazon.com/s3/pricing. A delete of several files is a POST that is free."""
MONTH_S = 30 * 86_400
EVERY_S = (10, 60, 600)
FOLDING = "step that joins files"
KEYS = 50
CHANGES = 20
IDLE_LOOKS = 5
WARM_UP = 5
"""Steps that are not counted: the first ones make tables and local copies."""


def main() -> int:
    """Run, and print a line for each thing that the run did."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--delay-ms", type=int, default=30)
    options.add_argument("--local-source", action="store_true", help="the source is on the local disk")
    options.add_argument("--change-feed", choices=("images", "net"), default="images", help="of the sink")
    options.add_argument("--list", action="store_true", help="print the requests of the last step")
    asked = options.parse_args()
    with (
        S3Server() as server,
        Proxy(server, asked.delay_ms / 1000) as proxy,
        tempfile.TemporaryDirectory() as folder,
    ):
        os.environ.update(environment(proxy.port), **{CACHE.name: f"{folder}/copies"})
        source = f"{folder}/in" if asked.local_source else f"s3://{BUCKET}/in"
        parts = measured(proxy, spec_of(source, asked.change_feed), f"s3://{BUCKET}/root", asked.steps)
    shown: dict[str, list[Part]] = {}
    for part in parts:
        shown.setdefault(name_of(part), []).append(part)
    steps = [*shown["step"], *shown.get(FOLDING, [])]
    for name, some in shown.items():
        print(json.dumps({"what": name, "times": len(some), **middle(some)}), flush=True)
    if asked.list:
        for request in shown["step"][-1].served:
            print(request.method, request.path)
    for every_s in EVERY_S:
        dollars = dollars_a_month(steps, every_s)
        print(json.dumps({"a step every, s": every_s, "dollars a month": round(dollars, 2)}), flush=True)
    for what in ("idle look", "heartbeat"):
        each = statistics.mean(dollars_of(part) for part in shown[what])
        print(json.dumps({"what": what, "dollars a million": round(each * 1e6, 2)}), flush=True)
    return 0


def name_of(part: Part) -> str:
    """Return what a run did: a step that joins files of a table commits to it twice."""
    commits = [request.path for request in part.served if request.method == "PUT" and "_delta_log" in request.path]
    folds = part.name == "step" and len(commits) > 2
    return FOLDING if folds else part.name


def spec_of(source: str, change_feed: str) -> UpsertPipeline:
    """Return the pipeline."""
    records = {"path": source, "records": "value", "max_files_per_step": 1}
    return UpsertPipeline(
        name="p",
        source=records,
        key=["id"],
        format={"type": "plain"},
        schema="id BIGINT, v STRING, n BIGINT",
        order={"sequence": ["n"]},
        sink={"change_feed": change_feed},
    )


def write_file(source: str, number: int) -> None:
    """Write a file of changes."""
    rows = [{"id": (7 * number + at) % KEYS, "v": "x" * 50, "n": CHANGES * number + at} for at in range(CHANGES)]
    text = "".join(json.dumps({"kind": "+U", "row": row}) + "\n" for row in rows)
    Location(f"{source}/{number:06d}.json").write_bytes(text.encode())


def measured(proxy: Proxy, spec: UpsertPipeline, root: str, steps: int) -> list[Part]:
    """Run, and return what was asked for, by what was done."""
    source = str(spec.source.path)

    def script() -> Iterator[str]:
        yield "start of a new pipeline"
        for number in range(1, steps + WARM_UP + 1):
            write_file(source, number)
            proxy.served.clear()
            # The look that finds it, the step, and the look after it.
            yield "step" if number > WARM_UP else "first steps"
        for _ in range(IDLE_LOOKS):
            yield "idle look"

    def taken(name: str) -> Part:
        part = Part(name, tuple(proxy.served))
        proxy.served.clear()
        return part

    write_file(source, 0)
    parts = follow(proxy, spec, root, script)
    proxy.served.clear()
    session = ebbtide.InProcess()
    ebbtide.run(session, spec, root)
    parts.append(taken("run that finds nothing"))
    with Lease(f"{root}/p/ledger", "p", 3600) as lease:
        parts.append(taken("taking the lease"))
        for _ in range(3):
            lease._renew()  # noqa: SLF001 - what its thread does three times in `lease_ttl`
            parts.append(taken("heartbeat"))
    parts.append(taken("giving the lease back"))
    maintain(session, spec, root, "compaction")
    parts.append(taken("compaction"))
    return parts


def middle(parts: list[Part]) -> dict[str, object]:
    """Return the median and the most of requests, of those in a row, and of seconds."""
    totals = [part.count() for part in parts]
    methods: Counter[str] = Counter()
    for part in parts:
        methods.update(each.method for each in part.served)
    by_method = {method: round(n / len(parts), 1) for method, n in sorted(methods.items())}
    seconds = [part.served[-1].ended_s - part.served[0].began_s for part in parts if part.served]
    return {
        "requests": statistics.median(totals),
        "most": max(totals),
        "in a row": statistics.median(part.in_a_row for part in parts),
        "seconds": round(statistics.median(seconds), 2) if seconds else 0,
        "mean by method": by_method,
    }


def dollars_of(part: Part) -> float:
    """Return the price of requests."""
    return sum(DOLLARS_PER_1000[each.method] for each in part.served if "?delete" not in each.path) / 1000


def dollars_a_month(steps: list[Part], every_s: int) -> float:
    """Return the price of a month of such steps; looks in between are not counted."""
    return statistics.mean(map(dollars_of, steps)) * MONTH_S / every_s


if __name__ == "__main__":
    sys.exit(main())
