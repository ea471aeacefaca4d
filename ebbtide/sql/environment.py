"""The file of an environment: what a session has beside its catalog's own files.

```yaml
sources:                 # as CREATE SOURCE declares them
  orders_log: {columns: id BIGINT, key: [id], options: {path: in/orders}}
functions: {tidy: "rules:tidy", mask: {target: "rules:mask", deterministic: true}}
variables: {day: 2026-01-01}   # ${day} in statements
settings: {max-rows: 100}      # as SET
catalogs:                # for USE
  lab: {defs: lab/defs, root: /data/lab}
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ebbtide.errors import ConfigError
from ebbtide.paths import refuse_unusable
from ebbtide.spec.pipeline import NAME
from ebbtide.sql.catalog import DEFAULT_CATALOG, Catalog, Declared, DeclaredKind

SECTIONS = ("sources", "functions", "variables", "settings", "catalogs")
_OF_SOURCE = ("columns", "key", "options", "comment")
_OF_FUNCTION = ("target", "deterministic")
_OF_CATALOG = ("defs", "root")


@dataclass(frozen=True)
class Environment:
    """What such a file says.

    Args:
        given: Sources and functions.
        variables: Name to value.
        settings: Key to value.
        catalogs: Name to the further catalog's folder of definitions, and its root; no root: the session's.
    """

    given: tuple[Declared, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    catalogs: Mapping[str, tuple[Path, str | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Beginning:
    """What an embedded session begins with.

    Args:
        catalog: The one in use.
        catalogs: Further ones, by name.
        settings: Key to value.
    """

    catalog: Catalog
    catalogs: Mapping[str, Catalog]
    settings: Mapping[str, str]


def beginning_of(root: str, defs: str, file: Path | None) -> Beginning:
    """Return what an embedded session begins with; what the file declares is in all its catalogs.

    Args:
        root: Folder of all pipelines' tables.
        defs: Folder of the definitions.
        file: Of the environment.

    Raises:
        ConfigError: the file cannot be read, or has what it must not have.
    """
    environment = read_environment(file)
    catalog = Catalog(root, Path(defs), environment.given)
    catalogs = {
        name: Catalog(own_root or root, folder, environment.given)
        for name, (folder, own_root) in environment.catalogs.items()
    }
    return Beginning(catalog, catalogs, environment.settings)


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
    functions = [_function(file, name, function) for name, function in sections["functions"].items()]
    return Environment(
        (*sources, *functions),
        _texts(sections["variables"]),
        _texts(sections["settings"]),
        {name: _catalog(file, name, given) for name, given in sections["catalogs"].items()},
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


def _function(file: Path, name: str, given: Any) -> Declared:
    function = _mapping(file, f"functions.{name}", {"target": given} if isinstance(given, str) else given)
    unknown = function.keys() - set(_OF_FUNCTION)
    if unknown:
        raise _unusable(file, f"functions.{name}: {', '.join(map(str, unknown))}", ", ".join(_OF_FUNCTION))
    return Declared(
        DeclaredKind.FUNCTION,
        name,
        target=str(function.get("target", "")),
        is_deterministic=bool(function.get("deterministic", False)),
    )


def _catalog(file: Path, name: Any, given: Any) -> tuple[Path, str | None]:
    """Read where a catalog's definitions are, and its tables.

    Raises:
        ConfigError: its name is none, or taken; or nothing says where it is.
    """
    is_name = isinstance(name, str) and re.fullmatch(NAME, name) is not None
    if not is_name or name == DEFAULT_CATALOG:
        allowed = f"lower-case letters, digits and underscores, 63 at most; not '{DEFAULT_CATALOG}', the session's own"
        raise _unusable(file, f"catalogs: {name}", allowed)
    fields = {"defs": given} if isinstance(given, str) else given
    catalog = _mapping(file, f"catalogs.{name}", fields)
    unknown = catalog.keys() - set(_OF_CATALOG)
    if unknown or "defs" not in catalog:
        listed = ", ".join(map(str, unknown))
        got = listed or "no defs"
        raise _unusable(file, f"catalogs.{name}: {got}", ", ".join(_OF_CATALOG))
    root = catalog.get("root")
    folder = Path(str(catalog["defs"]))
    if root is None:
        return folder, None
    refuse_unusable(f"catalogs.{name}.root", str(root))
    return folder, str(root)


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
