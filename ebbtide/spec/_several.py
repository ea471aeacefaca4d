"""Several pipelines in one file, with common settings."""

from __future__ import annotations

from collections.abc import Mapping
from glob import has_magic
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, WithJsonSchema, field_validator, model_validator

from ebbtide.errors import ConfigError
from ebbtide.spec._names import NAME
from ebbtide.spec._parts import Name, SpecPart, refuse
from ebbtide.spec._reading import Project, SpecFile, explained, field_path
from ebbtide.spec._upsert import UpsertPipeline
from ebbtide.storage import Location

Attributes = Mapping[str, Any]


class UpsertPipelines(SpecPart):
    """Several pipelines, one table each, with common settings in one file: for many topics.

    A pipeline has all fields of `shared`, and its own fields take precedence. Parts such as `source` and `checks` are
    merged field by field. On the command line the file's folder means all of them, `FOLDER/NAME` one.
    """

    name: str = Field(pattern=NAME, description="Name of the group: lower-case letters, digits, underscores. Required.")
    shared: dict[str, Any] = Field(
        default_factory=dict,
        description="Common fields: any fields of [UpsertPipeline](#upsertpipeline) except the name. Default: none.",
    )
    pipelines: Annotated[
        list[UpsertPipeline], WithJsonSchema({"type": "array", "items": {"type": "object"}, "minItems": 1})
    ] = Field(
        min_length=1,
        description="The pipelines, each with name, `source: {topic: ...}`, schema, key and any other fields of [UpsertPipeline](#upsertpipeline). Required.",
    )
    topics: Name | None = Field(
        default=None,
        description="Expected topics, with `*`, `?` and `[...]`: 'shop.public.*'. 'ebbtide lag' and Dagster's sensor NAME_topics report topics that no pipeline reads. Default: none; topics are not listed.",
    )
    ignored_topics: list[Name] = Field(
        default_factory=list, description="Patterns of topics to ignore among these. Default: none."
    )
    folders: Name | None = Field(
        default=None,
        description="Expected folders, with `*`, `?` and `[...]` in the last name; relative to the project: 'data/shop.*'. Like `topics`, for file sources. Default: none; folders are not listed.",
    )
    ignored_folders: list[Name] = Field(
        default_factory=list, description="Patterns of folder names to ignore among these. Default: none."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_what_is_shared(cls, given: Any) -> Any:
        """Merge the shared fields into each pipeline."""
        if not isinstance(given, Mapping):
            return given
        shared = given.get("shared")
        pipelines = given.get("pipelines")
        if not isinstance(shared, Mapping) or not isinstance(pipelines, list):
            return given
        whole = [put_together(shared, own) if isinstance(own, Mapping) else own for own in pipelines]
        return {**given, "pipelines": whole}

    @field_validator("shared")
    @classmethod
    def _has_no_name(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "name" in value:
            refuse("shared", ["name"], "any other field: each pipeline has its name")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [spec.name for spec in self.pipelines]
        repeated = {name for name in names if names.count(name) > 1}
        refuse("pipelines", sorted(repeated), "a unique name for each")
        pattern = self.pattern
        if pattern is None:
            return self
        kinds = {spec.source.listed_as for spec in self.pipelines}
        if kinds != {self.listed}:
            fitting = "kafka" if self.listed == "topics" else "files"
            refuse(self.listed, [pattern], f"none with other sources than {fitting}")
        if self.topics and self.folders:
            refuse("folders", [pattern], "none together with topics")
        addresses = {spec.source.address for spec in self.pipelines}
        if len(addresses) > 1:
            refuse(self.listed, [pattern], "none if brokers differ")
        above, _, _ = (self.folders or "").rpartition("/")
        if has_magic(above):
            refuse("folders", [pattern], "wildcards only in the last name")
        return self

    @classmethod
    def load(cls, location: str | Path) -> Self:
        """Read the pipelines of a `defs.yaml`, or of the folder that holds one.

        Raises:
            ConfigError: no such file, not YAML, or not usable; the message names file and field.
        """
        file = SpecFile.read(location)
        return cls.of_attributes(file.attributes, file.path)

    @classmethod
    def of_attributes(cls, attributes: Attributes, path: Path) -> Self:
        """Create the pipelines of an existing or future file; see `load`."""
        shared = attributes.get("shared") or {}
        own = attributes.get("pipelines") or ()
        if UpsertPipeline.imports(shared) or any(map(_imports, own)):
            Project.around(path).make_importable()
        try:
            several = cls.model_validate(dict(attributes))
        except ValidationError as error:
            problems = explained(error, lambda names: _place(attributes, names), path)
            raise ConfigError.of(f"The spec '{path}' is not usable. {problems}") from error
        return several.located(path)

    def located(self, path: Path) -> Self:
        """Return the pipelines with absolute source paths; see `Pipeline.located`."""
        folders = self.folders
        if folders is not None:
            folders = Location(Location(folders).expanded("folders")).resolved(Project.around(path).folder)
        pipelines = [spec.located(path) for spec in self.pipelines]
        located = {"pipelines": pipelines, "folders": folders}
        return self.model_copy(update=located)

    @property
    def listed(self) -> str:
        """Kind of the pattern: topics or folders."""
        return "topics" if self.topics is not None else "folders"

    @property
    def pattern(self) -> str | None:
        """Pattern of expected sources; None if there is none."""
        return self.topics if self.topics is not None else self.folders

    @property
    def ignored(self) -> list[str]:
        """Patterns of sources to ignore."""
        return self.ignored_topics if self.topics is not None else self.ignored_folders

    @property
    def places_read(self) -> frozenset[str]:
        """The topics or folders of all pipelines."""
        return frozenset(spec.source.place for spec in self.pipelines)


def put_together(shared: Attributes, own: Attributes) -> dict[str, Any]:
    """Merge attributes; a pipeline's own take precedence over shared ones.

    Example:
        >>> put_together({"source": {"type": "kafka"}, "ttl": "1d"}, {"source": {"topic": "t"}, "ttl": "2d"})
        {'source': {'type': 'kafka', 'topic': 't'}, 'ttl': '2d'}
    """
    whole = dict(shared)
    for name, value in own.items():
        below = whole.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            whole[name] = put_together(below, value)
        else:
            whole[name] = value
    return whole


def _imports(own: Any) -> bool:
    return isinstance(own, Mapping) and UpsertPipeline.imports(own)


def _place(attributes: Attributes, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of an error's field: among the shared fields, or with the pipeline's name instead of its number."""
    first, *rest = names or ("",)
    if first != "pipelines" or not rest:
        return names
    number, *inner = rest
    field = field_path(tuple(inner))
    own = attributes["pipelines"][int(number)]
    if not isinstance(own, Mapping):
        return names
    is_shared = _has(attributes.get("shared", {}), field) and not _has(own, field)
    if is_shared:
        return "shared", *field
    return "pipelines", str(own.get("name", number)), *field


def _has(attributes: Any, field: tuple[str, ...]) -> bool:
    for name in field:
        if not isinstance(attributes, Mapping) or name not in attributes:
            return False
        attributes = attributes[name]
    return bool(field)
