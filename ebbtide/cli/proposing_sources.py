"""The sources that `ebbtide new` is given: a folder or a topic, or all that a pattern lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from glob import has_magic
from pathlib import Path
from typing import Any

import click

from ebbtide.ddl import parse_ddl, type_ddl
from ebbtide.errors import ConfigError
from ebbtide.proposal import Proposal, Sample
from ebbtide.sources import FileSource
from ebbtide.spec import KafkaSource, Project
from ebbtide.storage import Location

Source = tuple[dict[str, Any], Iterator[bytes]]
"""A source's fields in a spec, and its sample lines."""


@dataclass(frozen=True)
class SourceOptions:
    """The command's options that name the source."""

    path: str | None
    bootstrap_servers: str | None
    properties: tuple[str, ...]
    registry: str | None
    registry_username: str | None
    registry_password: str | None
    topic: str | None
    topic_pattern: str | None
    table: str | None


@dataclass(frozen=True)
class Asked:
    """The command's options."""

    source: SourceOptions
    key: str | None
    sequence: str | None
    columns: tuple[str, ...]
    sample: int
    defs: str
    tests: str
    as_json: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Asked:
        """Return the options that `click` parsed."""
        own = dict(options)
        of_source = {}
        for field in fields(SourceOptions):
            of_source[field.name] = own.pop(field.name)
        source = SourceOptions(**of_source)
        return cls(source, **own)

    def proposal_of(self, sample: Sample) -> Proposal:
        """Return the proposal from records, with the given options."""
        return Proposal.of(
            sample,
            key=_names(self.key),
            sequence=_names(self.sequence),
            types=_types(self.columns),
        )


@dataclass(frozen=True)
class Listed:
    """The topics or folders that a pattern lists.

    Args:
        kind: Topic or folder.
        pattern: The pattern, as written in the spec.
        shared: Common fields of the sources.
        places: Name of each to its own fields of the source.
        lines: Reads the lines of one.
    """

    kind: str
    pattern: str
    shared: dict[str, Any]
    places: dict[str, dict[str, Any]]
    lines: Callable[[str], Iterator[bytes]]


def listed_sources(asked: Asked, folder: Path) -> Listed | None:
    """Return the topics or folders that a pattern lists; None if no pattern is given."""
    given = asked.source
    if given.topic_pattern:
        if given.path is not None:
            raise click.UsageError("Got --path and --topic-pattern. Allowed: one of them.")
        shared = _of_kafka(given)
        any_topic = KafkaSource.of_options({**shared, "topic": "any"})

        def lines(topic: str) -> Iterator[bytes]:
            source = any_topic.model_copy(update={"topic": topic}).opened("new", in_order=False)
            return source.sample(asked.sample)

        there = any_topic.opened("new", in_order=False).names_like(given.topic_pattern)
        places = {topic: {"topic": topic} for topic in there}
        return Listed("topic", given.topic_pattern, shared, places, lines)
    if given.path is None or not has_magic(given.path):
        return None
    project = Project.around(folder).folder
    pattern = Location(given.path).resolved()
    folders = {place: {"path": _in_project(place, project)} for place in FileSource.folders_like(pattern)}
    return Listed(
        "folder",
        _in_project(pattern, project),
        _given({"table": given.table}),
        folders,
        lambda path: FileSource(path).lines(),
    )


def _types(columns: Sequence[str]) -> dict[str, str]:
    """Return the given types, by column."""
    if not columns:
        return {}
    given = parse_ddl(", ".join(columns)).columns
    return {column.name: type_ddl(column.type) for column in given}


def _names(given: str | None) -> Sequence[str]:
    return [name.strip() for name in given.split(",")] if given else ()


def folder_source(asked: Asked, folder: Path) -> Source:
    """Return a folder as the source; a path within the project is written relative to it."""
    given = asked.source
    if given.path is None:
        raise click.UsageError("Got neither --path nor --bootstrap-servers. Allowed: one of them.")
    project = Project.around(folder).folder
    named = Location(given.path).expanded("--path")
    location = Location(named).resolved()
    _refuse_no_folder(location, given.path)
    lines = FileSource(location).lines()
    path = _in_project(location, project) if named == given.path else given.path
    source: dict[str, Any] = {"path": path, "topic": given.topic, "table": given.table}
    return _given(source), lines


def _in_project(location: str, project: Path) -> str:
    """Return a location as written in a spec of the project."""
    if Location(location).is_local and Path(location).is_relative_to(project):
        return Path(location).relative_to(project).as_posix()
    return location


def _refuse_no_folder(location: str, given: str) -> None:
    """Refuse a source that is a file, or does not exist.

    Raises:
        ConfigError: there is no such folder.
    """
    if Location(location).is_folder():
        return
    if Location(location).is_file():
        raise ConfigError.of(
            "A source is a folder of files.",
            got=f"the file '{given}'",
            allowed="a folder with files of the same kind",
            next_step=f"Name its folder: --path {Path(given).parent}.",
        )
    raise ConfigError.of("There is no such folder.", got=f"--path {given}", allowed="an existing folder")


def topic_source(asked: Asked) -> Source:
    """Return a Kafka topic as the source."""
    given = asked.source
    if given.path is not None:
        raise click.UsageError("Got --path and --bootstrap-servers. Allowed: one of them.")
    if given.topic is None:
        raise click.UsageError("Got --bootstrap-servers without --topic. Allowed: both, or --topic-pattern.")
    source = {**_of_kafka(given), "topic": given.topic}
    topic = KafkaSource.of_options(source).opened("new", in_order=False)
    return source, topic.sample(asked.sample)


def _of_kafka(given: SourceOptions) -> dict[str, Any]:
    """Return a source without its topic."""
    if given.bootstrap_servers is None:
        raise click.UsageError("Got --topic-pattern without --bootstrap-servers. Allowed: both.")
    properties = dict(each.partition("=")[::2] for each in given.properties)
    source: dict[str, Any] = {
        "type": "kafka",
        "bootstrap_servers": given.bootstrap_servers,
        "table": given.table,
        "properties": properties,
        "registry": _registry(given),
    }
    return _given(source)


def _registry(given: SourceOptions) -> dict[str, Any]:
    registry = {"url": given.registry, "username": given.registry_username, "password": given.registry_password}
    return _given(registry)


def _given(source: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that were given."""
    return {name: value for name, value in source.items() if value}
