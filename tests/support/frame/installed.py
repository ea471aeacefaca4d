"""The wheel, and environments of their own that have it installed as a user's have."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


def uv() -> str:
    """The uv that runs these tests, else the one on PATH, else the one that the Makefile fetches."""
    found = os.environ.get("UV") or shutil.which("uv")
    if found:
        return found
    subprocess.run(["make", "--silent", ".tools/bin/uv"], cwd=PROJECT, check=True)
    return str(PROJECT / ".tools" / "bin" / "uv")


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder."""
    subprocess.run([uv(), "build", "--quiet", "--wheel", "--out-dir", str(folder)], cwd=PROJECT, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


class Environment:
    """A virtual environment with the wheel and with what it depends on, as locked; nothing of this project's own.

    Args:
        folder: Where to make it.
        wheel: What to install.
        extras: Its extras.
    """

    def __init__(self, folder: Path, wheel: Path, *extras: str) -> None:
        self.folder = folder
        own = os.environ | {"UV_PROJECT_ENVIRONMENT": str(folder)}
        asked = [argument for extra in extras for argument in ("--extra", extra)]
        locked = ["--frozen", "--no-default-groups", "--no-install-project", "--python", sys.executable]
        subprocess.run([uv(), "sync", "--quiet", *locked, *asked], cwd=PROJECT, check=True, env=own)
        python = ["--python", str(folder / "bin" / "python")]
        subprocess.run([uv(), "pip", "install", "--quiet", "--no-deps", *python, str(wheel)], check=True)

    def call(self, project: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call a program of the environment in a project's folder."""
        programs = str(self.folder / "bin")
        own = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.folder),
            "DAGSTER_HOME": str(project),
            "COLUMNS": "200",
        }
        command = [f"{programs}/{program}", *arguments]
        return subprocess.run(command, cwd=project, check=False, capture_output=True, text=True, env=os.environ | own)
