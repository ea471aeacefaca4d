"""Writes the spec and the test that `ebbtide new` proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ebbtide.amounts import amount
from ebbtide.cli.errors import FAILED, ROOT
from ebbtide.cli.reporting import Reporter
from ebbtide.errors import ConfigError
from ebbtide.proposal.files import SEVERAL, Trial, lines_of, refuse_existing, try_spec, write_spec, write_test
from ebbtide.proposal.sample import Sample, take_sample, usable_topic
from ebbtide.proposal.several import own_fields, several_attributes
from ebbtide.proposal.spec import Proposal, propose
from ebbtide.runtime.kinds import source_of
from ebbtide.sources import listing
from ebbtide.sources.positioned import matching
from ebbtide.spec.ddl import parse_ddl, type_ddl
from ebbtide.spec.load import several_at
from ebbtide.spec.reading import project_of, read_document
from ebbtide.spec.several import WILDCARD, UpsertPipelines
from ebbtide.spec.upsert import UpsertPipeline
from ebbtide.sql.catalog import Catalog
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


@dataclass(frozen=True)
class Tables:
    """The tables that records of several topics or folders make, by topic or folder.

    Args:
        samples: Records of each.
        proposals: Fields that the records propose.
        sources: Fields of the source that are a table's own.
        notes: What the samples leave open.
    """

    samples: dict[str, Sample]
    proposals: dict[str, Proposal]
    sources: dict[str, dict[str, Any]]
    notes: list[str]


def write_proposal(name: str, asked: Asked) -> None:
    """Write a spec and its test, or one spec for the topics of a pattern and a test of each.

    Args:
        name: Name of the pipeline and of its folders.
        asked: The command's options.

    Raises:
        ConfigError: the name is in use, or the source has no usable records.
    """
    reporter = Reporter(as_json=asked.as_json)
    with reporter.errors():
        folder = Path(asked.defs) / name
        test_folder = Path(asked.tests) / name
        several = _listed(asked, folder)
        there = several_at(folder)
        if several is not None and there is not None:
            _propose_lines(folder, asked, several, there)
            return
        refuse_existing(folder, test_folder, name)
        _refuse_taken(folder, [name])
        if several is not None:
            _new_several(name, asked, folder, test_folder, reporter, several)
            return
        source, lines = _topic(asked) if asked.bootstrap_servers else _folder(asked, folder)
        sample = take_sample(
            lines,
            asked.sample,
            topic=asked.topic,
            table=asked.table,
        )
        proposal = propose(
            sample,
            key=_names(asked.key),
            sequence=_names(asked.sequence),
            types=_types(asked.columns),
        )
        if "path" in source and sample.holds == "value":
            source["records"] = "value"
        attributes = {
            "name": name,
            "source": source,
            **proposal.attributes,
        }
        spec = UpsertPipeline.of_attributes(attributes, folder / "defs.yaml")
        trial = try_spec(spec, sample)
        notes = (*trial.notes, *proposal.notes)
        write_spec(folder, attributes, notes)
        write_test(test_folder, folder, name, sample, trial)
        report = _Report(
            spec=str(folder),
            file=f"{folder}/defs.yaml",
            test=str(test_folder),
            n_records=len(sample.records),
            trial=trial,
            notes=notes,
        )
        reporter.result(report, _Report.text, str(folder))
        _fail_on_bad([report])


def _listed(asked: Asked, folder: Path) -> Listed | None:
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


def _new_several(
    name: str,
    asked: Asked,
    folder: Path,
    test_folder: Path,
    reporter: Reporter,
    listed: Listed,
) -> None:
    """Write one spec for all topics or folders of a pattern, and a test of each."""
    tables = _tables(asked, listed)
    samples, proposals, notes = tables.samples, tables.proposals, [*tables.notes]
    pattern_of = {f"{listed.kind}s": listed.pattern}
    attributes = several_attributes(name, listed.shared, pattern_of, tables.sources, proposals)
    several = UpsertPipelines.of_attributes(attributes, folder / "defs.yaml")
    _refuse_taken(folder, [spec.name for spec in several.pipelines])
    reports = []
    for spec, (topic, proposal) in zip(several.pipelines, proposals.items(), strict=True):
        sample = samples[topic]
        trial = try_spec(spec, sample)
        notes += [f"{listed.kind} {topic}: {note}" for note in trial.notes]
        its_folder = test_folder / spec.name
        write_test(its_folder, folder / spec.name, spec.name, sample, trial)
        its_notes = (*trial.notes, *proposal.notes)
        report = _Report(
            spec=str(folder / spec.name),
            file=f"{folder}/defs.yaml, {spec.name}",
            test=str(its_folder),
            n_records=len(sample.records),
            trial=trial,
            notes=its_notes,
        )
        reports.append(report)
    write_spec(folder, attributes, notes, SEVERAL)
    for report in reports:
        reporter.result(report, _Report.text, report.spec)
    _fail_on_bad(reports)


def _propose_lines(folder: Path, asked: Asked, listed: Listed, there: UpsertPipelines) -> None:
    """Print the lines that a file of several pipelines lacks for the topics or folders that none of them reads.

    Raises:
        ConfigError: all are read, or no other one has usable records.
    """
    unread = {place: own for place, own in listed.places.items() if place not in there.places_read}
    if not unread:
        raise ConfigError.of(f"'{folder}/defs.yaml' reads all {listed.kind}s like '{listed.pattern}'.")
    tables = _tables(asked, replace(listed, places=unread))
    _, document = read_document(folder)
    entries = own_fields(document["attributes"].get("shared", {}), tables.sources, tables.proposals)
    for note in tables.notes:
        click.echo(f"To be looked at: {note}", err=True)
    click.echo(f"Add to '{folder}/defs.yaml', under pipelines:", err=True)
    click.echo(lines_of(entries), nl=False)


def _tables(asked: Asked, listed: Listed) -> Tables:
    """Sample the topics or folders of a pattern; one without usable records is noted.

    Raises:
        ConfigError: none has usable records.
    """
    samples: dict[str, Sample] = {}
    proposals: dict[str, Proposal] = {}
    sources: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    for place, own in listed.places.items():
        topic = str(own.get("topic", own.get("path")))
        try:
            samples[topic] = take_sample(listed.lines(place), asked.sample, topic=None, table=asked.table)
            proposals[topic] = propose(
                samples[topic],
                key=_names(asked.key),
                sequence=_names(asked.sequence),
                types=_types(asked.columns),
            )
        except ConfigError as error:
            notes.append(f"{listed.kind} {topic}: left out: {error}")
            continue
        is_bare = listed.kind == "folder" and samples[topic].holds == "value"
        sources[topic] = {**own, "records": "value"} if is_bare else own
        notes += [f"{listed.kind} {topic}: {note}" for note in proposals[topic].notes]
    if not proposals:
        raise ConfigError.of(
            f"No {listed.kind} like '{listed.pattern}' has records to go by.",
            got="; ".join(notes) or f"no such {listed.kind}",
        )
    return Tables(samples, proposals, sources, notes)


@dataclass(frozen=True)
class _Report:
    """The files that were written, and the result of the trial.

    Args:
        spec: The pipeline, as commands take it.
        file: Where it stands, for people.
        test: Folder of its test.
        n_records: Records of the sample.
        trial: The sample, played.
        notes: Points to look at.
    """

    spec: str
    file: str
    test: str
    n_records: int
    trial: Trial
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "spec": self.spec,
            "test": self.test,
            "records": self.n_records,
            "rows": len(self.trial.rows),
            "bad_records": self.trial.n_bad,
            "reasons": dict(self.trial.bad),
            "notes": list(self.notes),
        }

    @property
    def _next_step(self) -> str:
        if self.trial.n_bad:
            return "correct the spec by these reasons: it does not take all records, and its test fails. Or take another --sample."
        return f"ebbtide run {self.spec}"

    def text(self) -> str:
        lines = [
            f"{self.file}: {amount(self.n_records, 'record')} became {amount(len(self.trial.rows), 'row')}; bad: {self.trial.n_bad:,}.",
            "To be looked at:" if self.notes else "",
            *(f"  {note}" for note in self.notes),
            f"{self.test}: the sample, its rows, and a test. They hold real values: look before you commit.",
            f"Next: {self._next_step}",
        ]
        return "\n".join(filter(None, lines))


def _fail_on_bad(reports: Sequence[_Report]) -> None:
    """End the command as failed where a spec does not take all records of its sample: a user has to correct it."""
    if any(report.trial.n_bad for report in reports):
        raise click.exceptions.Exit(FAILED)


def _types(columns: Sequence[str]) -> dict[str, str]:
    """Return the types that are given, by column."""
    if not columns:
        return {}
    given = parse_ddl(", ".join(columns)).columns
    return {column.name: type_ddl(column.type) for column in given}


def _definitions(folder: Path) -> Path:
    """Return the folder of all definitions of the project: that of the new one's folder, or the highest 'defs' above it."""
    # Names are unique in a project, whose definitions may stand in folders of folders: the highest one is searched.
    project = project_of(folder)
    highest = folder.parent
    for parent in folder.resolve().parents:
        is_inside = parent.is_relative_to(project)
        if is_inside and parent.name == "defs":
            highest = parent
    return highest


def _refuse_taken(folder: Path, names: Sequence[str]) -> None:
    """Refuse names that are in use: two of one name make the whole project unusable.

    Raises:
        ConfigError: one is.
    """
    catalog = Catalog(ROOT, _definitions(folder))
    taken = catalog.summaries()
    for name in names:
        if name in taken:
            raise ConfigError.of(
                f"The name '{name}' is in use.",
                got=f"'{taken[name].file}'",
                allowed="a name of its own for each pipeline, source, table and function of a project",
                next_step="Choose another name.",
            )


def _names(given: str | None) -> Sequence[str]:
    return [name.strip() for name in given.split(",")] if given else ()


def _folder(asked: Asked, folder: Path) -> Source:
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
    parent = Path(given).parent
    is_one = is_file(location)
    raise ConfigError.of(
        "A source is a folder of files." if is_one else "There is no such folder.",
        got=f"the file '{given}'" if is_one else f"--path {given}",
        allowed="a folder, whose files are all of the same kind" if is_one else "a folder that is there",
        next_step=f"Name its folder: --path {parent}." if is_one else None,
    )


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a folder's files, in the order in which a run reads them."""
    from ebbtide.sources.files import read_lines

    found = listing.discover(path, listing.PATTERNS, {}, in_order=False, min_age_ms=0, now_ms=0)
    if found.nothing_matched:
        raise ConfigError.of(found.nothing_matched)
    for number, (name, size) in enumerate(found.parts):
        for batch in read_lines(path, name, number, size=size):
            yield from batch["value"].to_pylist()


def _topic(asked: Asked) -> Source:
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
