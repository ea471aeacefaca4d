"""Where this project's tables are, and what Spark runs with: a profile, chosen by the environment.

Environment: `EBBTIDE_PROFILE`: `dev` (default) or `cluster`. `EBBTIDE_ROOT`: folder or URI of all tables; in `cluster` it
must be given.
"""

from __future__ import annotations

import os
from pathlib import Path

from ebbtide.dagster import Resources
from ebbtide.errors import ConfigError

PROJECT = Path(__file__).resolve().parents[1]
HERE = PROJECT / ".ebbtide"
DATA_DOCS = str(HERE / "data_docs")


def dev() -> Resources:
    """Return a profile for one machine: tables in the project's folder, Spark as it comes, which small runs would do without."""
    root = os.environ.get("EBBTIDE_ROOT", str(HERE))
    return Resources(root=root, data_docs=DATA_DOCS, engine="spark")


def cluster() -> Resources:
    """Return a profile for shared tables: a step is cut into more parts."""
    root = os.environ.get("EBBTIDE_ROOT")
    if not root:
        raise ConfigError.of(
            "The profile 'cluster' has no root.",
            next_step="Set EBBTIDE_ROOT to the URI under which all tables are.",
        )
    return Resources(
        root=root,
        data_docs=DATA_DOCS,
        engine="spark",
        spark={"spark.sql.shuffle.partitions": "64"},
    )


PROFILES = {"dev": dev, "cluster": cluster}


def resources() -> Resources:
    """Return the resources of the profile that the environment names."""
    name = os.environ.get("EBBTIDE_PROFILE", "dev")
    if name not in PROFILES:
        raise ConfigError.of(
            "There is no such profile.",
            got=f"EBBTIDE_PROFILE={name}",
            allowed=", ".join(PROFILES),
        )
    return PROFILES[name]()
