"""The file of an environment: what a session has beside its catalog's own files.

```yaml
sources:                 # as CREATE SOURCE declares them
  orders_log: {columns: id BIGINT, key: [id], options: {path: in/orders}}
functions: {tidy: "rules:tidy"}
variables: {day: 2026-01-01}   # ${day} in statements
settings: {max-rows: 100}      # as SET
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ebbtide.errors import ConfigError
from ebbtide.sql.catalog import Catalog, Declared, DeclaredKind

SECTIONS = ("sources", "functions", "variables", "settings")
_OF_SOURCE = ("columns", "key", "options", "comment")


@dataclass(frozen=True)
class Environment:
    """What such a file says.

    Args:
        given: Sources and functions.
        variables: Name to value.
        settings: Key to value.
    """

    given: tuple[Declared, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def catalog_of(root: str, defs: str, file: Path | None) -> tuple[Catalog, Mapping[str, str]]:
    """Return the catalog, and the settings, that an embedded session begins with.

    Args:
        root: Folder of all pipelines' tables.
        defs: Folder of the definitions.
        file: Of the environment.

    Raises:
        ConfigError: the file cannot be read, or has what it must not have.
    """
    environment = read_environment(file)
    catalog = Catalog(root, Path(defs), environment.given)
    return catalog, environment.settings


def read_environment(file: Path | None) -> Environment:
    """Read a file; none says nothing.

    Raises:
        ConfigError: it cannot be read, or has what it must not have.
    """
    if file is None:
        return Environment()
    document = _document(file)
    sections = {name: _mapping(file, name, document.pop(name, None)) for name in SECTIONS}
    if document:
        raise _unusable(file, ", ".join(map(str, document)), ", ".join(SECTIONS))
    sources = [_source(file, name, source) for name, source in sections["sources"].items()]
    functions = [
        Declared(DeclaredKind.FUNCTION, name, target=str(target)) for name, target in sections["functions"].items()
    ]
    return Environment(
        (*sources, *functions),
        _texts(sections["variables"]),
        _texts(sections["settings"]),
    )


def _document(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise ConfigError.of(f"The environment's file '{file}' cannot be read: {why}.", allowed="YAML") from error
    return _mapping(file, "the file", document)


def _source(file: Path, name: str, given: Any) -> Declared:
    source = _mapping(file, f"sources.{name}", given)
    unknown = source.keys() - set(_OF_SOURCE)
    if unknown:
        raise _unusable(file, f"sources.{name}: {', '.join(map(str, unknown))}", ", ".join(_OF_SOURCE))
    return Declared(
        DeclaredKind.SOURCE,
        name,
        columns=str(source.get("columns", "")),
        key=tuple(source.get("key", ())),
        options=_texts(_mapping(file, f"sources.{name}.options", source.get("options"))),
        comment=str(source.get("comment", "")),
    )


def _mapping(file: Path, name: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _unusable(file, f"{name}: {given}", "names with their values")
    return given


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as SET would have them: YAML's true is `true`."""
    return {str(name): str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def _unusable(file: Path, got: str, allowed: str) -> ConfigError:
    return ConfigError.of(f"The environment's file '{file}' is not usable.", got=got, allowed=allowed)
