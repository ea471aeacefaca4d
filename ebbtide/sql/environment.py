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
from collections.abc import Mapping, Sequence
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
    catalogs = {}
    for name, (folder, own_root) in environment.catalogs.items():
        catalogs[name] = Catalog(own_root or root, folder, environment.given)
    return Beginning(catalog, catalogs, environment.settings)


def read_environment(file: Path | None) -> Environment:
    """Read a file; none says nothing.

    Raises:
        ConfigError: it cannot be read, or has what it must not have.
    """
    if file is None:
        return Environment()
    document = _document(file)
    _refuse_strangers(file, "", document, SECTIONS)
    sections = {name: _mapping(file, name, document.get(name)) for name in SECTIONS}
    sources = [_source(file, name, given) for name, given in sections["sources"].items()]
    functions = [_function(file, name, given) for name, given in sections["functions"].items()]
    catalogs = {name: _catalog(file, name, given) for name, given in sections["catalogs"].items()}
    return Environment(
        given=(*sources, *functions),
        variables=_texts(sections["variables"]),
        settings=_texts(sections["settings"]),
        catalogs=catalogs,
    )


def _document(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise ConfigError.of(
            f"The environment's file '{file}' cannot be read: {why}.",
            allowed="YAML",
        ) from error
    return _mapping(file, "the file", document)


def _source(file: Path, name: str, given: Any) -> Declared:
    place = f"sources.{name}"
    source = _mapping(file, place, given)
    _refuse_strangers(file, place, source, _OF_SOURCE)
    options = _mapping(file, f"{place}.options", source.get("options"))
    return Declared(
        DeclaredKind.SOURCE,
        name,
        columns=str(source.get("columns", "")),
        key=tuple(source.get("key", ())),
        options=_texts(options),
        comment=str(source.get("comment", "")),
    )


def _function(file: Path, name: str, given: Any) -> Declared:
    place = f"functions.{name}"
    fields = {"target": given} if isinstance(given, str) else given
    function = _mapping(file, place, fields)
    _refuse_strangers(file, place, function, _OF_FUNCTION)
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
    place = f"catalogs.{name}"
    fields = {"defs": given} if isinstance(given, str) else given
    catalog = _mapping(file, place, fields)
    _refuse_strangers(file, place, catalog, _OF_CATALOG)
    if "defs" not in catalog:
        raise _unusable(file, f"{place}: no defs", ", ".join(_OF_CATALOG))
    root = catalog.get("root")
    folder = Path(str(catalog["defs"]))
    if root is None:
        return folder, None
    refuse_unusable(f"{place}.root", str(root))
    return folder, str(root)


def _mapping(file: Path, name: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _unusable(file, f"{name}: {given}", "names with their values")
    return given


def _refuse_strangers(
    file: Path,
    place: str,
    given: Mapping[Any, Any],
    allowed: Sequence[str],
) -> None:
    """Refuse names that a part of the file must not have.

    Args:
        file: Of the environment.
        place: Name of the part; empty: the file itself.
        given: The part.
        allowed: Names that it may have.
    """
    strangers = [str(name) for name in given if name not in allowed]
    if not strangers:
        return
    listed = ", ".join(strangers)
    got = f"{place}: {listed}" if place else listed
    raise _unusable(file, got, ", ".join(allowed))


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values by name, as SET would have them."""
    return {str(name): _setting_text(value) for name, value in values.items()}


def _setting_text(value: Any) -> str:
    """Return a value as text: YAML's true is `true`."""
    text = str(value)
    return text.lower() if isinstance(value, bool) else text


def _unusable(file: Path, got: str, allowed: str) -> ConfigError:
    return ConfigError.of(
        f"The environment's file '{file}' is not usable.",
        got=got,
        allowed=allowed,
    )
