"""Copies folders of a bucket with the calls of `aws s3 sync`, in its order: both listed, and what differs copied by name, ten at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from s3_server import BUCKET

AT_ONCE = 10
"""`max_concurrent_requests` of that command."""


def client() -> Any:
    """Return a client by the variables of the environment."""
    return boto3.client("s3")


def keys_below(store: Any, prefix: str) -> dict[str, Any]:
    """Return the objects below a prefix, by their names in it."""
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
    found = (each for page in pages for each in page.get("Contents", ()))
    return {each["Key"].removeprefix(f"{prefix}/"): each for each in found}


def sync(store: Any, source: str, to: str, exclude: Sequence[str] = ()) -> None:
    """Copy the objects that are not there, have another size, or are older than in the source; none is deleted."""
    there, here = keys_below(store, to), keys_below(store, source)

    def differs(name: str) -> bool:
        if name not in there:
            return True
        is_newer = here[name]["LastModified"] > there[name]["LastModified"]
        return bool(here[name]["Size"] != there[name]["Size"] or is_newer)

    def copy(name: str) -> None:
        store.copy_object(Bucket=BUCKET, Key=f"{to}/{name}", CopySource=f"{BUCKET}/{source}/{name}")

    names = [name for name in sorted(here) if not name.startswith(tuple(exclude)) and differs(name)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(copy, names))


def empty(store: Any, prefix: str) -> None:
    """Delete all objects below a prefix, as `aws s3 rm --recursive`."""
    for name in sorted(keys_below(store, prefix)):
        store.delete_object(Bucket=BUCKET, Key=f"{prefix}/{name}")
