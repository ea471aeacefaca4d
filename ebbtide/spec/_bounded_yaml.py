"""Reads YAML within bounds: files that are too large, nested too deep, or multiplied by aliases are refused at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 2**20
"""Maximum bytes of a file: a thousand pipelines of ten columns take a fifth of it."""
MOST_NODES = 50_000
"""Maximum values of a document; the target of an alias counts each time."""
MOST_DEPTH = 64
"""Maximum nesting of lists and mappings."""


class YamlBoundError(ValueError):
    """Raised for YAML beyond a bound; the message names it and the allowed value."""


class BoundedLoader(yaml.SafeLoader):
    """Builds plain values, and stops at the first node beyond a bound. The parser is lazy."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._n_nodes = 0
        self._n_below: dict[int, int] = {}
        """Number of nodes at and below each complete node, by `id()`: the tree keeps all nodes alive."""

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
            raise YamlBoundError("an alias is within its own target")
        if self._n_nodes > MOST_NODES:
            raise YamlBoundError(f"it has more than {MOST_NODES:,} values, aliases followed")
        return node


def read_yaml(source: str | Path) -> Any:
    """Parse a YAML text, or a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is beyond a bound, or not YAML: a `yaml.YAMLError` is raised unchanged.
    """
    text = text_of(source) if isinstance(source, Path) else source
    # A loader of plain values only: no tag creates a Python object.
    return yaml.load(text, Loader=BoundedLoader)  # noqa: S506


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a text in YAML, with their lines; errors as `read_yaml`."""
    tree: yaml.Node | None = yaml.compose(text, Loader=BoundedLoader)
    return tree


def text_of(path: Path) -> str:
    """Return the text of a YAML file.

    Raises:
        ValueError: it is too large, or not UTF-8.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise YamlBoundError(f"it is larger than {MOST_BYTES:,} bytes")
    return raw.decode("utf-8")
