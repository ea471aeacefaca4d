"""Packages as an installer puts them on the path: their entry points, with the code where it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

from frame.shell import Shell

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def install(site: Path, shell: Shell, name: str) -> None:
    """Install an example by what its pyproject.toml says.

    Args:
        site: A new folder for it.
        shell: Has the package found until it is left.
        name: The example's.
    """
    code = EXAMPLES / name
    project = tomllib.loads((code / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{point} = {value}" for point, value in points.items()]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    shell.put_on_path(site, code)
