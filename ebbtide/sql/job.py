"""The process of one job: `python -m ebbtide.sql.job FOLDER`. Runs its pipelines and writes down how that ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from ebbtide.ledger.process import this_process


def main(folder: Path) -> int:
    """Run what a job's folder asks for; return the exit code.

    Args:
        folder: See `ebbtide.sql.jobs`.
    """
    asked = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "ebbtide.cli", "run", *asked["locations"], "--root", asked["root"]]
    run = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda number, frame: run.send_signal(signal.SIGTERM))
    _write(folder / "process", this_process())
    code = run.wait()
    _write(folder / "exit", str(code))
    return code


def _write(path: Path, text: str) -> None:
    """Put a file in place whole: others wait for it."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
