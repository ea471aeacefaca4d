"""Reads the file of a spec, and locates errors in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ebbtide.errors import ConfigError
from ebbtide.redaction import is_credential
from ebbtide.spec._bounded_yaml import MOST_BYTES, MOST_DEPTH, MOST_NODES, compose_yaml, read_yaml, text_of
from ebbtide.spec._faults import fault, named_in, without_members

if TYPE_CHECKING:
    from pydantic import ValidationError


_ALLOWED = f"a defs.yaml, or a folder with one: YAML of {MOST_BYTES:,} bytes, {MOST_NODES:,} values and {MOST_DEPTH} levels at most"


@dataclass(frozen=True)
class SpecFile:
    """A `defs.yaml`.

    Args:
        path: Its path.
        document: Its content; empty if it is not a mapping.
    """

    path: Path
    document: dict[str, Any]

    @classmethod
    def read(cls, location: str | Path) -> SpecFile:
        """Read a file, or the one in a folder.

        Raises:
            ConfigError: no such file, or not YAML.
        """
        path = Path(location)
        path = path / "defs.yaml" if path.is_dir() else path
        try:
            document = read_yaml(path)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            why = " ".join(str(error).split())
            raise ConfigError.of(f"The spec '{path}' cannot be read: {why}.", allowed=_ALLOWED) from error
        return cls(path, document if isinstance(document, dict) else {})

    @property
    def attributes(self) -> dict[str, Any]:
        """The fields of its spec.

        Raises:
            ConfigError: there are none.
        """
        attributes = self.document.get("attributes")
        if not isinstance(attributes, dict):
            raise ConfigError.of(
                f"The spec '{self.path}' has no attributes.", allowed="type: and attributes: at the top"
            )
        return attributes


@dataclass(frozen=True)
class Project:
    """The project of a spec.

    Args:
        folder: The nearest folder above the spec with a pyproject.toml, else the spec's own.
    """

    folder: Path

    @classmethod
    def around(cls, path: Path) -> Project:
        """Return the project of an existing or future spec, given its file or folder."""
        spec = path.resolve()
        for folder in (spec, *spec.parents):
            project_file = folder / "pyproject.toml"
            if project_file.exists():
                return cls(folder)
        return cls(spec if spec.is_dir() else spec.parent)

    def make_importable(self) -> None:
        """Make functions importable from the project's folder and the current one."""
        for each in (str(self.folder), str(Path.cwd())):
            if each not in sys.path:
                sys.path.append(each)


def explained(
    error: ValidationError,
    place_of: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda names: names,
    path: Path | None = None,
) -> str:
    """Return line, field and fault of each error, with the value got unless the message has it.

    Args:
        error: Of a spec.
        place_of: Returns the place of a field in the file.
        path: The file. Default: there is none.
    """
    lines: dict[str, None] = {}
    tree = _tree(path)
    for details in error.errors(include_url=False):
        names = place_of(field_path(details["loc"]))
        # The message about a fault of the whole spec begins with the field; its input is the whole spec.
        is_secret = not names or any(map(is_credential, names))
        message = fault(details, is_secret=is_secret)
        for known in (".".join(names), *names[-1:]):
            message = message.removeprefix(f"{known}: ")
        field = ".".join(names)
        about = names or named_in(message)
        number = _line_of(tree, ("attributes", *about)) if about else None
        line = f"line {number}: " if number else ""
        place = f"{line}{field}: " if field else line
        lines[f"{place}{message}"] = None
    return "; ".join(lines) + "."


def _tree(path: Path | None) -> yaml.Node | None:
    """Return the content of a file with line numbers; None if there is no such file."""
    if path is None or not path.is_file():
        return None
    return compose_yaml(text_of(path))


def _line_of(tree: yaml.Node | None, names: tuple[str, ...]) -> int | None:
    """Return the line of a field; None if the file does not have it."""
    node, line = tree, None
    for name in names:
        found = _below(node, name)
        if found is None:
            return None
        key, node = found
        line = key.start_mark.line + 1
    return line


def _below(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return a field's name and value; in a list the item of that number, or with that name."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if str(key.value) == name), None)
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            named = _below(item, "name")
            if str(number) == name or (named is not None and named[1].value == name):
                return item, item
    return None


def field_path(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the path of an error's field, without the tag that chose a part's model.

    Example:
        >>> field_path(("source", "kafka", "topic"))
        ('source', 'topic')
    """
    names = without_members(tuple(map(str, location)))
    has_tag = names[:2] in _chosen_parts()
    if not has_tag:
        return names
    part, _, *fields = names
    return (part, *fields)


@cache
def _chosen_parts() -> frozenset[tuple[str, ...]]:
    """Return the first two names of an error's location in parts whose model is chosen by a tag."""
    from ebbtide.spec._extensions import BUILT_IN, FORMATS, OTHER, SINKS, SOURCES  # loads the models, and Arrow

    groups = {"source": SOURCES, "format": FORMATS, "sink": SINKS}
    chosen: set[tuple[str, ...]] = set()
    for part, group in groups.items():
        tags = (*BUILT_IN[group], OTHER)
        chosen.update((part, tag) for tag in tags)
    return frozenset(chosen)
