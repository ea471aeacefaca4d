"""Two writers of one table, and two takers of one lease, in processes of their own: of two one has each version."""

import json
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from frame.waiting import PATIENCE_S

from ebbtide.delta import Definition, Log, Snapshot
from ebbtide.errors import LeaseHeldError
from ebbtide.ledger import Lease, writer_of
from ebbtide.storage import Location

pytestmark = pytest.mark.group("object_store")
N_EACH = 15
INTERVAL = 2 * N_EACH
"""The last commit of all has a checkpoint."""
RACERS = ("a", "b")


def race(table):
    """Have both commit; return the versions that each says it made."""
    command = [sys.executable, str(Path(__file__).with_name("racer.py")), table]
    racers = [
        subprocess.Popen(
            [*command, name, str(N_EACH), str(INTERVAL)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in RACERS
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outputs = [racer.communicate(timeout=PATIENCE_S)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    return [json.loads(text) for text in outputs]


def some_lost():
    """Of the puts every fifth takes effect and is answered by 503, every seventh is not answered."""
    puts = count(1)

    def fault(method, path):
        if method != "PUT":
            return None
        number = next(puts)
        if number % 5 == 0:
            return "503 after"
        return "lost" if number % 7 == 0 else None

    return fault


def test_of_two_writers_one_has_each_version_and_no_commit_is_lost(proxy, root):
    table = f"{root}/t"
    writer_of(table).create(table, Definition(pa.schema([("n", pa.int64())])), name="t", info={})
    with proxy.failing(some_lost()):
        a, b = race(table)
    assert sorted(a + b) == list(range(1, 2 * N_EACH + 1))
    for name, made in zip(RACERS, (a, b), strict=True):
        marks = [action["txn"] for version in made for action in Log(table).commit(version) if "txn" in action]
        assert [(mark["appId"], mark["version"]) for mark in marks] == [(name, number) for number in range(N_EACH)]
    assert Log(table).versions() == list(range(2 * N_EACH + 1))
    snapshot = Snapshot.read(table)
    assert snapshot.transactions == dict.fromkeys(RACERS, N_EACH - 1)
    assert snapshot.version == INTERVAL
    assert f"{INTERVAL:020d}.checkpoint.parquet" in Location(f"{table}/_delta_log").list_files()


@pytest.mark.parametrize("seen", [False, True], ids=["the first lease", "a lease that was given back"])
def test_lease_is_won_by_one_of_many(proxy, root, seen):
    path = f"{root}/ledger"
    if seen:
        with Lease(path, "p", 3600):
            pass
    barrier = threading.Barrier(6)
    ended = threading.Barrier(6)
    won, held = [], []

    def take():
        barrier.wait()
        try:
            with Lease(path, "p", 3600) as lease:
                won.append(lease.facts.epoch)
                ended.wait()
        except LeaseHeldError:
            held.append(path)
            ended.wait()

    threads = [threading.Thread(target=take) for _ in range(6)]
    with proxy.failing(some_lost()):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (won, len(held)) == ([1 + seen], 5)
