"""The sources that `ebbtide new` is given: a folder or a topic, or all that a pattern lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ebbtide.errors import ConfigError
from ebbtide.proposal.sample import Sample, usable_topic
from ebbtide.proposal.spec import Proposal, propose
from ebbtide.runtime.kinds import source_of
from ebbtide.sources import listing
from ebbtide.sources.positioned import matching
from ebbtide.spec.ddl import parse_ddl, type_ddl
from ebbtide.spec.reading import project_of
from ebbtide.spec.several import WILDCARD
from ebbtide.storage.paths import is_file, is_folder, is_local, resolve

Source = tuple[dict[str, Any], Iterator[bytes]]
"""A source as a spec has it, and the lines that are read of it."""


@dataclass(frozen=True)
class Asked:
    """The command's options."""

    path: str | None
    bootstrap_servers: str | None
    properties: tuple[str, ...]
    registry: str | None
    registry_username: str | None
    registry_password: str | None
    topic: str | None
    topic_pattern: str | None
    table: str | None
    key: str | None
    sequence: str | None
    columns: tuple[str, ...]
    sample: int
    defs: str
    tests: str
    as_json: bool

    def proposal_of(self, sample: Sample) -> Proposal:
        """Return what records propose, beside what is asked for."""
        return propose(
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
        pattern: The pattern as the spec has it.
        shared: The source's fields that all of them have.
        places: Name of each to the source's fields that are its own.
        lines: Reads the lines of one.
    """

    kind: str
    pattern: str
    shared: dict[str, Any]
    places: dict[str, dict[str, Any]]
    lines: Callable[[str], Iterator[bytes]]


def listed_sources(asked: Asked, folder: Path) -> Listed | None:
    """Return the topics or folders that a pattern lists; None if no pattern is given."""
    if asked.topic_pattern:
        if asked.path is not None:
            raise click.UsageError("Got --path and --topic-pattern. Allowed: one of them.")
        shared = _of_kafka(asked)
        any_topic = usable_topic({**shared, "topic": "any"})

        def lines(topic: str) -> Iterator[bytes]:
            source = source_of(any_topic.model_copy(update={"topic": topic}), "new", in_order=False)
            return source.sample(asked.sample)

        there = source_of(any_topic, "new", in_order=False).names()
        places = {topic: {"topic": topic} for topic in matching(there, asked.topic_pattern)}
        return Listed("topic", asked.topic_pattern, shared, places, lines)
    if asked.path is None or not WILDCARD.search(asked.path):
        return None
    project = project_of(folder)
    pattern = resolve(asked.path)
    folders = {place: {"path": _in_project(place, project)} for place in listing.folders_like(pattern)}
    return Listed("folder", _in_project(pattern, project), _given({"table": asked.table}), folders, _lines)


def _types(columns: Sequence[str]) -> dict[str, str]:
    """Return the types that are given, by column."""
    if not columns:
        return {}
    given = parse_ddl(", ".join(columns)).columns
    return {column.name: type_ddl(column.type) for column in given}


def _names(given: str | None) -> Sequence[str]:
    return [name.strip() for name in given.split(",")] if given else ()


def folder_source(asked: Asked, folder: Path) -> Source:
    """Return the source that is a folder; a path within the project is written as seen from there."""
    if asked.path is None:
        raise click.UsageError("Got neither --path nor --bootstrap-servers. Allowed: one of them.")
    project = project_of(folder)
    location = resolve(asked.path)
    _refuse_no_folder(location, asked.path)
    lines = _lines(location)
    source: dict[str, Any] = {"path": _in_project(location, project), "topic": asked.topic, "table": asked.table}
    return _given(source), lines


def _in_project(location: str, project: Path) -> str:
    """Return a location as a spec of the project has it."""
    if is_local(location) and Path(location).is_relative_to(project):
        return Path(location).relative_to(project).as_posix()
    return location


def _refuse_no_folder(location: str, given: str) -> None:
    """Refuse a source that is a file, or is not there.

    Raises:
        ConfigError: there is no such folder.
    """
    if is_folder(location):
        return
    if is_file(location):
        raise ConfigError.of(
            "A source is a folder of files.",
            got=f"the file '{given}'",
            allowed="a folder, whose files are all of the same kind",
            next_step=f"Name its folder: --path {Path(given).parent}.",
        )
    raise ConfigError.of("There is no such folder.", got=f"--path {given}", allowed="a folder that is there")


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a folder's files, in the order in which a run reads them."""
    from ebbtide.sources.files import read_lines

    found = listing.discover(path, listing.PATTERNS, {}, in_order=False, min_age_ms=0, now_ms=0)
    if found.nothing_matched:
        raise ConfigError.of(found.nothing_matched)
    for number, (name, size) in enumerate(found.parts):
        for batch in read_lines(path, name, number, size=size):
            yield from batch["value"].to_pylist()


def topic_source(asked: Asked) -> Source:
    """Return the source that is a topic of Kafka."""
    if asked.path is not None:
        raise click.UsageError("Got --path and --bootstrap-servers. Allowed: one of them.")
    if asked.topic is None:
        raise click.UsageError("Got --bootstrap-servers without --topic. Allowed: both, or --topic-pattern.")
    source = {**_of_kafka(asked), "topic": asked.topic}
    topic = source_of(usable_topic(source), "new", in_order=False)
    return source, topic.sample(asked.sample)


def _of_kafka(asked: Asked) -> dict[str, Any]:
    """Return a source without its topic."""
    if asked.bootstrap_servers is None:
        raise click.UsageError("Got --topic-pattern without --bootstrap-servers. Allowed: both.")
    properties = dict(each.partition("=")[::2] for each in asked.properties)
    source: dict[str, Any] = {
        "type": "kafka",
        "bootstrap_servers": asked.bootstrap_servers,
        "table": asked.table,
        "properties": properties,
        "registry": _registry(asked),
    }
    return _given(source)


def _registry(asked: Asked) -> dict[str, Any]:
    given = {"url": asked.registry, "username": asked.registry_username, "password": asked.registry_password}
    return _given(given)


def _given(source: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that were given."""
    return {name: value for name, value in source.items() if value}
