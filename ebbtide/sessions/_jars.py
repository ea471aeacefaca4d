"""The jars of Spark packages, found again without Ivy: it costs a CPU second or two at each start, and may ask the network.

Ivy resolves packages once. What it found is noted, in a folder of the user's own, and handed to Spark from then on as long as all
of it is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyspark

from ebbtide.sessions._settings import EXCLUDES, PACKAGES

JARS = "spark.jars"


def with_known_jars(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark settings that name the jars of their packages, where these are known; else the settings as they are."""
    known = _noted(settings)
    if not known:
        return dict(settings)
    kept = {name: value for name, value in settings.items() if name != PACKAGES}
    jars = list(known)
    if kept.get(JARS):
        jars.append(kept[JARS])
    kept[JARS] = ",".join(jars)
    return kept


def note_jars(settings: Mapping[str, str], jars: str) -> None:
    """Note what Ivy found.

    Args:
        settings: Those that name the packages.
        jars: The setting `spark.jars` of the session that started with them: URIs, separated by commas.
    """
    shipped = _shipped_artifacts()
    needed = []
    for jar in filter(None, jars.split(",")):
        uri = urlparse(jar)
        path = unquote(uri.path)
        if _artifact(path) not in shipped:
            needed.append(path)
    if not needed:
        return
    note = _note_of(settings)
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unnamed = note.with_suffix(f".{os.getpid()}")
    unnamed.write_text(json.dumps(needed), encoding="utf-8")
    unnamed.replace(note)


def _noted(settings: Mapping[str, str]) -> list[str]:
    """Return the jars noted of packages; none if one of them is gone."""
    try:
        text = _note_of(settings).read_text(encoding="utf-8")
    except OSError:
        return []
    jars: list[str] = json.loads(text)
    are_there = all(Path(jar).is_file() for jar in jars)
    if not are_there:
        return []
    return jars


def _note_of(settings: Mapping[str, str]) -> Path:
    """Return the file that lists the jars of packages, separate for each version of Spark and each set of exclusions."""
    asked = f"{pyspark.__version__} {settings.get(PACKAGES, '')}"
    if settings.get(EXCLUDES):
        asked = f"{asked} without {settings[EXCLUDES]}"
    digest = digest_of(asked)
    return cache_folder() / f"jars-{digest}.json"


def digest_of(text: str) -> str:
    """Return a short digest of what a file of the folder depends on, for its name."""
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return the folder of what a user's starts of Spark have in common."""
    given = os.environ.get("XDG_CACHE_HOME")
    cache = Path(given) if given else Path.home() / ".cache"
    return cache / "ebbtide"


def _shipped_artifacts() -> set[str]:
    """Return the artifacts that Spark brings itself: its own are loaded first, so that another version of them does nothing."""
    folder = Path(pyspark.__file__).parent / "jars"
    jars = folder.glob("*.jar")
    return {_artifact(jar.name) for jar in jars}


def _artifact(jar: str) -> str:
    """Return an artifact's name, given its jar: `group_artifact-1.2.jar` as Ivy names it, or `artifact-1.2.jar`.

    Example:
        >>> _artifact("/jars/io.delta_delta-spark_4.2_2.13-4.4.0.jar"), _artifact("delta-storage-4.4.0.jar")
        ('delta-spark_4.2_2.13', 'delta-storage')
    """
    name = Path(jar).name
    group, separator, rest = name.partition("_")
    has_group = bool(separator) and "." in group and not re.search(r"-\d", group)
    artifact = rest if has_group else name
    return re.sub(r"-\d[^-]*(-[^-]*)?\.jar$", "", artifact)
