"""`ebbtide`, `dg` and `python` without their start: each call is a fork of one process that has all loaded.

`warm_programs.py` by itself is that process: it listens on the socket that it is given.
"""

from __future__ import annotations

import builtins
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Self

PROGRAMS = ("ebbtide", "dg", "python")
MOST_BYTES = 1 << 20
"""Of a call: arguments and variables."""
CALL = f"""#!{sys.executable} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({{address!r}})
call = {{{{"program": {{program!r}}, "arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}}}
socket.send_fds(server, [json.dumps(call).encode()], [0, 1, 2])
sys.exit(int(server.recv(9) or 70))
"""


class WarmPrograms:
    """The process, and a folder of programs that have it do what they are called for; a context manager.

    Args:
        folder: A short path: that of a socket has 107 bytes at most.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        address = str(folder / "socket")
        for program in PROGRAMS:
            path = folder / program
            path.write_text(CALL.format(address=address, program=program))
            path.chmod(0o755)
        self._server = subprocess.Popen(
            [sys.executable, __file__, address], stdout=subprocess.PIPE, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        )

    def __enter__(self) -> Self:
        assert self._server.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()
        self._server.stdout.close()


def serve(address: str) -> None:
    """Load all that a program may need, and do what is called for until killed."""
    mains = {"ebbtide": _loaded("ebbtide.cli", "main"), "dg": _loaded("dagster_dg_cli.cli", "main"), "python": python}
    import ebbtide

    for module in walk_packages(ebbtide.__path__, "ebbtide."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who waits for a call is a fork of its own
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    print("ready", flush=True)  # noqa: T201 - the answer
    while True:
        caller, _ = server.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(caller, mains)
        caller.close()


def _loaded(module: str, name: str) -> Callable[[], Any]:
    return getattr(import_module(module), name)


def _answer(caller: socket.socket, mains: dict[str, Callable[[], Any]]) -> None:
    text, streams, _, _ = socket.recv_fds(caller, MOST_BYTES, 3)
    call = json.loads(text)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        caller.send(str(os.waitstatus_to_exitcode(status) % 256).encode())
        os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(0):
        os.setsid()  # so that a terminal can become its own
        sys.stdin, sys.stdout, sys.stderr = [open(number, mode, closefd=False) for number, mode in enumerate("rww")]  # noqa: SIM115
    caller.close()
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.argv = [call["program"], *call["arguments"]]
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    try:
        code = mains[call["program"]]()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as Python does at the end of a program
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


def python() -> None:
    """Run a script, or the code behind `-c`, perhaps with a filter of warnings before it."""
    first, *rest = sys.argv[1:]
    if first == "-W":
        action, _, category = rest[0].partition("::")
        warnings.simplefilter(action, getattr(builtins, category))
        first, *rest = rest[1:]
    sys.argv = [first, *rest]
    if first == "-c":
        sys.path.insert(0, "")
        exec(rest[0], {"__name__": "__main__"})  # noqa: S102 - a page's
        return
    sys.path.insert(0, str(Path(first).parent))
    runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
