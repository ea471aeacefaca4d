"""Processes that kill themselves with SIGKILL at a named place, without a JVM: each is a fork of one that has all loaded.

`killing.py` by itself is that one: it reads orders, a line of JSON each, and answers each with a line.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name, walk_packages
from typing import Any, Self

from frame.waiting import PATIENCE_S

SUPPORT = Path(__file__).parent
Place = tuple[str, str, str, int]
"""Owner of a function, its name, `before` or `after`, and which of its calls."""
STATE = "ebbtide.tables._state.table:StateTable"
SINK = "ebbtide.tables._delta_sink:SinkTable"
QUARANTINE = "ebbtide.tables._quarantine:QuarantineTable"
APPENDED = "ebbtide.tables._append_table:AppendTable"
LEASE = "ebbtide.ledger._lease:Lease"
SOURCE = "ebbtide.runtime._reading:SourceSteps"
DELETION = "ebbtide.operations._maintenance.deletion:Deletion"
JOINING = "ebbtide.delta:Writer from ebbtide.tables._step_commits"
MERGING = "ebbtide.delta:Snapshot from ebbtide.operations._maintenance.merging"
BRINGING_BACK = "ebbtide.delta:Writer from ebbtide.operations._repair.state"
DELETED_BY_ADOPTION = "ebbtide.storage:Location from ebbtide.operations._adopt"
"""Owners of functions that places are at."""


def rewritten_by(module: str) -> Place:
    """Return the place behind the rewriting of entries that a module asks for."""
    return f"ebbtide.runtime:StateRewrite from {module}", "written", "after", 1


PLACES: dict[str, Place] = {
    "the lease is taken": (LEASE, "_take", "after", 1),
    "the state table is made": (STATE, "create", "after", 1),
    "the sink table is made": (SINK, "create", "after", 1),
    "the batch is planned": (SOURCE, "batch", "before", 2),
    "the records are staged": ("ebbtide.runtime._reading", "stage", "after", 2),
    "the bad records are written": (QUARANTINE, "write", "after", 2),
    "the entries are written": ("ebbtide.runtime._decide", "_commit", "before", 2),
    "the files are noted": (STATE, "noted_files", "after", 2),
    "the state is not committed": (STATE, "perform", "before", 2),
    "the state is committed": (STATE, "perform", "after", 2),
    "the sink's rows are written": ("ebbtide.tables._pieces:TableFiles", "write", "after", 2),
    "the sink's vectors are written": ("ebbtide.delta._vectors", "write", "after", 1),
    "the change feed is written": ("ebbtide.tables._pieces:TableFiles", "write_images", "after", 1),
    "the sink is committed": (SINK, "apply", "after", 2),
    "the changelog is committed": ("ebbtide.tables._changelog:ChangelogTable", "append", "after", 2),
    "the quarantine is not committed": (QUARANTINE, "append", "before", 2),
    "the quarantine is committed": (QUARANTINE, "append", "after", 2),
    "the quarantine's files are not joined": (JOINING, "join", "before", 1),
    "the step is published": ("ebbtide.runtime._step", "publish", "after", 3),
    "the staged files are deleted": ("ebbtide.storage:Location from ebbtide.runtime._stage", "delete", "after", 2),
    "the state's fold is written": rewritten_by("ebbtide.runtime._fold"),
    "the state is folded": ("ebbtide.delta:Writer from ebbtide.runtime._fold", "join", "after", 1),
    "the sink's fold is not committed": ("ebbtide.delta:Writer from ebbtide.tables._upsert", "join", "before", 1),
    "the sink is folded": ("ebbtide.delta:Writer from ebbtide.tables._upsert", "join", "after", 1),
    "the batch is made": (SOURCE, "batch", "after", 2),
    "the tick is decided": ("ebbtide.runtime._step", "expire", "after", 1),
    "the lease is not given back": (LEASE, "__exit__", "before", 1),
}
"""In the second step of a run where there is one."""
COMMITS: dict[str, Place] = {
    "the step is not committed": (STATE, "perform", "before", 1),
    "the step is committed": (STATE, "perform", "after", 1),
}
UPKEEP: dict[str, dict[str, Place]] = {
    "cleanup": {
        "the tick is decided": ("ebbtide.runtime._step", "expire", "after", 1),
        "the entries are found": ("ebbtide.operations._maintenance.cleanup", "find", "after", 1),
        "the files and vectors are written": (DELETION, "actions", "after", 1),
    }
    | COMMITS,
    "compaction": {
        "the sink's files are joined": (SINK, "join_files", "after", 1),
        "the entries are rewritten": rewritten_by("ebbtide.operations._maintenance.compaction"),
    }
    | COMMITS,
    "merge": {
        "the sink's files are joined": (SINK, "join_files", "after", 1),
        "the files of the ranges are written": (MERGING, "deleting", "before", 1),
        "the ranges are merged": ("ebbtide.operations._maintenance.compaction", "merged", "after", 1),
    }
    | COMMITS,
    "migrate": {"the entries are rewritten": rewritten_by("ebbtide.operations._migration.migrate")} | COMMITS,
    "replay": COMMITS
    | {
        "the sink is committed": (SINK, "apply", "after", 1),
        "the quarantine is not committed": (QUARANTINE, "append", "before", 1),
        "the quarantine is committed": (QUARANTINE, "append", "after", 1),
    },
    "drop": COMMITS | {"the quarantine is committed": (QUARANTINE, "append", "after", 1)},
    "alter": {"the entries are rewritten": rewritten_by("ebbtide.operations._migration.migrate")}
    | COMMITS
    | {
        "the sink's rows are rewritten": (
            "ebbtide.delta:DataFile from ebbtide.tables._step_commits",
            "replacing",
            "before",
            1,
        ),
        "the sink has its columns": (SINK, "alter", "after", 1),
    },
    "rewind": {"the incarnation is renewed": (LEASE, "renew_incarnation", "after", 1)}
    | COMMITS
    | {
        "the sink is put back": (SINK, "restore", "after", 1),
        "another table is put back": ("ebbtide.tables._step_commits", "restore_stage", "after", 1),
        "all tables are put back": ("ebbtide.storage:Location from ebbtide.runtime._publish", "delete", "before", 1),
    },
    "undo": COMMITS | {"the sink is put back": (SINK, "restore", "after", 1)},
    "restore": {
        "the state is not brought back": (BRINGING_BACK, "commit", "before", 1),
        "the state is brought back": (BRINGING_BACK, "commit", "after", 1),
    },
    "repair": COMMITS
    | {
        "the sink's way back is not committed": (SINK, "restore_and_apply", "before", 1),
        "the sink is brought back": (SINK, "restore_and_apply", "after", 1),
        "the rows are not appended": (APPENDED, "append_missed", "before", 1),
    },
    "clock": COMMITS,
    "swap": {
        "the incarnation is renewed": (LEASE, "renew_incarnation", "after", 1),
        "the state is copied": ("ebbtide.operations._backfill.swap", "_state_actions", "after", 1),
    }
    | COMMITS
    | {
        "the sink is swapped": (SINK, "take_rows", "after", 1),
        "another table is copied": ("ebbtide.tables._append_table", "commit_stage", "before", 1),
        "another table is swapped": (APPENDED, "take_rows", "after", 1),
        "the backfill is deleted": ("ebbtide.storage:Location from ebbtide.runtime._plan", "delete", "after", 8),
    },
    "adopt": COMMITS
    | {
        "the sink is extended": (SINK, "extend", "after", 1),
        "the rows are staged": ("ebbtide.runtime:Stepper from ebbtide.operations._adopt", "apply", "before", 1),
        "the second step is committed": (STATE, "perform", "after", 2),
        "the sink is committed": (SINK, "apply", "after", 1),
        "the staged files are deleted": (DELETED_BY_ADOPTION, "delete", "after", 1),
    },
    "refresh": {
        "the first step is tried": (STATE, "perform", "after", 1),
        "the incarnation is renewed": (LEASE, "renew_incarnation", "after", 1),
        "the state is emptied": (STATE, "perform", "after", 2),
        "the sink is emptied": (SINK, "empty", "after", 1),
        "the quarantine is emptied": (QUARANTINE, "empty", "after", 1),
        "the first step is committed": (STATE, "perform", "after", 3),
    },
}
AFTER = dict.fromkeys(("refresh", "rewind", "undo", "restore", "repair", "adopt", "swap"), ("run",))
"""What shows more of what was done, and finishes a refresh or a rewind that has begun."""
WRITES = (
    ("os", "link"),
    ("ebbtide.storage:ParquetFile from ebbtide.delta._data_file", "write"),
    ("ebbtide.storage:Location from ebbtide.delta._vectors", "write_bytes"),
    ("ebbtide.storage:Location from ebbtide.sources._sizing", "replace_bytes"),
    ("ebbtide.storage:Location from ebbtide.runtime._stage", "delete"),
    ("ebbtide.storage:Location from ebbtide.runtime._publish", "delete"),
    ("pathlib:Path", "rename"),
)
"""What changes anything on disk that outlives a step."""


def resolve(owner: str) -> tuple[Any, str]:
    """Return a module or class by its name, and the module that alone calls it there; empty: calls of all modules count."""
    name, _, caller = owner.partition(" from ")
    return resolve_name(name), caller


def before_or_after(owner: str, name: str, act: Callable[[str], None]) -> None:
    """Have `act` called with `before` and `after` at each call of a function; `CLASS from MODULE`: at those in a module."""
    holder, caller = resolve(owner)
    call = getattr(holder, name)

    def watched(*args: Any, **options: Any) -> Any:
        if caller not in ("", sys._getframe(1).f_globals["__name__"]):
            return call(*args, **options)
        act("before")
        result = call(*args, **options)
        act("after")
        return result

    setattr(holder, name, watched)


def arm(place: Place, with_signal: int) -> None:
    """Send this process a signal at a place."""
    owner, name, when, which = place
    calls = 0

    def act(now: str) -> None:
        nonlocal calls
        calls += now == when
        if now == when and calls == which:
            os.kill(os.getpid(), with_signal)

    before_or_after(owner, name, act)


def arm_write(which: int | None, counted: Path) -> None:
    """Kill this process at one of all its writes, an even number before and an odd one after it; None: count them only."""
    n_events = 0

    def act(now: str) -> None:
        nonlocal n_events
        if n_events == which:
            os.kill(os.getpid(), signal.SIGKILL)
        n_events += 1
        counted.write_bytes(str(n_events).encode())

    for owner, name in WRITES:
        before_or_after(owner, name, act)


def do(order: dict[str, Any]) -> None:
    """Do what an order says, in this process."""
    from local.local_run import perform
    from victims import load

    if order.get("elsewhere"):
        from ebbtide.processes import Process

        Process.this = classmethod(lambda cls: cls("elsewhere@0-1:1:1"))
    if order.get("place"):
        arm(tuple(order["place"]), getattr(signal, order.get("signal", "SIGKILL")))
    if "call" in order:
        from crashes.calls import arm as arm_call

        arm_call(Path(order["root"]), Path(order["journal"]), *order["call"])
    if "write" in order:
        arm_write(order["write"], Path(order["counted"]))
    for command in order.get("first", ()):
        subprocess.run(command, check=True)
    if "most_bytes" in order:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["most_bytes"], hard))
    for kind, work, spec, clock_ms, given in order["works"]:
        perform(work, load(kind, spec), order["root"], clock_ms, given)
    for command in order.get("then", ()):
        subprocess.run(command, check=True)


def serve() -> None:
    """Fork a child for each order, and answer with how it ended: its exit status, negative a signal's, and what it said."""
    sys.path.insert(0, str(SUPPORT))
    _warm_up()
    gc.collect()
    gc.freeze()  # or children would copy what the collector looks at
    for line in sys.stdin:
        order = json.loads(line)
        said = Path(order["said"])
        pid = order.get("continue") or os.fork()
        if pid == 0:
            _child(order, said)
        if "continue" in order:
            os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, os.WUNTRACED)
        is_stopped = os.WIFSTOPPED(status)
        code = None if is_stopped else os.waitstatus_to_exitcode(status)
        text = said.read_text(encoding="utf-8") if said.exists() else ""
        print(json.dumps({"pid": pid, "code": code, "said": text}), flush=True)  # noqa: T201 - the answer


def _warm_up() -> None:
    """Have all loaded and compiled that runs need, once for all children."""
    from local.local_run import START, perform
    from victims import KINDS, spec_of, write_source

    from ebbtide import operations

    for module in walk_packages(operations.__path__, f"{operations.__name__}."):
        import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            source = write_source(Path(folder, "in", kind), kind)
            perform("run", spec_of(kind, source), folder, START, {})


def _child(order: dict[str, Any], said: Path) -> None:
    signal.alarm(PATIENCE_S)
    code = 1
    try:
        do(order)
        code = 0
    except BaseException as error:  # noqa: BLE001 - said to who asked
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        said.write_text(f"{type(error).__name__}: {error}\n{traceback.format_exc()}", encoding="utf-8")
    finally:
        os._exit(code)


class Killer:
    """Has orders done in processes of their own; a context manager.

    Args:
        folder: Its scratch folder.
        wrapper: A command to run all in, `unshare` for instance.
    """

    def __init__(self, folder: Path, wrapper: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._n = 0
        own = {"EBBTIDE_CACHE": str(folder / "cache"), "OPENBLAS_NUM_THREADS": "1", "JAVA_HOME": ""}
        self._server = subprocess.Popen(
            [*wrapper, sys.executable, __file__],
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stdin.close()
        self._server.wait(PATIENCE_S)
        self._server.stdout.close()

    def order(self, **order: Any) -> dict[str, Any]:
        """Have an order done; return how it ended."""
        self._n += 1
        order["said"] = str(self.folder / f"said-{self._n}")
        print(json.dumps(order), file=self._server.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer


if __name__ == "__main__":
    serve()
