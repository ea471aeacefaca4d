"""Reads YAML within bounds: a file that is too large, nested too deep, or made of aliases that multiply is refused at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 2**20
"""Bytes of a file: a thousand pipelines of ten columns take a fifth of it."""
MOST_NODES = 50_000
"""Values of a document; what an alias stands for counts each time."""
MOST_DEPTH = 64
"""Lists and mappings within each other."""


class YamlBoundError(ValueError):
    """Raised for YAML beyond a bound; the message says which, and what is allowed."""


class BoundedLoader(yaml.SafeLoader):
    """Builds plain values, and stops at the first node beyond a bound: the parser works as nodes are asked for."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._n_nodes = 0
        self._n_below: dict[int, int] = {}
        """Number of nodes at and below each node that is whole, by its id: all of them stay alive in the tree."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node."""
        if self._depth >= MOST_DEPTH:
            raise YamlBoundError(f"it is nested deeper than {MOST_DEPTH} levels")
        is_alias = self.check_event(yaml.AliasEvent)
        n_before = self._n_nodes
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if not is_alias:
            self._n_nodes += 1
            self._n_below[id(node)] = self._n_nodes - n_before
        elif id(node) in self._n_below:
            self._n_nodes += self._n_below[id(node)]
        else:
            raise YamlBoundError("an alias stands within what it stands for")
        if self._n_nodes > MOST_NODES:
            raise YamlBoundError(f"it has more than {MOST_NODES:,} values, aliases followed")
        return node


def read_yaml(text: str) -> Any:
    """Return what a text in YAML says.

    Raises:
        ValueError: it is beyond a bound, or not YAML: a `yaml.YAMLError` is raised unchanged.
    """
    # A loader of plain values alone: no tag makes an object of Python.
    return yaml.load(text, Loader=BoundedLoader)  # noqa: S506


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a text in YAML, with their lines; errors as `read_yaml`."""
    tree: yaml.Node | None = yaml.compose(text, Loader=BoundedLoader)
    return tree


def text_of(path: Path) -> str:
    """Return the text of a file of YAML.

    Raises:
        ValueError: it is too large, or not UTF-8.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise YamlBoundError(f"it is larger than {MOST_BYTES:,} bytes")
    return raw.decode("utf-8")
