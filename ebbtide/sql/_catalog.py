"""The catalog: pipelines and declarations by name, read from files without a JVM.

A folder NAME below the definitions holds a pipeline, `defs.yaml`, as Dagster and the command line read it, or a declaration without
a pipeline: `source.yaml`, `table.yaml`, `function.yaml`. Folders may lie in folders, as Dagster's do.

Specs are loaded where they are needed only: their models take longer to load than a listing of tables may take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from ebbtide.errors import ConfigError, SqlError
from ebbtide.spec import SpecFile
from ebbtide.sql._statements import IfThere, ObjectKind

if TYPE_CHECKING:
    from ebbtide import Pipeline

DEFAULT_CATALOG = "default"
"""Name of a session's first catalog."""
PIPELINE = "defs.yaml"
"""Name of a pipeline's file."""
UPSERT = "ebbtide.dagster.UpsertPipeline"
"""`type` in the file of a table."""
_OF_SEVERAL = "UpsertPipelines"
_OF_VIEWS = "MaterializedView"
_NAMES = ("UpsertPipeline", "StatefulPipeline", _OF_SEVERAL, _OF_VIEWS)
_OLD_NAMES = ("UpsertPipelineComponent", "StatefulPipelineComponent")
TYPES = frozenset(
    [f"ebbtide.dagster.{name}" for name in _NAMES]
    + [f"ebbtide.{name}" for name in _NAMES]
    + [f"pipelines.components.{name}" for name in _OLD_NAMES]
)
"""Each `type` of a file with one or several pipelines: the keys of `ebbtide.definitions._load`, known here without the models."""


class Part(StrEnum):
    """A further table of a pipeline, named `NAME$part`."""

    STATE = "state"
    CHANGES = "changes"
    CHANGELOG = "changelog"
    QUARANTINE = "quarantine"
    STEPS = "steps"


class DeclaredKind(StrEnum):
    """Kind of a declaration, and the name of its file."""

    SOURCE = "source"
    TABLE = "table"
    FUNCTION = "function"


_OF_ROWS = ("columns", "key", "options", "comment")
FIELDS = {
    DeclaredKind.SOURCE: _OF_ROWS,
    DeclaredKind.TABLE: _OF_ROWS,
    DeclaredKind.FUNCTION: ("target", "constructor", "deterministic"),
}
"""Fields that the file of a declaration may have."""


def as_set(value: Any) -> str:
    """Return a value of YAML as SET takes it: true is `true`."""
    text = str(value)
    return text.lower() if isinstance(value, bool) else text


@dataclass(frozen=True)
class Declared:
    """A declared source, table or function; a table that is filled is a pipeline instead.

    Args:
        kind: Kind of the declaration.
        name: Name of the object in statements.
        columns: Columns as DDL; empty for a function.
        key: Primary key; empty for a function.
        options: Option to its value, as in WITH.
        comment: Description for people.
        target: `module:name` of a function.
        constructor: Parameters of the call that returns a function.
        deterministic: True for a function whose value depends only on its arguments.
    """

    kind: DeclaredKind
    name: str
    columns: str = ""
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    target: str = ""
    constructor: Mapping[str, Any] = field(default_factory=dict)
    deterministic: bool = False

    @classmethod
    def read(
        cls,
        kind: DeclaredKind,
        name: str,
        document: Any,
        where: str,
    ) -> Declared:
        """Read a declaration from its file, or from its entry in an environment's file.

        Args:
            kind: Kind of the declaration.
            name: Name of the object.
            document: Content of the file.
            where: Name of the file or the entry in an error.

        Raises:
            ConfigError: a field is not one of its kind.
        """
        allowed = FIELDS[kind]
        fields: dict[str, Any] = document if isinstance(document, dict) else {str(document): None}
        strangers = ", ".join(str(field) for field in fields if field not in allowed)
        if strangers:
            raise ConfigError.of(f"{where} is not usable.", got=f"{name}: {strangers}", allowed=", ".join(allowed))
        given_options = fields.get("options") or {}
        options = {str(option): as_set(value) for option, value in given_options.items()}
        constructor = fields.get("constructor") or {}
        if not isinstance(constructor, Mapping):
            raise ConfigError.of(f"{where} is not usable.", got=f"{name}.constructor", allowed="parameters by name")
        return cls(
            kind,
            name,
            columns=str(fields.get("columns", "")),
            key=tuple(fields.get("key", ())),
            options=options,
            comment=str(fields.get("comment", "")),
            target=str(fields.get("target", "")),
            constructor={str(parameter): value for parameter, value in constructor.items()},
            deterministic=bool(fields.get("deterministic", False)),
        )

    def document(self) -> dict[str, Any]:
        """Return the content of its file."""
        mappings = {"options": dict(self.options), "constructor": dict(self.constructor)}
        values = {**vars(self), **mappings, "key": list(self.key)}
        return {name: values[name] for name in FIELDS[self.kind] if values[name]}


@dataclass(frozen=True)
class Filled:
    """A table or a view with its pipeline.

    Args:
        location: Folder of the pipeline's file.
        spec: Spec of the pipeline.
    """

    location: Path
    spec: Pipeline

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.spec.name

    def refuse_shared_file(self) -> None:
        """Refuse to change a pipeline whose file holds several pipelines.

        Raises:
            SqlError: the file does.
        """
        if not (self.location / PIPELINE).exists():
            raise SqlError.of(
                f"'{self.name}' is one of several pipelines in '{self.location.parent / PIPELINE}'.",
                allowed="pipelines with a separate file",
                next_step="Change that file.",
            )


Entry = Declared | Filled
Named = TypeVar("Named", "Entry", "Summary")


@dataclass(frozen=True)
class Summary:
    """A name of the catalog with what its file says, the spec of a pipeline not validated.

    Args:
        name: Name of the object.
        kind: Kind of the object.
        comment: Description for people.
        file: File that defines it; None if the environment's file declares it.
        is_filled: True if a pipeline fills it.
    """

    name: str
    kind: ObjectKind
    comment: str
    file: Path | None
    is_filled: bool = False


@dataclass(frozen=True)
class Catalog:
    """The names of one project.

    Args:
        root: Folder of all pipelines' tables.
        folder: Folder of the definitions.
        given: Declarations of the environment's file.
    """

    root: str
    folder: Path
    given: tuple[Declared, ...] = ()

    def entries(self) -> dict[str, Entry]:
        """Return all pipelines and declarations, by name.

        Raises:
            SqlError: two have the same name.
            ConfigError: a file is not usable.
        """
        return self._by_name([*self.given, *self._read()])

    def summaries(self) -> dict[str, Summary]:
        """Return all names; a spec that is not usable is listed too.

        Raises:
            SqlError: two have the same name.
            ConfigError: a declaration is not usable, or a file of pipelines does not name them.
        """
        found = [_summary(declared, None) for declared in self.given]
        for path, kind in self._files():
            document = SpecFile.read(path).document
            if kind is None:
                found += _pipeline_summaries(path, document)
            else:
                declared = Declared.read(kind, path.parent.name, document, f"The file '{path}'")
                found.append(_summary(declared, path))
        return self._by_name(found)

    def _by_name(self, found: Iterable[Named]) -> dict[str, Named]:
        by_name: dict[str, Named] = {}
        for entry in sorted(found, key=lambda entry: entry.name):
            if entry.name in by_name:
                raise SqlError.of(
                    f"The name '{entry.name}' occurs twice below '{self.folder}'.",
                    allowed="one pipeline, source, table or function of a name",
                )
            by_name[entry.name] = entry
        return by_name

    def pipelines(self) -> dict[str, Filled]:
        """Return the pipelines, by name."""
        return {name: entry for name, entry in self.entries().items() if isinstance(entry, Filled)}

    def declared(self, kind: DeclaredKind) -> dict[str, Declared]:
        """Return the declarations of a kind, by name."""
        entries = self.entries().items()
        return {name: entry for name, entry in entries if isinstance(entry, Declared) and entry.kind is kind}

    def pipeline(self, name: str) -> Filled:
        """Return the pipeline of a name.

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

    def entry(self, kind: ObjectKind, name: str) -> Entry:
        """Return the entry of a name and a kind.

        Raises:
            SqlError: there is none.
        """
        entry = self.entries().get(name.lower())
        if entry is None or kind_of(entry) is not kind:
            raise SqlError.of(
                f"There is no {kind.lower()} '{name}'.",
                got=kind_in_words(entry),
                next_step="SHOW TABLES, SHOW SOURCES and SHOW FUNCTIONS list what there is.",
            )
        return entry

    def file_of(self, kind: DeclaredKind, name: str) -> Path:
        """Return the path of a declaration's file, which need not exist."""
        return self.folder / name / f"{kind}.yaml"

    def _files(self) -> Iterator[tuple[Path, DeclaredKind | None]]:
        """Yield the files of declarations with their kinds, and those of pipelines."""
        kinds = {f"{kind}.yaml": kind for kind in DeclaredKind}
        for path in sorted(self.folder.rglob("*.yaml")):
            kind = kinds.get(path.name)
            if kind is not None:
                yield path, kind
            elif path.name == PIPELINE and _is_pipeline(path):
                yield path, None

    def _read(self) -> Iterator[Entry]:
        from ebbtide.definitions import load_all

        for path, kind in self._files():
            if kind is not None:
                yield Declared.read(kind, path.parent.name, SpecFile.read(path).document, f"The file '{path}'")
            else:
                yield from (Filled(Path(location), spec) for location, spec in load_all([str(path.parent)]))


def _summary(declared: Declared, file: Path | None) -> Summary:
    return Summary(declared.name, kind_of(declared), declared.comment, file)


def _pipeline_summaries(path: Path, document: Mapping[str, Any]) -> list[Summary]:
    """Return the pipelines of a file; what several share is the description of those without one."""
    type_ = str(document["type"])
    attributes = document.get("attributes")
    attributes = attributes if isinstance(attributes, Mapping) else {}
    members, shared = [attributes], attributes
    if type_.endswith(_OF_SEVERAL):
        members = attributes.get("pipelines") or []
        shared = attributes.get("shared") or {}
    is_readable = all(isinstance(part, Mapping) for part in [shared, *members])
    if not (is_readable and all("name" in member for member in members)):
        from ebbtide.definitions import load_all

        load_all([str(path.parent)])  # raises the file's error
        return []
    kind = ObjectKind.MATERIALIZED_VIEW if type_.endswith(_OF_VIEWS) else ObjectKind.TABLE
    found = []
    for member in members:
        comment = member.get("description", shared.get("description", ""))
        found.append(Summary(str(member["name"]), kind, str(comment), path, is_filled=True))
    return found


def kind_of(entry: Entry) -> ObjectKind:
    """Return the kind of an entry, as statements name it."""
    if isinstance(entry, Filled):
        return ObjectKind.MATERIALIZED_VIEW if entry.spec.is_view else ObjectKind.TABLE
    return ObjectKind(entry.kind.upper())


def kind_in_words(entry: Entry | None) -> str:
    """Return the kind of the entry of a name, for an error."""
    return "nothing of this name" if entry is None else f"a {kind_of(entry).lower()}"


def existing_kind(entries: Mapping[str, Entry], name: str, what: str, if_there: IfThere) -> str | None:
    """Return the kind of the object that has a name already, in words; None if there is none.

    Args:
        entries: Entries of the catalog.
        name: Name of the object to create.
        what: Kind of the object to create, in words.
        if_there: Behaviour if there is an object of this name.

    Raises:
        SqlError: the name is not allowed, or the object of this name may neither stay nor be replaced.
    """
    from ebbtide.spec import NAME

    if not re.fullmatch(NAME, name):
        allowed = "lower-case letters, digits and underscores, 63 at most"
        raise SqlError.of(f"This is not the name of a {what}.", got=name, allowed=allowed)
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
    """Return a table with its pipeline.

    Raises:
        SqlError: no pipeline fills it.
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
    """Return the names that a query may read, and those of sources and unfilled tables, which `filled` refuses by name."""
    return [name for name, entry in entries.items() if kind_of(entry) is not ObjectKind.FUNCTION]


def _is_pipeline(path: Path) -> bool:
    """Return whether a `defs.yaml` holds pipelines; the files of Dagster's other components do not."""
    document = SpecFile.read(path).document
    return str(document.get("type")) in TYPES


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
        catalog: Catalog that the pipeline is added to.
        attributes: Attributes of the pipeline.
        kind: `type` of the file: the kind of pipeline.
        folder: Folder of the pipeline that is replaced. Default: a folder of its name.
    """
    folder = folder or catalog.folder / str(attributes["name"])
    _write(folder / PIPELINE, {"type": kind, "attributes": dict(attributes)})
    return folder


def remove_definition(file: Path) -> None:
    """Remove the file of a declaration or a pipeline, and its folder if that is empty then."""
    file.unlink()
    if not any(file.parent.iterdir()):
        file.parent.rmdir()


def _write(path: Path, document: Mapping[str, Any]) -> None:
    from ebbtide.storage import Location

    Location(path).replace_bytes(written(document).encode())


def written(document: Mapping[str, Any]) -> str:
    """Return the text of a file of the catalog."""
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120))
