"""Fetches published packages by the Ivy that Spark brings, so that no Maven is needed; once for a user."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Options of a JVM that takes classes as they are: 1 to 3 CPU seconds a start."""
LEAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *UNVERIFIED)
"""Options of a JVM that lives for seconds."""
JVM = ("-Xmx512m", *LEAST)


def cache_of(name: str) -> Path:
    """The folder that keeps what was fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ebbtide" / name


def fetch(
    folder: Path, modules: Sequence[str], *, type_: str = "jar", classifier: str = "", with_theirs: bool = False
) -> None:
    """Have Ivy fetch modules, from where Spark fetches its packages; each file comes into the folder in one piece.

    Args:
        folder: Takes them, as ARTIFACT-VERSION.TYPE.
        modules: GROUP:ARTIFACT:VERSION of each.
        type_: What of a module is wanted.
        classifier: Which of these.
        with_theirs: What they depend on is wanted, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = "".join(_entry(*module.split(":"), type_, classifier, with_theirs=with_theirs) for module in modules)
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    root = f'root="{repository}"' if repository else ""
    scope = "default->master,runtime" if with_theirs else "default->master"
    with tempfile.TemporaryDirectory(dir=folder) as work:
        ivy, settings, found = Path(work, "ivy.xml"), Path(work, "settings.xml"), Path(work, "found")
        ivy.write_text(
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="tests" module="parts"/>'
            f'<configurations defaultconf="default" defaultconfmapping="{scope}"><conf name="default"/></configurations>'
            f"<dependencies>{entries}</dependencies></ivy-module>"
        )
        settings.write_text(
            '<ivysettings><settings defaultResolver="packages"/>'
            f'<resolvers><ibiblio name="packages" m2compatible="true" {root}/></resolvers></ivysettings>'
        )
        jar = next(SPARK_JARS.glob("ivy-*.jar"))
        command = ["java", *JVM, "-cp", str(jar), "org.apache.ivy.Main", "-settings", str(settings), "-ivy", str(ivy)]
        command += ["-cache", str(Path(work, "cache")), "-types", type_, "bundle"]
        command += ["-retrieve", f"{found}/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        files = list(found.glob("*"))
        if done.returncode or len(files) < len(modules):
            raise RuntimeError(f"These cannot be fetched: {', '.join(modules)}: {done.stdout[-2000:]}")
        for each in files:
            each.replace(folder / each.name)


def _entry(group: str, name: str, version: str, type_: str, classifier: str, *, with_theirs: bool) -> str:
    artifact = (
        f'<artifact name="{name}" type="{type_}" ext="{type_}" m:classifier="{classifier}"/>' if classifier else ""
    )
    transitive = str(with_theirs).lower()
    return f'<dependency org="{group}" name="{name}" rev="{version}" transitive="{transitive}">{artifact}</dependency>'
