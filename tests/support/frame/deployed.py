"""Samples of deployments, run as the service manager or the kubelet would: their commands, variables and folders, below a folder of the test."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
EBBTIDE = str(Path(sys.executable).with_name("ebbtide"))


@dataclass(frozen=True)
class Process:
    """A process of a sample.

    Args:
        command: What starts it.
        environment: Its own variables.
    """

    command: list[str]
    environment: Mapping[str, str]

    def below(self, folders: Mapping[str, str], options: Mapping[str, str]) -> Process:
        """Return it with other folders in place of the sample's, and other values of options."""

        def given_here(text: str) -> str:
            name, separator, _ = text.partition("=")
            return f"{name}={options[name]}" if separator and name in options else moved(text, folders)

        given = [given_here(part) for part in self.command]
        for name, value in options.items():
            if name in given:
                given[given.index(name) + 1] = value
        return Process(given, {name: given_here(value) for name, value in self.environment.items()})


def moved(text: str, folders: Mapping[str, str]) -> str:
    """Return a text with other folders in place of the sample's."""
    if not folders:
        return text
    longest_first = sorted(map(re.escape, folders), reverse=True)
    return re.sub(rf"({'|'.join(longest_first)})(?![\w.-])", lambda found: folders[found[1]], text)


def documents(file: str = "ebbtide.yaml") -> list[dict[str, Any]]:
    """Return the objects of a file of the Kubernetes sample."""
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / file).read_text()))


def named(kind: str) -> dict[str, Any]:
    """Return the only object of a kind."""
    [found] = [each for each in documents() if each["kind"] == kind]
    return found


def pod_of(kind: str) -> dict[str, Any]:
    """Return the pod that an object makes."""
    spec = named(kind)["spec"]
    inner = spec["jobTemplate"]["spec"] if kind == "CronJob" else spec
    template: dict[str, Any] = inner["template"]
    return template


def process_of_pod(kind: str) -> Process:
    """Return the process of the only container of a pod."""
    [container] = pod_of(kind)["spec"]["containers"]
    command = [*container.get("command", []), *container.get("args", [])]
    return Process(command, {each["name"]: each["value"] for each in container["env"]})


def unit(name: str) -> dict[str, list[str]]:
    """Return the settings of a unit of the systemd sample, each with its values in order, `%i` replaced by `orders`."""
    found: dict[str, list[str]] = {}
    for line in (EXAMPLES / "systemd" / name).read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(key, []).append(value.replace("%i", "orders"))
    return found


def process_of_unit(name: str) -> Process:
    """Return the first process of a unit, with the variables of its files."""
    settings = unit(name)
    environment = dict(pair.split("=", 1) for line in settings["Environment"] for pair in shlex.split(line))
    for path in settings["EnvironmentFile"]:
        lines = (EXAMPLES / "systemd" / Path(path).name).read_text().splitlines()
        environment |= dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    command = shlex.split(settings["ExecStart"][0])
    expanded = [re.sub(r"\$\{(\w+)\}", lambda match: environment[match[1]], part) for part in command]
    return Process(expanded, environment)


def container_file() -> list[tuple[str, str]]:
    """Return the instructions of the container file, each with its text, continued lines joined."""
    text = (EXAMPLES / "container" / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines()) if name]
