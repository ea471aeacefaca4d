"""The commands of the page on clusters, run as a reader runs them: only names of hosts, folders and versions are replaced."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusters.ivy import LEAST
from clusters.spark_cluster import end_with_parent
from clusters.spark_support import PROJECT
from frame.installed import uv

PAGE = PROJECT / "docs" / "how-to" / "clusters.md"
PYTHON_OF_PAGE = "3.13"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def path_of_hosts() -> str:
    """Return a PATH whose Python is the bare one, without Ebbtide: as hosts have it."""
    programs = [Path(sys.base_exec_prefix) / "bin", Path(sys.executable).parent, Path(uv()).parent]
    return os.pathsep.join([*map(str, programs), os.environ["PATH"]])


def blocks() -> dict[str, list[str]]:
    """Return the blocks of commands of each section."""
    return {name: _BLOCK.findall(text) for name, text in _SECTION.findall(PAGE.read_text(encoding="utf-8"))}


class Reader:
    """Runs the page's commands in a folder.

    Args:
        folder: Where; `SPEC` and `ROOT` of the page are its `spec` and `root`.
        replaced: Further words of the page, each with what stands for it here.
        settings: Lines of `spark-defaults.conf`, which a reader has for a cluster.
        environment: Further variables.
    """

    def __init__(
        self,
        folder: Path,
        replaced: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self._events = folder, folder / "events"
        self._replaced = {PYTHON_OF_PAGE: PYTHON, "SPEC": "spec", "ROOT": "root", **(replaced or {})}
        conf = folder / "conf"
        for made in (conf, self._events):
            made.mkdir()
        lines = {
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "2",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.extraJavaOptions": " ".join(LEAST),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(self._events),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            **(settings or {}),
        }
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        self._environment = os.environ | {
            "PATH": path_of_hosts(),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "disk"),
            "EBBTIDE_CACHE": str(folder / "copies"),
            **(environment or {}),
        }
        for name in ("VIRTUAL_ENV", "PYTHONPATH"):
            self._environment.pop(name, None)

    def run(self, section: str, number: int = -1, without: str = "") -> subprocess.CompletedProcess[str]:
        """Run a block of a section to its end.

        Args:
            section: Its heading.
            number: Of the block.
            without: Words to leave out.
        """
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._text(section, number).replace(without, "")],
            cwd=self.folder,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )

    @contextmanager
    def running(self, section: str, number: int, environment: Mapping[str, str]) -> Iterator[None]:
        """Keep the one command of a block running."""
        command = ["bash", "-euc", f"exec {self._text(section, number)}"]
        with running(command, self.folder, {**self._environment, **environment}):
            yield

    def tasks(self) -> Counter[str]:
        """Count the tasks of the runs by what had them: an executor's own log address, or `driver`."""
        executors, tasks = {"driver": "driver"}, Counter[str]()
        for event in self._logged():
            if event["Event"] == "SparkListenerExecutorAdded":
                executors[event["Executor ID"]] = str(event["Executor Info"]["Log Urls"].get("stdout"))
            elif event["Event"] == "SparkListenerTaskEnd":
                tasks[executors[event["Task Info"]["Executor ID"]]] += 1
        return tasks

    def jobs(self) -> set[str]:
        """Return the descriptions of all jobs."""
        starts = [event for event in self._logged() if event["Event"] == "SparkListenerJobStart"]
        return {event["Properties"].get("spark.job.description", "") for event in starts}

    def _logged(self) -> Iterator[dict[str, Any]]:
        for path in self._events.iterdir():
            yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())

    def _text(self, section: str, number: int) -> str:
        text = blocks()[section][number]
        for word, here in self._replaced.items():
            text = text.replace(word, here)
        return text


@contextmanager
def running(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Keep a process running, alone in its group; its output comes into `processes.log`."""
    with (folder / "processes.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - one thread starts all
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
