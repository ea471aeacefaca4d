"""What names stand for: pipelines, and what was declared for them. All of it is files below one folder, read without a JVM.

A folder NAME below it holds `defs.yaml`, a pipeline, as Dagster and the command line read it; or what SQL has declared and no
pipeline is made of yet: `source.yaml`, `table.yaml`, `function.yaml`. Folders may lie in folders, as Dagster's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from ebbtide.errors import ConfigError, SqlError
from ebbtide.paths import replace_bytes
from ebbtide.spec.load import KINDS, is_several, load_each, names_in
from ebbtide.spec.pipeline import Pipeline, read_document

DEFAULT_CATALOG = "default"
"""Name of the catalog that a session begins with."""
PIPELINE = "defs.yaml"
"""Name of a pipeline's file."""
UPSERT = "ebbtide.dagster.UpsertPipeline"
"""The `type` that the file of a table has."""

FIELDS = ("columns", "key", "options", "comment", "target", "deterministic")
"""What the file of a declaration may say."""


class Part(StrEnum):
    """What a pipeline can be asked for beside its rows, after `NAME$`."""

    STATE = "state"
    CHANGES = "changes"
    CHANGELOG = "changelog"
    QUARANTINE = "quarantine"
    STEPS = "steps"


class DeclaredKind(StrEnum):
    """What SQL declares; the name of its file."""

    SOURCE = "source"
    TABLE = "table"
    FUNCTION = "function"


@dataclass(frozen=True)
class Declared:
    """A source, a table that is not filled yet, or a function, as its file has it.

    Args:
        kind: Which of them.
        name: Its own.
        columns: As DDL; empty of a function.
        key: Its primary key; empty of a function.
        options: Option to its value, as in WITH.
        comment: For people.
        target: Of a function, `module:name`.
        is_deterministic: Of a function: the same arguments always give the same value.
    """

    kind: DeclaredKind
    name: str
    columns: str = ""
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    target: str = ""
    is_deterministic: bool = False

    def document(self) -> dict[str, Any]:
        """Return what its file says."""
        fields = {
            "columns": self.columns,
            "key": list(self.key),
            "options": dict(self.options),
            "comment": self.comment,
            "target": self.target,
            "deterministic": self.is_deterministic,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class Filled:
    """A pipeline.

    Args:
        location: Its folder.
        spec: It.
    """

    location: Path
    spec: Pipeline

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    def refuse_shared_file(self) -> None:
        """Refuse to change a pipeline whose file holds others too.

        Raises:
            SqlError: it does.
        """
        if not (self.location / PIPELINE).exists():
            raise SqlError.of(
                f"'{self.name}' is one of several pipelines in '{self.location.parent / PIPELINE}'.",
                allowed="pipelines with a file of their own",
                next_step="Change that file.",
            )


Entry = Declared | Filled


@dataclass(frozen=True)
class Catalog:
    """The names of one project.

    Args:
        root: Folder of all pipelines' tables.
        folder: Of the definitions.
        given: What the environment's file declares beside them.
    """

    root: str
    folder: Path
    given: tuple[Declared, ...] = ()

    def entries(self) -> dict[str, Entry]:
        """Return all that is there, by name.

        Raises:
            SqlError: two have one name.
            ConfigError: a file is not usable.
        """
        found: dict[str, Entry] = {}
        entries = [*self.given, *self._read()]
        entries.sort(key=lambda entry: entry.name)
        for entry in entries:
            if entry.name in found:
                raise SqlError.of(
                    f"The name '{entry.name}' is there twice below '{self.folder}'.",
                    allowed="one pipeline, source, table or function of a name",
                )
            found[entry.name] = entry
        return found

    def places(self) -> dict[str, Path]:
        """Return the file of each name; the rest of what the files say may be unusable.

        Raises:
            ConfigError: a file cannot be read.
        """
        found = {}
        for path in sorted(self.folder.rglob("*.yaml")):
            if _declared_kind(path) is not None:
                found[path.parent.name] = path
            elif path.name == PIPELINE and _is_pipeline(path):
                _, document = read_document(path)
                for name in names_in(document):
                    found[name] = path
        return found

    def pipelines(self) -> dict[str, Filled]:
        """Return the pipelines, by name."""
        entries = self.entries().items()
        return {name: entry for name, entry in entries if isinstance(entry, Filled)}

    def declared(self, kind: DeclaredKind) -> dict[str, Declared]:
        """Return what was declared of a kind, by name."""
        entries = self.entries().values()
        declared = [entry for entry in entries if isinstance(entry, Declared)]
        of_kind = [entry for entry in declared if entry.kind is kind]
        return {entry.name: entry for entry in of_kind}

    def pipeline(self, name: str) -> Filled:
        """Return a pipeline.

        Raises:
            SqlError: there is none of this name.
        """
        pipelines = self.pipelines()
        if name not in pipelines:
            raise SqlError.of(
                f"There is no pipeline '{name}'.",
                allowed=", ".join(pipelines) or "none: there is no pipeline yet",
                next_step="SHOW PIPELINES lists them.",
            )
        return pipelines[name]

    def file_of(self, kind: DeclaredKind, name: str) -> Path:
        """Return where a declaration stands, or is to stand."""
        return self.folder / name / f"{kind}.yaml"

    def _read(self) -> Iterator[Entry]:
        for path in sorted(self.folder.rglob("*.yaml")):
            kind = _declared_kind(path)
            if kind is not None:
                yield _declared(kind, path)
            elif path.name == PIPELINE and _is_pipeline(path):
                for location, spec in load_each(path.parent):
                    yield Filled(Path(location), spec)


def filled(entries: Mapping[str, Entry], name: str) -> Filled:
    """Return a table that has a pipeline.

    Raises:
        SqlError: it has none.
    """
    entry = entries[name]
    if isinstance(entry, Filled):
        return entry
    if entry.kind is DeclaredKind.SOURCE:
        raise SqlError.of(
            f"'{name}' is a source: changes in no order, not rows.",
            allowed="tables",
            next_step="Fill a table from it: CREATE TABLE, then INSERT INTO.",
        )
    raise SqlError.of(f"Nothing fills the table '{name}' yet.", next_step="Fill it by INSERT INTO.")


def queryable(entries: Mapping[str, Entry]) -> list[str]:
    """Return what a query may mean: tables, those that nothing has filled yet too, and sources, to be refused by name."""
    names = []
    for name, entry in entries.items():
        is_function = isinstance(entry, Declared) and entry.kind is DeclaredKind.FUNCTION
        if not is_function:
            names.append(name)
    return names


def refuse_shared_tables(names: Iterable[str], catalog: Catalog, others: Mapping[str, Catalog]) -> None:
    """Refuse pipelines of which another catalog has one of that name below the same root: they would share tables.

    Args:
        names: Of the pipelines.
        catalog: Whose they are.
        others: Further catalogs, by name.

    Raises:
        SqlError: there is such a pipeline.
    """
    for other_name, other in others.items():
        if other.root != catalog.root:
            continue
        taken = other.pipelines().keys()
        shared = taken & set(names)
        if shared:
            raise SqlError.of(
                f"The catalog '{other_name}' has a pipeline of one name, and the same root.",
                got=", ".join(sorted(shared)),
                allowed="each pipeline in one of them",
                next_step="Give one of the catalogs a root of its own in the environment's file.",
            )


def _declared_kind(path: Path) -> DeclaredKind | None:
    is_known = path.stem in list(DeclaredKind)
    return DeclaredKind(path.stem) if is_known else None


def _declared(kind: DeclaredKind, path: Path) -> Declared:
    _, document = read_document(path)
    unknown = document.keys() - set(FIELDS)
    if unknown:
        raise ConfigError.of(
            f"The file '{path}' is not usable.",
            got=", ".join(unknown),
            allowed=", ".join(FIELDS),
        )
    key = tuple(document.pop("key", ()))
    is_deterministic = document.pop("deterministic", False)
    return Declared(
        kind,
        name=path.parent.name,
        key=key,
        is_deterministic=is_deterministic,
        **document,
    )


def _is_pipeline(path: Path) -> bool:
    """Return whether a `defs.yaml` is a pipeline's; those of Dagster's other components are none."""
    _, document = read_document(path)
    return str(document.get("type")) in KINDS or is_several(document)


def write_declared(catalog: Catalog, declared: Declared) -> Path:
    """Write a declaration; return its file."""
    path = catalog.file_of(declared.kind, declared.name)
    _write(path, declared.document())
    return path


def write_pipeline(
    catalog: Catalog,
    attributes: Mapping[str, Any],
    kind: str = UPSERT,
    folder: Path | None = None,
) -> Path:
    """Write a pipeline's `defs.yaml`; return its folder.

    Args:
        catalog: It becomes a part of.
        attributes: What the file says.
        kind: What the file says of which kind of pipeline it is.
        folder: Where one that is replaced stands. Default: a folder of its name.
    """
    folder = folder or catalog.folder / str(attributes["name"])
    document = {
        "type": kind,
        "attributes": dict(attributes),
    }
    _write(folder / PIPELINE, document)
    return folder


def remove_definition(file: Path) -> None:
    """Remove the file of a declaration or a pipeline, and its folder if nothing else is in it."""
    file.unlink()
    if not any(file.parent.iterdir()):
        file.parent.rmdir()


def _write(path: Path, document: Mapping[str, Any]) -> None:
    replace_bytes(str(path), written(document).encode())


def written(document: Mapping[str, Any]) -> str:
    """Return what a file of the catalog says, as its text."""
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120))
