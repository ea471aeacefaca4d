"""Files of Python code that a session brings, as Spark's `--py-files`: importable here, by Spark's workers, and by the session's jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ebbtide.errors import ConfigError

SETTING = "spark.submit.pyFiles"
SUFFIXES = (".py", ".zip", ".egg")


def imported_from(given: str) -> tuple[str, ...]:
    """Make files importable in this process; return their absolute paths.

    Args:
        given: Paths, with commas between them; empty: none.

    Raises:
        ConfigError: a file is not there, or of another kind.
    """
    files = [Path(path.strip()).absolute() for path in given.split(",") if path.strip()]
    for file in files:
        if file.suffix not in SUFFIXES or not file.is_file():
            raise ConfigError.of(
                "A file of --py-files is not usable.",
                got=file,
                allowed=f"files that are there, {', '.join(SUFFIXES)}",
                next_step="Put folders of modules into a .zip, or install them as a package.",
            )
    paths = tuple(map(str, files))
    for place in reversed(_places(paths)):
        if place not in sys.path:
            sys.path.insert(1, place)  # before installed packages, as Spark has it
    return paths


def for_spark(files: Sequence[str]) -> dict[str, str]:
    """Return the settings by which Spark gives files to its workers."""
    return {SETTING: ",".join(files)} if files else {}


def for_process(files: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that is to import from files."""
    before = environment.get("PYTHONPATH", "")
    places = [*_places(files), *([before] if before else [])]
    return {**environment, "PYTHONPATH": os.pathsep.join(places)} if files else dict(environment)


def _places(files: Sequence[str]) -> list[str]:
    """Return the entries of `sys.path` for files: an archive itself, the folder of a module."""
    places = [str(Path(file).parent) if file.endswith(".py") else file for file in files]
    return list(dict.fromkeys(places))
