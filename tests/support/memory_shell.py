"""`ebbtide sql` on a session in memory: python memory_shell.py ARGUMENTS. It prints nothing but what the command does."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ebbtide.cli import main
from ebbtide.sql import Target


def open_session(target):
    import pyarrow as pa
    from statements.sql_support import MemorySession

    Path(target.defs, "opening").touch()
    while os.environ.get("SLOW") and not Path(target.defs, "go").exists():
        time.sleep(0.01)
    n_rows = int(os.environ.get("ROWS", "500"))
    tables = {
        "few": pa.table({"id": [1, 2], "name": ["Ada", None]}),
        "many": pa.table(
            {
                "id": list(range(n_rows)),
                "name": [f"name {number}" for number in range(n_rows)],
                "note": ["long " * 30 if number == 7 else "東京 \x1b[2J" for number in range(n_rows)],
            }
        ),
    }
    return MemorySession(tables=tables)


if __name__ == "__main__":
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # a new session's terminal: Ctrl-C is then a signal to this process
    Target.open = open_session
    main(["sql", *sys.argv[1:]], prog_name="ebbtide")
