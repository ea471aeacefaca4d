"""Folders of Data Docs: `PIPELINE/CHECK/000001` is the site of an evaluation, whose samples may quote rows. An erasure deletes them.

The folder is on the host that judges the checks, and an erasure need not know it: a check deletes the sites that are older than the last erasure.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from ebbtide.delta import Held
from ebbtide.storage import Location

SITE = re.compile(r"\d{6,}")
"""Name of a site."""
GENERATION = ".generation"
"""The file that names the generation of a pipeline's sites; see `Plan.copies_generation`."""


def sites_of(docs: Path) -> list[Path]:
    """Return the sites of a pipeline.

    Args:
        docs: Folder of its Data Docs.
    """
    found = sorted(docs.glob("*/*"))
    return [site for site in found if SITE.fullmatch(site.name) and site.is_dir() and not site.is_symlink()]


def found_in_sites(docs: Path) -> Held:
    """Count the files of a pipeline's sites, and their bytes."""
    sizes = [path.stat().st_size for site in sites_of(docs) for path in site.rglob("*") if path.is_file()]
    return Held(0, len(sizes), sum(sizes))


def delete_sites(docs: Path) -> None:
    """Delete the sites of a pipeline."""
    for site in sites_of(docs):
        shutil.rmtree(site)


def delete_older_sites(docs: Path, generation: str) -> None:
    """Delete the sites of an earlier generation, once.

    Args:
        docs: Folder of the pipeline's Data Docs.
        generation: The present one; empty before the first erasure.
    """
    if not generation:
        return
    marker = docs / GENERATION
    with contextlib.suppress(OSError):
        if marker.read_text(encoding="ascii") == generation:
            return
    delete_sites(docs)
    Location(docs).make_private()
    marker.write_text(generation, encoding="ascii")
