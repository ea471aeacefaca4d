"""Commits to a table as one of two writers: `racer.py TABLE NAME N INTERVAL`. Writes a checkpoint each INTERVAL versions.

Starts after a line on stdin, and prints its versions.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from frame.limits import set_limits

from ebbtide.delta import Snapshot, Transaction
from ebbtide.ledger import writer_of

if __name__ == "__main__":
    table, name, n, interval = sys.argv[1:]
    set_limits(checkpoint_interval=int(interval))
    snapshot = Snapshot.read(table)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    made = []
    for number in range(int(n)):
        snapshot = writer_of(table).commit_once(
            snapshot, lambda _: [], Transaction(name, number, {"operation": "WRITE"})
        )
        made.append(snapshot.version)
    sys.stdout.write(json.dumps(made))
