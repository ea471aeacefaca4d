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
_FIELDS = {
    "sources": ("columns", "key", "options", "comment"),
    "functions": ("target", "deterministic"),
    "catalogs": ("defs", "root"),
}
"""A section to what each of its entries may say."""
_SHORT = {"functions": "target", "catalogs": "defs"}
"""What an entry says that is a text alone."""


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
    catalogs = {
        name: Catalog(own_root or root, folder, environment.given)
        for name, (folder, own_root) in environment.catalogs.items()
    }
    return Beginning(Catalog(root, Path(defs), environment.given), catalogs, environment.settings)


def read_environment(file: Path | None) -> Environment:
    """Read a file; none says nothing.

    Raises:
        ConfigError: it cannot be read, or has what it must not have.
    """
    if file is None:
        return Environment()
    reader = _Reader(file)
    document = reader.fields("", reader.document(), SECTIONS)
    sections = {name: reader.mapping(name, document.get(name)) for name in SECTIONS}
    entries = {name: reader.entries(name, sections[name]) for name in _FIELDS}
    given = []
    for name, source in entries["sources"].items():
        options = _texts(reader.mapping(f"sources.{name}.options", source.get("options")))
        given.append(Declared.read(DeclaredKind.SOURCE, name, {**source, "options": options}))
    for name, function in entries["functions"].items():
        given.append(Declared.read(DeclaredKind.FUNCTION, name, function))
    return Environment(
        tuple(given),
        _texts(sections["variables"]),
        _texts(sections["settings"]),
        {name: reader.catalog(name, catalog) for name, catalog in entries["catalogs"].items()},
    )


@dataclass(frozen=True)
class _Reader:
    """Reads the parts of a file, and refuses what must not be there."""

    file: Path

    def document(self) -> dict[str, Any]:
        try:
            document = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            why = " ".join(str(error).split())
            raise ConfigError.of(
                f"The environment's file '{self.file}' cannot be read: {why}.", allowed="YAML"
            ) from error
        return self.mapping("the file", document)

    def mapping(self, place: str, given: Any) -> dict[str, Any]:
        if given is None:
            return {}
        if not isinstance(given, dict):
            raise self.unusable(f"{place}: {given}", "names with their values")
        return given

    def fields(self, place: str, given: dict[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
        """Return a part of the file, which may have some names and no others."""
        strangers = [str(name) for name in given if name not in allowed]
        if strangers:
            listed = ", ".join(strangers)
            got = f"{place}: {listed}" if place else listed
            raise self.unusable(got, ", ".join(allowed))
        return given

    def entries(self, section: str, given: dict[str, Any]) -> dict[str, dict[str, Any]]:
        found = {}
        for name, entry in given.items():
            place = f"{section}.{name}"
            is_short = isinstance(entry, str) and section in _SHORT
            whole = {_SHORT[section]: entry} if is_short else self.mapping(place, entry)
            if section == "catalogs":
                self._refuse_catalog_name(name)
            found[name] = self.fields(place, whole, _FIELDS[section])
        return found

    def catalog(self, name: str, given: dict[str, Any]) -> tuple[Path, str | None]:
        """Return where a catalog's definitions are, and its tables."""
        place = f"catalogs.{name}"
        if "defs" not in given:
            raise self.unusable(f"{place}: no defs", ", ".join(_FIELDS["catalogs"]))
        root = given.get("root")
        folder = Path(str(given["defs"]))
        if root is None:
            return folder, None
        refuse_unusable(f"{place}.root", str(root))
        return folder, str(root)

    def unusable(self, got: str, allowed: str) -> ConfigError:
        return ConfigError.of(f"The environment's file '{self.file}' is not usable.", got=got, allowed=allowed)

    def _refuse_catalog_name(self, name: Any) -> None:
        is_name = isinstance(name, str) and re.fullmatch(NAME, name) is not None
        if not is_name or name == DEFAULT_CATALOG:
            allowed = (
                f"lower-case letters, digits and underscores, 63 at most; not '{DEFAULT_CATALOG}', the session's own"
            )
            raise self.unusable(f"catalogs: {name}", allowed)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values by name, as SET would have them: YAML's true is `true`."""
    texts = {}
    for name, value in values.items():
        text = str(value)
        texts[str(name)] = text.lower() if isinstance(value, bool) else text
    return texts
