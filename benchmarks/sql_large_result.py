"""A SELECT of 20,000,000 rows through a gateway whose JVM has 2 GB: its pages come, and another session is answered meanwhile.

A gateway is started as a user starts it. One session reads all pages of the large result, in order, and sums what they hold; another one
asks a small query again and again. Measured: time to the first page, to the last that is read, the small query's slowest answer, the CPU and the
largest memory of the gateway's processes.

    python benchmarks/sql_large_result.py [--rows 20000000] [--memory 2g] [--most-pages 3000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import tree_cpu_s

from ebbtide.sql import RemoteSession

N_FILES = 64
"""Tasks of the large query, as of a table of so many files."""


def main() -> int:
    """Start a gateway, read the result, print what it took."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--memory", default="2g")
    options.add_argument("--most-pages", type=int, default=0, help="Of 1,000 rows; 0: all")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, gateway(Path(folder), asked.memory) as (pid, url):
        other, large = RemoteSession(url), RemoteSession(url)
        other.execute("SELECT 1").result()  # the JVM stands
        large.execute("SET max-rows = 0").result()
        answers: list[float] = []
        is_over = threading.Event()
        asking = threading.Thread(target=ask_again_and_again, args=(other, answers, is_over))
        asking.start()
        measured = read_pages(large, asked.rows, asked.most_pages)
        is_over.set()
        asking.join()
        measured |= {
            "answers": len(answers),
            "slowest_answer_s": round(max(answers), 2),
            "gateway_and_client_cpu_s": round(tree_cpu_s(), 1),
            "peak_memory_mb": peak_memory_mb(pid),
        }
        print(json.dumps({"rows": asked.rows, "memory": asked.memory} | measured))
        other.close()
        large.close()
    return 0


@contextmanager
def gateway(folder: Path, memory: str) -> Iterator[tuple[int, str]]:
    """Run a gateway; give the id of its process and its URL."""
    options = ["--port", "0", "--defs", str(folder / "defs"), "--root", str(folder / "root")]
    process = subprocess.Popen(
        [sys.executable, "-m", "ebbtide.cli", "sql-gateway", *options],
        env=os.environ | {"EBBTIDE_DRIVER_MEMORY": memory},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process.pid, process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate()


def read_pages(session: RemoteSession, n_rows: int, most_pages: int) -> dict[str, float]:
    """Read the pages of a large result, or the first of them; raise if they do not hold each row once, in order."""
    begun = time.monotonic()
    rows = f"range(0, {n_rows}, 1, {N_FILES})"
    operation = session.execute(f"SELECT id, id * 7 % 1000 AS v, concat('row ', id) AS text FROM {rows}")  # noqa: S608 - numbers
    page = operation.page()
    first_s = time.monotonic() - begun
    n_read, n_pages = 0, 0
    while True:
        numbers = [row[0] for row in page.rows]
        if numbers != list(range(n_read, n_read + len(numbers))):
            raise ValueError(f"page {n_pages} is not what comes after {n_read} rows")
        n_read += len(numbers)
        n_pages += 1
        if page.next is None or n_pages == most_pages:
            break
        page = operation.page(page.next)
    if page.next is None and n_read != n_rows:
        raise ValueError(f"{n_read} of {n_rows} rows")
    operation.close()
    last_s = time.monotonic() - begun
    return {"pages": n_pages, "first_page_s": round(first_s, 1), "last_page_s": round(last_s, 1)}


def ask_again_and_again(session: RemoteSession, answers: list[float], is_over: threading.Event) -> None:
    """Ask a small query until it is over; note how long each answer took."""
    while not is_over.is_set():
        begun = time.monotonic()
        operation = session.execute("SELECT count(*) FROM range(1000)")
        if operation.page().rows != [[1000]]:
            raise ValueError("another session is answered wrongly")
        operation.close()
        answers.append(time.monotonic() - begun)
        is_over.wait(1)


def peak_memory_mb(pid: int) -> int:
    """Return the largest memory that a process and those below it had, each at its own time."""
    total = 0
    for each in [pid, *descendants(pid)]:
        for line in Path(f"/proc/{each}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM"):
                total += int(line.split()[1])
    return total // 1024


def descendants(pid: int) -> list[int]:
    """Return the processes below one."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="utf-8").split():
            found += [int(child), *descendants(int(child))]
    return found


if __name__ == "__main__":
    sys.exit(main())
