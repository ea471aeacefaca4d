"""Class-data archives: Spark's JVM maps its classes from a file that an earlier one wrote, in place of loading and verifying them.

An archive belongs to one Java and one Spark, and is kept in the user's cache (190 MB). It is written once, at the end of a session
that is not the first one there (decision 0037). A JVM may crash on a file that is not whole, so a file gets its name only after the JVM that wrote it has ended well.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyspark

from ebbtide import java
from ebbtide.sessions._jars import cache_folder, digest_of
from ebbtide.sessions._versions import spark_home
from ebbtide.storage import Location

KEPT = 3
"""Number of archives that are kept: each Python environment has its Spark."""
UNNAMED_S = 3600
"""Age at which an unfinished file counts as abandoned, seconds."""
NAMED = ".jsa"
"""Ending of an archive that is whole."""
VARIABLE = "SPARK_SUBMIT_OPTS"
"""The environment's options for Spark's JVM that are not part of its configuration."""
NEVER_FAILING = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Xshare:auto",
    "-XX:+VerifySharedSpaces",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
    "-Xlog:class+path=off",
)
"""An archive that does not fit is ignored in silence."""
FOLDERS_OF_CLASSES = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Folders that Spark puts before its classes, where they are set. A JVM writes no archive if one of them has files."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive, as a JVM that is launched uses or writes it.

    Args:
        options: The JVM's.
        unnamed: Where it writes an archive as it ends; None if it writes none.
    """

    options: tuple[str, ...] = ()
    unnamed: Path | None = None

    @classmethod
    def of_this_machine(cls, *, may_write: bool) -> Self:
        """Use the archive, or have it written if there is none and it can be.

        Args:
            may_write: The JVM may take the time, some 25 CPU seconds.
        """
        archive = archive_path()
        if archive.is_file():
            return cls((*NEVER_FAILING, f"-XX:SharedArchiveFile={archive}"))
        if not (may_write and _can_be_written(archive)):
            return cls()
        unnamed = archive.with_suffix(f".{os.getpid()}")
        return cls((*NEVER_FAILING, f"-XX:ArchiveClassesAtExit={unnamed}"), unnamed)

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Give the options to a JVM that is launched meanwhile."""
        given = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = " ".join([*self.options, *([given] if given else [])])
        try:
            yield
        finally:
            if given is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = given

    def keep(self, exit_code: int) -> None:
        """Rename the archive that a JVM has written, and delete all except the newest.

        Args:
            exit_code: How the JVM ended.
        """
        if self.unnamed is None or not self.unnamed.is_file():
            return
        if exit_code != 0:
            self.unnamed.unlink()
            return
        archive = self.unnamed.with_suffix(NAMED)
        Location(self.unnamed).sync()
        self.unnamed.replace(archive)
        _delete_older(archive.parent)


def _delete_older(cache: Path) -> None:
    """Delete archives that newer ones have replaced, and what killed processes have left unnamed."""
    archives = cache.glob(f"classes-*{NAMED}")
    newest_first = sorted(archives, key=_time_of, reverse=True)
    to_delete = newest_first[KEPT:]
    left_since = time.time() - UNNAMED_S
    for path in cache.glob("classes-*"):
        is_unnamed = path.suffix != NAMED
        if is_unnamed and path.stat().st_mtime < left_since:
            to_delete.append(path)
    for path in to_delete:
        path.unlink(missing_ok=True)


def archive_path() -> Path:
    """Return where the archive of this Java and this Spark is, or would be."""
    command = java.command()
    executable = Path(shutil.which(command) or command).resolve()
    jars = spark_home() / "jars"
    # Replacing Java or Spark in place changes a time.
    parts = [
        str(executable),
        _time_of(executable),
        str(jars),
        _time_of(jars),
        pyspark.__version__,
    ]
    text = "\n".join(parts)
    digest = digest_of(text)
    return cache_folder() / f"classes-{digest}{NAMED}"


def _can_be_written(archive: Path) -> bool:
    folders = [spark_home() / "conf"]
    for variable in FOLDERS_OF_CLASSES:
        folder = os.environ.get(variable)
        if folder:
            folders.append(Path(folder))
    if any(map(_has_files, folders)):
        return False
    try:
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(archive.parent, os.W_OK) and " " not in str(archive)  # options are divided at spaces


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _time_of(path: Path) -> str:
    try:
        return str(path.stat().st_mtime_ns)
    except OSError:
        return ""
