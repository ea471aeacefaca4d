"""As much of Kubernetes as a driver of Spark sees: an API on loopback that allows what a role does, and pods whose containers are processes.

Each pod has an address of loopback, folders in place of its volumes, and only the variables that it says. What is posted must fit the schemas of Kubernetes.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
from frame.deployed import Process, moved
from frame.loopback import serving
from frame.waiting import PATIENCE_S, until

VERSION = "1.37"
KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "persistentvolumeclaims": "PersistentVolumeClaim"}
ONE = {"GET": "get", "DELETE": "delete", "POST": "create", "PATCH": "patch", "PUT": "update"}
MANY = {"GET": "list", "DELETE": "deletecollection", "POST": "create"}
_PATH = re.compile(r"/api/v1/namespaces/default/(\w+)(?:/([\w.-]+))?")
Object = dict[str, Any]


@dataclass
class _Watch:
    resource: str
    asked: Mapping[str, list[str]]
    events: queue.Queue[Object | None] = field(default_factory=queue.Queue)


class Kubernetes:
    """Objects of one namespace, and the processes of its pods.

    Args:
        folder: Has the volumes of the pods, and what their containers print.
        rules: Those of the role of the account that asks.
        environment: Variables that the image of all containers has.
        secrets: Variables of each secret.
        crashes: Names' ends of pods whose container is killed at its start.
    """

    def __init__(
        self,
        folder: Path,
        rules: Sequence[Mapping[str, list[str]]],
        environment: Mapping[str, str],
        secrets: Mapping[str, Mapping[str, str]],
        crashes: Sequence[str] = (),
    ) -> None:
        self._folder, self._rules, self._environment = folder, rules, environment
        self._secrets, self._crashes = secrets, crashes
        self._objects: dict[tuple[str, str], Object] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watches: list[_Watch] = []
        self._lock = threading.RLock()
        self._n_pods = 0
        self.used: set[tuple[str, str]] = set()
        """Resource and verb of each request that was allowed."""
        self.refused: list[str] = []
        """The requests that were not, and objects that do not fit."""
        self.posted: list[Object] = []
        """The pods that were asked for."""

    def may(self, resource: str, verb: str) -> bool:
        """Return whether the role allows something, and note it."""
        is_allowed = any(
            "" in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"] for rule in self._rules
        )
        if is_allowed:
            self.used.add((resource, verb))
        return is_allowed

    def add(self, resource: str, made: Object) -> Object:
        """Add an object; start the container of a pod."""
        with self._lock:
            name = made["metadata"]["name"]
            made["metadata"] |= {
                "uid": f"uid-{name}",
                "namespace": "default",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            }
            self._objects[resource, name] = made
            if resource == "pods":
                self._start(made)
            self._tell("ADDED", resource, made)
        return made

    def find(self, resource: str, asked: Mapping[str, list[str]]) -> list[Object]:
        """Return the objects that a request selects."""
        with self._lock:
            return [made for (kind, _), made in self._objects.items() if kind == resource and _is_selected(made, asked)]

    def at(self, resource: str, name: str) -> Object | None:
        """Return an object; None: it is not there."""
        return self._objects.get((resource, name))

    def remove(self, resource: str, name: str) -> None:
        """Remove an object; kill the container of a pod."""
        with self._lock:
            gone = self._objects.pop((resource, name))
            if resource == "pods":
                self._kill(name)
            self._tell("DELETED", resource, gone)

    def watch(self, resource: str, asked: Mapping[str, list[str]]) -> _Watch:
        """Return a watch, which begins with what is there unless it says from where on."""
        with self._lock:
            watch = _Watch(resource, asked)
            self._watches.append(watch)
            if "resourceVersion" not in asked:
                for made in self.find(resource, asked):
                    watch.events.put({"type": "ADDED", "object": _now(made)})
        return watch

    def wait_for(self, name: str) -> tuple[int, str]:
        """Wait for the end of a pod's container; return its exit code, and what it printed."""
        process = until(lambda: self._processes.get(name), f"the start of {name}")
        return process.wait(PATIENCE_S), self.said(name)

    def said(self, name: str) -> str:
        """Return what a container has printed."""
        return (self._folder / name / "log").read_text(errors="replace")

    def stop(self) -> None:
        """Kill all containers, and end all watches."""
        with self._lock:
            for name in self._processes:
                self._kill(name)
            for watch in self._watches:
                watch.events.put(None)

    def _start(self, pod: Object) -> None:
        self._n_pods += 1
        self.posted.append(pod)
        pod["status"] = {"phase": "Pending", "podIP": f"127.0.1.{self._n_pods}"}
        threading.Thread(target=self._live, args=(pod,), daemon=True).start()

    def _live(self, pod: Object) -> None:
        """Start the container of a pod once its volumes can be had, which may come later; see it to its end."""
        name = pod["metadata"]["name"]
        volumes = pod["spec"]["volumes"]
        needed = [("configmaps", volume["configMap"]["name"]) for volume in volumes if "configMap" in volume]
        until(lambda: all(each in self._objects for each in needed), f"the volumes of {name}")
        with self._lock:
            if self.at("pods", name) is not pod:
                return
            running = self._processes[name] = self._run(pod, self._folder / name)
            self._set_state(pod, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        if name.endswith(tuple(self._crashes)):
            self._kill(name)
        code = running.wait()
        with self._lock:
            if self.at("pods", name) is pod:
                ended = {"exitCode": code if code >= 0 else 128 - code, "finishedAt": "2026-01-01T00:00:01Z"}
                self._set_state(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def _run(self, pod: Object, own: Path) -> subprocess.Popen[bytes]:
        own.mkdir()
        [container] = pod["spec"]["containers"]
        process = self._process(pod, container, own)
        with (own / "log").open("wb") as log:
            return subprocess.Popen(
                process.command,
                env={**self._environment, **process.environment},
                cwd=process.environment["PWD"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _process(self, pod: Object, container: Object, own: Path) -> Process:
        """Return the process of a container: its variables, and folders in place of its volumes."""
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        folders = {mount["mountPath"]: str(own / mount["name"]) for mount in container["volumeMounts"]}
        for mount in container["volumeMounts"]:
            folder = own / mount["name"]
            folder.mkdir()
            if "configMap" in volumes[mount["name"]]:
                config = self._objects["configmaps", volumes[mount["name"]]["configMap"]["name"]]
                for file, text in config["data"].items():
                    (folder / file).write_text(moved(text, {mount["mountPath"]: str(folder)}))
        variables: dict[str, str] = {}
        for source in container.get("envFrom", []):
            variables |= self._secrets[source["secretRef"]["name"]]
        for each in container["env"]:
            variables[each["name"]] = each["value"] if "value" in each else _field(pod, each["valueFrom"])
        process = Process([*container.get("command", []), *container["args"]], variables).below(folders, {})
        command = [re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], part) for part in process.command]
        working = container.get("workingDir")
        return Process(command, {**process.environment, "PWD": folders[working] if working else str(own)})

    def _set_state(self, pod: Object, phase: str, state: Object) -> None:
        is_running = str(phase == "Running")
        [container] = pod["spec"]["containers"]
        pod["status"] |= {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": is_running}],
            "containerStatuses": [{"name": container["name"], "ready": is_running == "True", "state": state}],
        }
        self._tell("MODIFIED", "pods", pod)

    def _kill(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    def _tell(self, what: str, resource: str, made: Object) -> None:
        for watch in self._watches:
            if watch.resource == resource and _is_selected(made, watch.asked):
                watch.events.put({"type": what, "object": _now(made)})


def _now(made: Object) -> Object:
    copied: Object = json.loads(json.dumps(made))
    return copied


def _field(pod: Object, source: Object) -> str:
    found: Any = pod
    for part in source["fieldRef"]["fieldPath"].split("."):
        found = found[part]
    return str(found)


def _is_selected(made: Object, asked: Mapping[str, list[str]]) -> bool:
    labels = made["metadata"].get("labels", {})
    fields = {"metadata.name": made["metadata"]["name"]}
    for name, have in (("labelSelector", labels), ("fieldSelector", fields)):
        for condition in filter(None, asked.get(name, [""])[0].split(",")):
            key, sign, value = re.fullmatch(r"([^!=]+)(!?=)(.*)", condition).groups()  # type: ignore[union-attr]
            if (have.get(key) == value) != (sign == "="):
                return False
    return True


@contextmanager
def kubernetes(port: int, made: Kubernetes) -> Iterator[Kubernetes]:
    """Serve the API on loopback; end all containers in the end."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            asked = parse_qs(url.query)
            resource, name = _PATH.fullmatch(url.path).groups()  # type: ignore[union-attr]
            is_watch = asked.get("watch") == ["true"]
            verb = "watch" if is_watch else (ONE if name else MANY)[self.command]
            if not made.may(resource, verb):
                made.refused.append(f"{verb} {resource}")
                self.send(403, {"kind": "Status", "status": "Failure", "code": 403})
            elif is_watch:
                self.stream(made.watch(resource, asked))
            else:
                self.send(*done(resource, name, verb, asked, body))

        def send(self, code: int, content: Object) -> None:
            data = json.dumps({"apiVersion": "v1", **content}).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self, watch: _Watch) -> None:
            self.send_response(200)  # also where a web socket is asked for: the client then reads lines
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            if "Upgrade" not in self.headers:
                while event := watch.events.get():
                    self.wfile.write(json.dumps(event).encode() + b"\n")
            self.close_connection = True

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True  # the client has gone

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - as the library names them

    def done(
        resource: str, name: str | None, verb: str, asked: Mapping[str, list[str]], body: bytes
    ) -> tuple[int, Object]:
        found = made.find(resource, asked)
        if verb == "create":
            return created(resource, json.loads(body))
        if name:
            one = made.at(resource, name)
            if one is None:
                return 404, {"kind": "Status", "status": "Failure", "code": 404}
            if verb == "delete":
                made.remove(resource, name)
            return 200, one
        if verb == "deletecollection":
            for each in found:
                made.remove(resource, each["metadata"]["name"])
        return 200, {"kind": f"{KINDS[resource]}List", "metadata": {"resourceVersion": "1"}, "items": found}

    def created(resource: str, given: Object) -> tuple[int, Object]:
        try:
            kubernetes_validate.validate(given, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            made.refused.append(str(error))
            return 422, {"kind": "Status", "status": "Failure", "code": 422, "message": str(error)}
        return 201, made.add(resource, given)

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server, serving(server):
        try:
            yield made
        finally:
            made.stop()
