"""Users of their own for processes of a test: root starts them, in a namespace whose `/etc/passwd` has them.

Folders of the home of the tests' user that a process needs, such as the interpreter, are shown in the namespace; the rest of that home is not.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

GROUP_ID = 64_200
FIRST_ID = 64_201
CAPABILITIES_VERSION, CAP_DAC_OVERRIDE = 0x20080522, 1 << 1
SHARED = 0o2770
"""Mode of a root that a group shares."""
_NAMESPACE = """
set -e
mount --bind "$PASSWD" /etc/passwd
aside=$(mktemp -d)
mount -t tmpfs none "$aside"
n=0
for path in $SHOWN; do n=$((n + 1)); mkdir "$aside/$n"; mount --bind "$path" "$aside/$n"; done
for path in $CLOSED; do mount -t tmpfs -o mode=755 none "$path"; done
n=0
for path in $SHOWN; do n=$((n + 1)); mkdir -p "$path"; mount --move "$aside/$n" "$path"; done
umask 002
cd "$HOME"
exec setpriv --reuid "$ID" --regid "$ID" --groups "$GROUP" --bounding-set=-all --pdeathsig KILL "$@"
"""
"""Makes the namespace; what is moved may not be below a folder that is covered."""


def refuse_without_root() -> None:
    """Fail where no process can be another user's: a test that was not run must be seen."""
    if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        pytest.fail("NOT RUN: users of their own need root, unshare, setpriv and mount")


@dataclass(frozen=True)
class User:
    """A user of the group.

    Args:
        name: Their name.
        id: Number of the user and of the user's own group.
        home: A folder that only this user can read.
    """

    name: str
    id: int
    home: Path

    def command(self, *command: str) -> list[str]:
        """Return a command that runs another one as this user."""
        shown = [str(path) for path in _needed()]
        given = {
            "PASSWD": str(self.home.parent / "passwd"),
            "SHOWN": " ".join(path for path in shown if _closed(Path(path))),
            "CLOSED": " ".join(sorted({str(folder) for path in shown if (folder := _closed(Path(path)))})),
            "ID": str(self.id),
            "GROUP": str(GROUP_ID),
            "HOME": str(self.home),
        }
        variables = [f"{name}={value}" for name, value in given.items()]
        return ["env", *variables, "unshare", "--mount", "sh", "-c", _NAMESPACE, "sh", *command]

    def give(self, folder: Path) -> None:
        """Make a folder, with all that is in it, this user's alone."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.id, self.id)
        folder.chmod(0o700)

    @property
    def environment(self) -> Mapping[str, str]:
        """Where the user keeps what is the user's own."""
        own = {"TMPDIR": "tmp", "EBBTIDE_CACHE": "cache", "XDG_CACHE_HOME": "noted"}
        return {name: str(self.home / folder) for name, folder in own.items()}


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that all users may read, which those of pytest are not."""
    refuse_without_root()
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


def make_users(folder: Path, names: Sequence[str]) -> dict[str, User]:
    """Make users, with homes in a folder that all may read."""
    lines = Path("/etc/passwd").read_text().splitlines()
    users = {}
    for number, name in enumerate(names):
        user = User(name, FIRST_ID + number, folder / name)
        lines.append(f"{name}:x:{user.id}:{user.id}::{user.home}:/bin/sh")
        _make_home(user)
        users[name] = user
    (folder / "passwd").write_text("\n".join(lines) + "\n")
    return users


@contextmanager
def without_override() -> Iterator[None]:
    """Bind root to the modes of files, in this thread and those that it starts: without CAP_DAC_OVERRIDE."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable ones, the first 32 of each before the rest

    def call(name: str) -> None:
        if getattr(libc, name)(header, sets):
            raise OSError(ctypes.get_errno(), name)

    call("capget")
    before = sets[0]
    sets[0] = before & ~CAP_DAC_OVERRIDE
    call("capset")
    try:
        yield
    finally:
        sets[0] = before
        call("capset")


def make_shared_root(folder: Path) -> Path:
    """Make a root that the group of the users shares."""
    folder.mkdir()
    os.chown(folder, 0, GROUP_ID)
    folder.chmod(SHARED)
    return folder


def names_of_owners(users: Mapping[str, User], root: Path) -> set[str]:
    """Return who owns the files below a root."""
    names = {user.id: name for name, user in users.items()}
    return {
        names.get(owner) or pwd.getpwuid(owner).pw_name for owner in {path.stat().st_uid for path in root.rglob("*")}
    }


def _make_home(user: User) -> None:
    (user.home / "tmp").mkdir(parents=True)
    noted = user.home / "noted" / "ebbtide"
    noted.mkdir(parents=True)
    for note in (_cache() / "ebbtide").glob("jars-*.json"):
        shutil.copy(note, noted)
    user.give(user.home)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _needed() -> list[Path]:
    """What any process of the project reads: the interpreter, the environment, the repository, jars that Spark has fetched."""
    repository = Path(__file__).parents[3]
    jars = [path / "jars" for path in Path.home().glob(".ivy2*") if (path / "jars").is_dir()]
    needed = [Path(sys.base_prefix), Path(sys.prefix), repository, *jars]
    return [path for path in needed if not any(path.is_relative_to(above) for above in needed if above != path)]


def _closed(path: Path) -> Path | None:
    """Return the highest folder above a path that others may not pass through; None if all are open."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & 0o001:
            return folder
    return None
