"""The file of an environment: declarations, variables, settings and catalogs of a session.

```yaml
sources:                 # as CREATE SOURCE declares them
  orders_log: {columns: id BIGINT, key: [id], options: {path: in/orders}}
functions: {tidy: "rules:tidy", hide: {target: "rules:hide", deterministic: true, constructor: {letter: x}}}
variables: {day: 2026-01-01}   # ${day} in statements
settings: {max-rows: 100}      # as SET
catalogs:                # for USE
  lab: {defs: lab/defs, root: /data/lab}
external_catalogs:       # Spark's, for queries
  shop: {class: org.apache.iceberg.spark.SparkCatalog, options: {type: rest, uri: https://host, token: "${TOKEN}"}}
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ebbtide.environment import from_environment
from ebbtide.errors import ConfigError
from ebbtide.sessions import refuse_literal_credentials
from ebbtide.spec import NAME, UnfitFunctionError, UserFunction, read_yaml
from ebbtide.sql._catalog import DEFAULT_CATALOG, Catalog, Declared, DeclaredKind, as_set
from ebbtide.sql._settings import CATALOG_SETTING
from ebbtide.storage import Location

SPARK_CATALOG = "spark_catalog"
"""Name of the catalog that Spark begins with."""
Texts = dict[Annotated[str, BeforeValidator(as_set)], Annotated[str, BeforeValidator(as_set)]]


def _catalog_name(name: str) -> str:
    if name in (DEFAULT_CATALOG, SPARK_CATALOG) or not re.fullmatch(NAME, name):
        raise ValueError(
            f"lower-case letters, digits and underscores are allowed, 63 at most; not '{DEFAULT_CATALOG}' and '{SPARK_CATALOG}', the session's own"
        )
    return name


class _CatalogPlace(BaseModel):
    """Folders of a further catalog's definitions and tables."""

    model_config = ConfigDict(extra="forbid")

    defs: Path
    root: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"defs": given} if isinstance(given, str) else given


class _ExternalCatalog(BaseModel):
    """A catalog of Spark: its class, and that class's options."""

    model_config = ConfigDict(extra="forbid")

    class_: Annotated[str, Field(alias="class", pattern=r"^[A-Za-z_][\w.$]*$")]
    options: Texts = {}

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings of Spark that make it known by a name, with the variables of the environment that they name.

        Raises:
            ConfigError: a credential is written out, or a variable is not set.
        """
        key = f"{CATALOG_SETTING}{name}"
        settings = {key: self.class_, **{f"{key}.{option}": value for option, value in self.options.items()}}
        refuse_literal_credentials(settings)
        return {option: from_environment(f"The option '{option}'", value) for option, value in settings.items()}


class _Document(BaseModel):
    """The sections of an environment's file; the entries of the first two have the form of declarations' files."""

    model_config = ConfigDict(extra="forbid")

    sources: dict[str, Any] = {}
    functions: dict[str, Any] = {}
    variables: Texts = {}
    settings: Texts = {}
    catalogs: dict[Annotated[str, AfterValidator(_catalog_name)], _CatalogPlace] = {}
    external_catalogs: dict[Annotated[str, AfterValidator(_catalog_name)], _ExternalCatalog] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given or {}
        sections = given.items()
        return {name: section for name, section in sections if section is not None}


@dataclass(frozen=True)
class Environment:
    """The initial state of an embedded session, in addition to its catalog's definitions.

    Args:
        given: Sources and functions of all catalogs.
        variables: Values of variables, by name.
        settings: Values of settings, by key.
        places: Folder of definitions and root of each further catalog, by name; no root: the session's.
    """

    given: tuple[Declared, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[Path, str | None]] = field(default_factory=dict)

    def catalogs(self, root: str, defs: str) -> dict[str, Catalog]:
        """Return the catalogs of a session by name, its own first.

        Args:
            root: Folder of all pipelines' tables.
            defs: Folder of the definitions.
        """
        own = Catalog(root, Path(defs), self.given)
        catalogs = {DEFAULT_CATALOG: own}
        for name, (folder, own_root) in self.places.items():
            catalogs[name] = Catalog(own_root or root, folder, self.given)
        return catalogs


def read_environment(file: Path | None) -> Environment:
    """Read the file of an environment; None is an empty one.

    Raises:
        ConfigError: the file cannot be read, a section is not usable, or a function has the name of one of Spark's.
    """
    if file is None:
        return Environment()
    where = f"The environment's file '{file}'"
    try:
        content = read_yaml(file)
        document = _Document.model_validate(content)
    except ValidationError as error:
        raise ConfigError.of(
            f"{where} is not usable.",
            got=_faults(error),
            allowed=", ".join(_Document.model_fields),
            next_step="docs/reference/sql.md has an example of each section.",
        ) from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise ConfigError.of(f"{where} cannot be read: {why}.", allowed="YAML") from error
    given = [Declared.read(DeclaredKind.SOURCE, name, entry, where) for name, entry in document.sources.items()]
    for name, entry in document.functions.items():
        function = {"target": entry} if isinstance(entry, str) else entry
        given.append(Declared.read(DeclaredKind.FUNCTION, name, function, where))
        _refuse_name_of_spark(name, where)
    for name, place in document.catalogs.items():
        if place.root is not None:
            Location(place.root).refuse_unusable(f"catalogs.{name}.root")
    places = {name: (place.defs, place.root) for name, place in document.catalogs.items()}
    twice = ", ".join(document.catalogs.keys() & document.external_catalogs.keys())
    if twice:
        raise ConfigError.of(f"{where} names a catalog twice.", got=twice, allowed="each name once")
    settings: dict[str, str] = {}
    for name, external in document.external_catalogs.items():
        settings |= external.settings(name)
    return Environment(tuple(given), document.variables, settings | document.settings, places)


def _refuse_name_of_spark(name: str, where: str) -> None:
    """Refuse a function with the name of one of Spark's, which a statement would call in its place."""
    try:
        UserFunction.refuse_name(name)
    except UnfitFunctionError as error:
        raise ConfigError.of(
            f"{where} names a function as Spark does: queries would call Spark's.",
            got=f"functions.{name}",
            allowed="a name that Spark's functions do not have",
            next_step="Rename it there, and in the statements that call it.",
        ) from error


def _faults(error: ValidationError) -> str:
    faults = []
    for details in error.errors(include_url=False, include_input=False):
        location = ".".join(map(str, details["loc"])) or "the file"
        message = details["msg"].removeprefix("Value error, ")
        faults.append(f"{location}: {message}")
    return "; ".join(faults)
