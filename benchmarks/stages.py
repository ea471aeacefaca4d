"""Where the microseconds of a record go: the local engine over generated files, timed stage by stage.

The functions of a stage are wrapped with timers of CPU time, in this process alone: the product has no timers for it. A stage's time is
without that of the stages that it calls, so that the shares add up. Two inputs: `plain` is the changelog of `flink_e2e.py` (text keys,
rows of 200 bytes), `debezium` orders in envelopes of 800 bytes. After it the floor of this machine: a copy of the same bytes, and a search
for their line ends.

    python benchmarks/stages.py [plain] [debezium] [--records 250000] [--no-timers]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from flink_e2e import changelog
from flink_e2e import pipeline as plain_pipeline

from ebbtide import InProcess, UpsertPipeline, run

STAGES = {
    "read": ("ebbtide.sources._files:_read_batches",),
    "parse": ("ebbtide.formats._scan:Scanner.scan",),
    "to columns": (
        "ebbtide.formats._scan_decoder:ScanDecoder.decode",
        "ebbtide.formats._decoding:Decoding.decode",
    ),
    "exact path": ("ebbtide.formats._decoding:Decoding._decode_exactly",),
    "deal": (
        "ebbtide.formats._summary:summarize",
        "ebbtide.runtime._workers.staging:Stager.stage",
        "ebbtide.runtime._workers.staging:Share.changes",
    ),
    "find": (
        "ebbtide.runtime._workers.deciding:Decider._find",
        "ebbtide.runtime._workers.deciding:Decider._entries",
    ),
    "operator": (
        "ebbtide.operators._arrival.operator:ArrivalOperator.apply",
        "ebbtide.operators._sequence.operator:SequenceOperator.apply",
    ),
    "state": ("ebbtide.runtime._workers.deciding:Decider._write",),
    "copies": (
        "ebbtide.delta._key_index:IndexCache.indexed",
        "ebbtide.delta._key_index:IndexCache.keep",
        "ebbtide.delta._key_index:IndexCache.index_of",
    ),
    "sink": ("ebbtide.runtime._step:publish",),
    "fold": ("ebbtide.runtime._step:fold_state", "ebbtide.tables._upsert:Upserter.fold"),
}
"""Stage to the functions that make it: module, then the name in it by which it is called."""
FILES = 2
"""Files, each a step of its own: the second finds entries and rows of the first."""
CUSTOMERS = 20_000


class Timers:
    """Measures CPU time by stage, each without the stages that it calls.

    Args:
        clock: Returns the seconds of CPU so far.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self.seconds: Counter[str] = Counter()
        self._within: list[float] = []

    def wrap_all(self) -> None:
        """Wrap the functions of all stages."""
        for stage, places in STAGES.items():
            for place in places:
                owner, name = owner_of(place)
                timed = self._timed(stage, getattr(owner, name))
                setattr(owner, name, timed)

    def _timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            result = self._lap(stage, functools.partial(function, *args, **options))
            # A generator works when it is asked for the next: each of these calls counts.
            return self._each(stage, result) if isinstance(result, Iterator) else result

        return timed

    def _each(self, stage: str, items: Iterator[Any]) -> Iterator[Any]:
        nothing = object()
        while (item := self._lap(stage, functools.partial(next, items, nothing))) is not nothing:
            yield item

    def _lap(self, stage: str, call: Callable[[], Any]) -> Any:
        start = self._clock()
        self._within.append(0.0)
        try:
            return call()
        finally:
            total = self._clock() - start
            self.seconds[stage] += total - self._within.pop()
            if self._within:
                self._within[-1] += total


def owner_of(place: str) -> tuple[Any, str]:
    """Return the module or class that holds a function, and its name there."""
    module, _, path = place.partition(":")
    *classes, name = path.split(".")
    owner: Any = import_module(module)
    for each in classes:
        owner = getattr(owner, each)
    return owner, name


def orders(seed: int) -> Iterator[dict[str, Any]]:
    """Yield Debezium envelopes of orders without end: creates, updates, a tenth of them deletes."""
    chance = random.Random(seed)
    live: dict[int, dict[str, Any]] = {}
    for lsn in itertools.count(1):
        order_id = chance.randrange(CUSTOMERS * 5)
        before = live.pop(order_id, None)
        after = None if before and chance.random() < 0.1 else order(chance, order_id, lsn)
        if after:
            live[order_id] = after
        op = "d" if after is None else "u" if before else "c"
        source = {
            "version": "3.7.0",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1_700_000_000_000 + lsn,
            "db": "shop",
        }
        source |= {"schema": "public", "table": "orders", "txId": lsn, "lsn": lsn, "xmin": None}
        yield {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_500 + lsn}


def order(chance: random.Random, order_id: int, lsn: int) -> dict[str, Any]:
    """Return a row of an order."""
    amount = f"{chance.randrange(10**6)}.{chance.randrange(100):02d}"
    row = {
        "order_id": order_id,
        "customer": f"customer-{chance.randrange(CUSTOMERS)}",
        "amount": amount,
        "is_paid": lsn % 2 == 0,
    }
    return row | {"placed_at": f"2026-01-{lsn % 28 + 1:02d}T12:00:00Z", "note": "x" * 100}


def order_pipeline(source: Path, name: str) -> UpsertPipeline:
    """Return the pipeline of the orders."""
    return UpsertPipeline(
        name=name,
        schema="order_id BIGINT NOT NULL, customer STRING, amount DECIMAL(10,2), is_paid BOOLEAN, placed_at TIMESTAMP, note STRING",
        key=["order_id"],
        order={"sequence": ["_lsn"]},
        source={"path": str(source), "records": "value"},
        format={"type": "debezium"},
        ttl=None,
    )


INPUTS: dict[str, tuple[Callable[[int], Iterator[Any]], Callable[[Path, str], UpsertPipeline]]] = {
    "plain": (changelog, plain_pipeline),
    "debezium": (orders, order_pipeline),
}


def make_input(folder: Path, records: Iterator[Any], n_records: int) -> None:
    """Write some records as files."""
    folder.mkdir()
    for number in range(FILES):
        with (folder / f"{number:04d}.jsonl").open("w") as part:
            for record in itertools.islice(records, -(-n_records // FILES)):
                part.write(json.dumps(record) + "\n")


def main() -> None:
    """Make the inputs, run each, print its stages."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("inputs", nargs="*", choices=[[], *INPUTS], help="default: all")
    options.add_argument("--records", type=int, default=250_000)
    options.add_argument("--no-timers", action="store_true", help="print the sum alone, of the product as it is")
    asked = options.parse_args()
    timers = Timers()
    if not asked.no_timers:
        timers.wrap_all()
    for name in asked.inputs or INPUTS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["EBBTIDE_CACHE"] = f"{folder}/cache"
            measure(name, Path(folder), asked.records, timers)


def measure(name: str, work: Path, n_records: int, timers: Timers) -> None:
    """Run an input once to warm up and once timed; print us a record and share of each stage."""
    records, pipeline = INPUTS[name]
    make_input(work / "warm", records(2), n_records)  # as many: compiled loops are loaded from a number on
    make_input(work / "in", records(1), n_records)
    run(InProcess(), one_file_a_step(pipeline(work / "warm", "warm")), str(work))
    timers.seconds.clear()
    steps: list[Any] = []
    start = time.process_time()
    run(InProcess(), one_file_a_step(pipeline(work / "in", name)), str(work), on_progress=steps.append)
    cpu_s = time.process_time() - start
    n = sum(step.records for step in steps)
    load = os.getloadavg()[0]
    print(f"\n{name}: {n} records, {n / cpu_s:,.0f} a CPU s, {cpu_s / n * 1e6:.2f} us each, load {load:.1f}")
    rest = cpu_s - sum(timers.seconds.values())
    for stage, seconds in [*((stage, timers.seconds[stage]) for stage in STAGES), ("rest", rest)]:
        print(f"{stage:<12}{seconds / n * 1e6:8.2f} us {seconds / cpu_s:6.1%}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak of the process so far: {peak:.0f} MiB")
    print_floor(b"".join(path.read_bytes() for path in (work / "in").iterdir()), n)


def one_file_a_step(spec: UpsertPipeline) -> UpsertPipeline:
    """Return a pipeline whose steps read one file each."""
    source = spec.source.model_copy(update={"max_files_per_step": 1})
    return spec.model_copy(update={"source": source})


def print_floor(raw: bytes, n: int) -> None:
    """Print what this machine needs to touch the bytes at all."""
    for what, work in (("copy", lambda: bytearray(raw)), ("line ends", lambda: raw.count(b"\n"))):
        start = time.process_time()
        work()
        print(f"floor: {what:<10}{(time.process_time() - start) / n * 1e6:8.2f} us, {len(raw) / n:.0f} bytes a record")


if __name__ == "__main__":
    main()
