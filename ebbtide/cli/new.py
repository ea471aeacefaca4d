"""`ebbtide new`: a spec and its test from real records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ebbtide.amounts import amount
from ebbtide.cli.errors import FAILED, ROOT
from ebbtide.cli.options import json_option
from ebbtide.cli.reporting import Reporter
from ebbtide.errors import ConfigError
from ebbtide.proposal.files import SEVERAL, Trial, refuse_existing, try_spec, write_spec, write_test
from ebbtide.proposal.sample import Sample, take_sample, usable_topic
from ebbtide.proposal.several import several_attributes
from ebbtide.proposal.spec import Proposal, propose
from ebbtide.runtime.kinds import source_of
from ebbtide.sources import listing
from ebbtide.sources.positioned import matching
from ebbtide.spec.ddl import parse_ddl, type_ddl
from ebbtide.spec.reading import project_of
from ebbtide.spec.several import UpsertPipelines
from ebbtide.spec.upsert import UpsertPipeline
from ebbtide.sql.catalog import Catalog
from ebbtide.storage.paths import is_local, resolve

Source = tuple[dict[str, Any], Iterator[bytes]]
"""A source as a spec has it, and the lines that are read of it."""


@click.command()
@click.argument("name")
@click.option("--path", help="Folder of the source's files.")
@click.option("--bootstrap-servers", metavar="HOST:PORT,..", help="Kafka's brokers, in the place of a folder.")
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the Kafka client; a credential as ${NAME}.",
)
@click.option("--registry", metavar="URL", help="Schema registry: the topic's records are Avro.")
@click.option("--registry-username", metavar="NAME", help="Who asks it.")
@click.option("--registry-password", metavar="${NAME}", help="The password's variable.")
@click.option("--topic", help="Take only records of this topic.")
@click.option("--topic-pattern", metavar="PATTERN", help="One file for all topics that it matches: 'shop.public.*'.")
@click.option("--table", help="Take only Debezium events of this source table.")
@click.option("--key", metavar="COLUMN,..", help="The primary key. Default: that of the records.")
@click.option(
    "--sequence", metavar="COLUMN,..", help="What orders a key's changes. Default: the place in the database's log."
)
@click.option(
    "--column",
    "columns",
    metavar="'NAME TYPE'",
    multiple=True,
    help="A column whose type is known: 'total DECIMAL(12,2)'. Default: by the records.",
)
@click.option("--sample", type=click.IntRange(1), default=1000, show_default=True, help="Records to go by.")
@click.option("--defs", default="pipelines/defs", show_default=True, help="Folder of the definitions.")
@click.option("--tests", default="tests/pipelines", show_default=True, help="Folder of the tests.")
@json_option
def new(name: str, **options: Any) -> None:
    """Write a spec and its test from real records.

    The first records of the source tell format, columns, types, key and order. What they leave open stands as comments
    above the spec. Nothing is run but the sample, in memory: where the spec does not take all of it, the command fails.
    """
    asked = _Asked(**options)
    reporter = Reporter(as_json=asked.as_json)
    with reporter.errors():
        folder = Path(asked.defs) / name
        test_folder = Path(asked.tests) / name
        refuse_existing(folder, test_folder, name)
        _refuse_taken(folder, [name])
        if asked.topic_pattern:
            _new_several(name, asked, folder, test_folder, reporter)
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
            test=str(test_folder),
            n_records=len(sample.records),
            trial=trial,
            notes=notes,
        )
        reporter.result(report, _Report.text, str(folder))
        _fail_on_bad([report])


@dataclass(frozen=True)
class _Asked:
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


def _new_several(
    name: str,
    asked: _Asked,
    folder: Path,
    test_folder: Path,
    reporter: Reporter,
) -> None:
    """Write one spec for all topics of a pattern, and a test of each."""
    pattern = str(asked.topic_pattern)
    shared = _of_kafka(asked)
    any_topic = usable_topic({**shared, "topic": "any"})
    there = source_of(any_topic, "new", in_order=False).names()
    samples: dict[str, Sample] = {}
    proposals: dict[str, Proposal] = {}
    notes: list[str] = []
    for topic in matching(there, pattern):
        source = source_of(any_topic.model_copy(update={"topic": topic}), "new", in_order=False)
        lines = source.sample(asked.sample)
        try:
            samples[topic] = take_sample(lines, asked.sample, topic=None, table=asked.table)
            proposals[topic] = propose(
                samples[topic],
                key=_names(asked.key),
                sequence=_names(asked.sequence),
                types=_types(asked.columns),
            )
        except ConfigError as error:
            notes.append(f"topic {topic}: left out: {error}")
            continue
        notes += [f"topic {topic}: {note}" for note in proposals[topic].notes]
    if not proposals:
        raise ConfigError.of(
            f"No topic like '{pattern}' has records to go by.", got="; ".join(notes) or "no such topic"
        )
    attributes = several_attributes(name, shared, pattern, proposals)
    several = UpsertPipelines.of_attributes(attributes, folder / "defs.yaml")
    _refuse_taken(folder, [spec.name for spec in several.pipelines])
    reports = []
    for spec, (topic, proposal) in zip(several.pipelines, proposals.items(), strict=True):
        sample = samples[topic]
        trial = try_spec(spec, sample)
        notes += [f"topic {topic}: {note}" for note in trial.notes]
        its_folder = test_folder / spec.name
        write_test(its_folder, folder / spec.name, spec.name, sample, trial)
        its_notes = (*trial.notes, *proposal.notes)
        reports.append(_Report(str(folder / spec.name), str(its_folder), len(sample.records), trial, its_notes))
    write_spec(folder, attributes, notes, SEVERAL)
    for report in reports:
        reporter.result(report, _Report.text, report.spec)
    _fail_on_bad(reports)


@dataclass(frozen=True)
class _Report:
    """What was written, and how far it goes."""

    spec: str
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
            return "mend the spec by these reasons: it does not take all records, and its test fails. Or take another --sample."
        return f"ebbtide run {self.spec}"

    def text(self) -> str:
        lines = [
            f"{self.spec}/defs.yaml: {amount(self.n_records, 'record')} became {amount(len(self.trial.rows), 'row')}; bad: {self.trial.n_bad:,}.",
            "To be looked at:" if self.notes else "",
            *(f"  {note}" for note in self.notes),
            f"{self.test}: the sample, its rows, and a test. They hold real values: look before you commit.",
            f"Next: {self._next_step}",
        ]
        return "\n".join(filter(None, lines))


def _fail_on_bad(reports: Sequence[_Report]) -> None:
    """End the command as failed where a spec does not take all records that it was made of: it was written to be mended."""
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
    inside = [parent for parent in folder.resolve().parents if parent.is_relative_to(project_of(folder))]
    named = [parent for parent in inside if parent.name == "defs"]
    return named[-1] if named else folder.parent


def _refuse_taken(folder: Path, names: Sequence[str]) -> None:
    """Refuse names that are in use: two of one name make the whole project unusable.

    Raises:
        ConfigError: one is.
    """
    catalog = Catalog(ROOT, _definitions(folder))
    taken = catalog.places()
    for name in names:
        if name in taken:
            raise ConfigError.of(
                f"The name '{name}' is in use.",
                got=f"'{taken[name]}'",
                allowed="a name of its own for each pipeline, source, table and function of a project",
                next_step="Choose another name.",
            )


def _names(given: str | None) -> Sequence[str]:
    return [name.strip() for name in given.split(",")] if given else ()


def _folder(asked: _Asked, folder: Path) -> Source:
    """Return the source that is a folder; a path within the project is written as seen from there."""
    if asked.path is None:
        raise click.UsageError("Got neither --path nor --bootstrap-servers. Allowed: one of them.")
    project = project_of(folder)
    location = resolve(asked.path)
    lines = _lines(location)
    if is_local(location) and Path(location).is_relative_to(project):
        location = Path(location).relative_to(project).as_posix()
    source: dict[str, Any] = {"path": location, "topic": asked.topic, "table": asked.table}
    return _given(source), lines


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a folder's files, in the order in which a run reads them."""
    from ebbtide.sources.files import read_lines

    listing.refuse_absent(path)
    found = listing.discover(path, listing.PATTERNS, {}, in_order=False, min_age_ms=0, now_ms=0)
    if found.nothing_matched:
        raise ConfigError.of(found.nothing_matched)
    for number, (name, size) in enumerate(found.parts):
        for batch in read_lines(path, name, number, size=size):
            yield from batch["value"].to_pylist()


def _topic(asked: _Asked) -> Source:
    """Return the source that is a topic of Kafka."""
    if asked.path is not None:
        raise click.UsageError("Got --path and --bootstrap-servers. Allowed: one of them.")
    if asked.topic is None:
        raise click.UsageError("Got --bootstrap-servers without --topic. Allowed: both, or --topic-pattern.")
    source = {**_of_kafka(asked), "topic": asked.topic}
    topic = source_of(usable_topic(source), "new", in_order=False)
    return source, topic.sample(asked.sample)


def _of_kafka(asked: _Asked) -> dict[str, Any]:
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


def _registry(asked: _Asked) -> dict[str, Any]:
    given = {"url": asked.registry, "username": asked.registry_username, "password": asked.registry_password}
    return _given(given)


def _given(source: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that were given."""
    return {name: value for name, value in source.items() if value}
