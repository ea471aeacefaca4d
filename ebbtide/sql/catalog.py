"""What names stand for: pipelines, and what was declared for them. All of it is files, read without a JVM.

A folder NAME below the definitions holds `defs.yaml`, a pipeline, as Dagster and the command line read it; or what SQL has declared
and no pipeline is made of yet: `source.yaml`, `table.yaml`, `function.yaml`. Folders may lie in folders, as Dagster's do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from ebbtide import MaterializedView, Pipeline
from ebbtide.errors import ConfigError, SqlError
from ebbtide.spec.fields import NAME
from ebbtide.spec.load import KINDS, is_several, load_each, names_in
from ebbtide.spec.reading import read_document
from ebbtide.sql.statements import IfThere, ObjectKind
from ebbtide.storage.paths import replace_bytes

DEFAULT_CATALOG = "default"
"""Name of the catalog that a session begins with."""
PIPELINE = "defs.yaml"
"""Name of a pipeline's file."""
UPSERT = "ebbtide.dagster.UpsertPipeline"
"""The `type` that the file of a table has."""


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


_OF_ROWS = ("columns", "key", "options", "comment")
FIELDS = {
    DeclaredKind.SOURCE: _OF_ROWS,
    DeclaredKind.TABLE: _OF_ROWS,
    DeclaredKind.FUNCTION: ("target", "deterministic"),
}
"""What the file of a declaration may say."""


def as_set(value: Any) -> str:
    """Return a value of YAML as SET would have it: true is `true`."""
    text = str(value)
    return text.lower() if isinstance(value, bool) else text


@dataclass(frozen=True)
class Declared:
    """A source, a table that is not filled yet, or a function, as its file has it.

    Args:
        kind: Kind of the declaration.
        name: Name of the object in statements.
        columns: As DDL; empty of a function.
        key: Its primary key; empty of a function.
        options: Option to its value, as in WITH.
        comment: For people.
        target: Of a function, `module:name`.
        deterministic: Of a function: the same arguments always give the same value.
    """

    kind: DeclaredKind
    name: str
    columns: str = ""
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    target: str = ""
    deterministic: bool = False

    @classmethod
    def read(cls, kind: DeclaredKind, name: str, document: Any, where: str) -> Declared:
        """Read its file, or its entry in an environment's file.

        Args:
            kind: Kind of the declaration.
            name: Name of the object.
            document: What the file says.
            where: Names the file or the entry in an error.

        Raises:
            ConfigError: it has other fields than its kind has.
        """
        allowed = FIELDS[kind]
        fields: dict[str, Any] = document if isinstance(document, dict) else {str(document): None}
        strangers = [str(field) for field in fields if field not in allowed]
        if strangers:
            listed = ", ".join(strangers)
            raise ConfigError.of(f"{where} is not usable.", got=f"{name}: {listed}", allowed=", ".join(allowed))
        given_options = fields.get("options") or {}
        options = {str(option): as_set(value) for option, value in given_options.items()}
        return cls(
            kind,
            name,
            columns=str(fields.get("columns", "")),
            key=tuple(fields.get("key", ())),
            options=options,
            comment=str(fields.get("comment", "")),
            target=str(fields.get("target", "")),
            deterministic=bool(fields.get("deterministic", False)),
        )

    def document(self) -> dict[str, Any]:
        """Return what its file says."""
        values = {**vars(self), "key": list(self.key), "options": dict(self.options)}
        return {name: values[name] for name in FIELDS[self.kind] if values[name]}


@dataclass(frozen=True)
class Filled:
    """A pipeline.

    Args:
        location: Its folder.
        spec: Spec of the pipeline.
    """

    location: Path
    spec: Pipeline

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    def refuse_shared_file(self) -> None:
        """Refuse to change a pipeline whose file holds other pipelines too.

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
        for entry in sorted([*self.given, *self._read()], key=lambda entry: entry.name):
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
        for path, kind in self._files():
            names = [path.parent.name] if kind else names_in(read_document(path)[1])
            found.update(dict.fromkeys(names, path))
        return found

    def pipelines(self) -> dict[str, Filled]:
        """Return the pipelines, by name."""
        return {name: entry for name, entry in self.entries().items() if isinstance(entry, Filled)}

    def declared(self, kind: DeclaredKind) -> dict[str, Declared]:
        """Return what was declared of a kind, by name."""
        entries = self.entries().items()
        return {name: entry for name, entry in entries if isinstance(entry, Declared) and entry.kind is kind}

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

    def _files(self) -> Iterator[tuple[Path, DeclaredKind | None]]:
        """Yield the files of declarations with their kinds, and those of pipelines."""
        for path in sorted(self.folder.rglob("*.yaml")):
            if path.stem in list(DeclaredKind):
                yield path, DeclaredKind(path.stem)
            elif path.name == PIPELINE and _is_pipeline(path):
                yield path, None

    def _read(self) -> Iterator[Entry]:
        for path, kind in self._files():
            if kind is not None:
                yield Declared.read(kind, path.parent.name, read_document(path)[1], f"The file '{path}'")
            else:
                yield from (Filled(Path(location), spec) for location, spec in load_each(path.parent))


def kind_of(entry: Entry) -> ObjectKind:
    """Return what statements call an entry."""
    if isinstance(entry, Filled):
        is_view = isinstance(entry.spec, MaterializedView)
        return ObjectKind.MATERIALIZED_VIEW if is_view else ObjectKind.TABLE
    return ObjectKind(entry.kind.upper())


def kind_in_words(entry: Entry | None) -> str:
    """Say what there is of a name, for an error."""
    return "nothing of this name" if entry is None else f"a {kind_of(entry).lower()}"


def existing_kind(entries: Mapping[str, Entry], name: str, what: str, if_there: IfThere) -> str | None:
    """Return what there is of a name, in words; None if nothing is.

    Args:
        entries: Of the catalog.
        name: Of what is to be created.
        what: Is to be created, in words.
        if_there: Behaviour if there is an object of this name.

    Raises:
        SqlError: it is no name, or what there is may neither stay nor be replaced.
    """
    if not re.fullmatch(NAME, name):
        allowed = "lower-case letters, digits and underscores, 63 at most"
        raise SqlError.of(f"This is no name of a {what}.", got=name, allowed=allowed)
    entry = entries.get(name)
    if entry is None:
        return None
    kind = kind_of(entry).lower()
    replaces = if_there is IfThere.REPLACE and kind == what
    if if_there is not IfThere.KEEP and not replaces:
        next_step = "Take another name, or IF NOT EXISTS, or drop it first."
        raise SqlError.of(f"There is a {kind} '{name}' already.", next_step=next_step)
    return kind


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
    functions = {
        name for name, entry in entries.items() if isinstance(entry, Declared) and entry.kind is DeclaredKind.FUNCTION
    }
    return [name for name in entries if name not in functions]


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
        shared = other.pipelines().keys() & set(names) if other.root == catalog.root else set()
        if shared:
            raise SqlError.of(
                f"The catalog '{other_name}' has a pipeline of one name, and the same root.",
                got=", ".join(sorted(shared)),
                allowed="each pipeline in one of them",
                next_step="Give one of the catalogs a root of its own in the environment's file.",
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
        kind: `type` of the file: the kind of pipeline.
        folder: Where one that is replaced stands. Default: a folder of its name.
    """
    folder = folder or catalog.folder / str(attributes["name"])
    _write(folder / PIPELINE, {"type": kind, "attributes": dict(attributes)})
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
