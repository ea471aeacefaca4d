"""Search for a Java that Spark can run on. Also a script of the standard library alone: `make java` runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

OLDEST = 17
ANSWERS_WITHIN_S = 60
ALLOWED = f"Java {OLDEST} or newer"
TO_GET_IT = """To get it:
  Debian, Ubuntu:  apt install openjdk-17-jre-headless
  macOS:           brew install openjdk@17
  anywhere:        sdk install java   (SDKMAN, https://sdkman.io)"""


def command() -> str:
    """Return the command with which Spark starts Java."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"  # noqa: PTH118 - as it is typed, for messages


def problem() -> tuple[str, str] | None:
    """Look for Java where Spark does: JAVA_HOME goes before PATH.

    Returns:
        The fault and the value got; None if Spark can start.
    """
    home = os.environ.get("JAVA_HOME")
    java = command()
    found = shutil.which(java)
    version = _version(found) if found else None
    if version is None:
        return "Java is missing.", f"none at {java}, where JAVA_HOME points" if home else "none on PATH"
    if int(version.partition(".")[0]) < OLDEST:
        return "Java is too old.", f"{version} ({java})"
    return None


def refuse_missing() -> None:
    """Refuse to continue if Spark cannot start because PySpark or Java is missing.

    Raises:
        MissingExtraError: PySpark is not installed.
        JavaMissingError: there is no Java to start, or it is too old.
    """
    from ebbtide.errors import JavaMissingError, MissingExtraError

    if find_spec("pyspark") is None:
        raise MissingExtraError.of_extra("spark", "PySpark")
    wrong = problem()
    if wrong is not None:
        what, got = wrong
        raise JavaMissingError.of(what, got=got, allowed=ALLOWED, next_step=TO_GET_IT)


@cache
def _version(java: str) -> str | None:
    """Return what a Java says of its version, 17.0.2 for instance; None if it is not one: macOS has a stub in its place, and some do not answer."""
    try:
        said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True, timeout=ANSWERS_WITHIN_S)
    except subprocess.TimeoutExpired:
        return None
    found = re.search(r'version "(\d[\d.]*)', said.stderr + said.stdout)
    return found[1] if found else None


if __name__ == "__main__":
    wrong = problem()
    if wrong:
        sys.exit(f"{wrong[0]} Got: {wrong[1]}. Allowed: {ALLOWED}. {TO_GET_IT}")
