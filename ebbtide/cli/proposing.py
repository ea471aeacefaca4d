"""Writes the spec and the test that `ebbtide new` proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ebbtide.amounts import amount
from ebbtide.cli.errors import FAILED, ROOT
from ebbtide.cli.places import marked_project
from ebbtide.cli.proposing_sources import Asked, Listed, folder_source, listed_sources, topic_source
from ebbtide.cli.reporting import Reporter, say
from ebbtide.definitions import all_several
from ebbtide.errors import ConfigError
from ebbtide.proposal import Proposal, ProposedFiles, ProposedTables, Sample, Trial
from ebbtide.spec import Project, SpecFile, UpsertPipeline, UpsertPipelines
from ebbtide.sql import Catalog


def write_proposal(name: str, asked: Asked) -> None:
    """Write a spec and its test, or one spec for the topics of a pattern and a test of each.

    Args:
        name: Name of the pipeline and of its folders.
        asked: The command's options.

    Raises:
        ConfigError: the name is in use, or the source has no usable records.
    """
    reporter = Reporter(as_json=asked.as_json)
    folder = Path(asked.defs) / name
    with reporter.errors(), marked_project(folder) as mark:
        _propose(name, asked, folder, reporter)
    if mark is not None and not asked.as_json:
        say(f"{mark.name}: marks the project; its tables are in .ebbtide next to this file.")


def _propose(name: str, asked: Asked, folder: Path, reporter: Reporter) -> None:
    test_folder = Path(asked.tests) / name
    several = listed_sources(asked, folder)
    there = all_several(str(folder)) if (folder / "defs.yaml").is_file() else []
    if several is not None and there:
        _propose_lines(folder, asked, several, there[0])
        return
    files = ProposedFiles(folder, test_folder, name)
    files.refuse_existing()
    _refuse_taken(folder, [name])
    if several is not None:
        _new_several(name, asked, folder, test_folder, reporter, several)
        return
    source, lines = topic_source(asked) if asked.source.bootstrap_servers else folder_source(asked, folder)
    sample = Sample.take(
        lines,
        asked.sample,
        topic=asked.source.topic,
        table=asked.source.table,
    )
    proposal = asked.proposal_of(sample)
    if "path" in source and sample.holds == "value":
        source["records"] = "value"
    attributes = {
        "name": name,
        "source": source,
        **proposal.attributes,
    }
    file = folder / "defs.yaml"
    spec = UpsertPipeline.of_attributes(attributes, file)
    report = _tested(spec, sample, proposal, folder, test_folder, str(file))
    files.write_spec(attributes, report.notes)
    _show([report], reporter)


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
    notes = [*tables.notes]
    pattern_of = {f"{listed.kind}s": listed.pattern}
    attributes = tables.attributes(name, listed.shared, pattern_of)
    file = folder / "defs.yaml"
    several = UpsertPipelines.of_attributes(attributes, file)
    _refuse_taken(folder, [spec.name for spec in several.pipelines])
    reports = []
    for spec, (topic, proposal) in zip(several.pipelines, tables.proposals.items(), strict=True):
        report = _tested(
            spec,
            tables.samples[topic],
            proposal,
            folder / spec.name,
            test_folder / spec.name,
            f"{file}, {spec.name}",
        )
        notes += [f"{listed.kind} {topic}: {note}" for note in report.trial.notes]
        reports.append(report)
    ProposedFiles(folder, test_folder, name).write_spec(attributes, notes, is_several=True)
    _show(reports, reporter)


def _propose_lines(folder: Path, asked: Asked, listed: Listed, there: UpsertPipelines) -> None:
    """Print the lines to add to a file of several pipelines for topics or folders that none of them reads.

    Raises:
        ConfigError: all are read, or no unread one has usable records.
    """
    unread = {place: own for place, own in listed.places.items() if place not in there.places_read}
    if not unread:
        raise ConfigError.of(f"'{folder}/defs.yaml' reads all {listed.kind}s like '{listed.pattern}'.")
    tables = _tables(asked, replace(listed, places=unread))
    attributes = SpecFile.read(folder).attributes
    shared = attributes.get("shared", {})
    lines = tables.added_lines(shared)
    for note in tables.notes:
        click.echo(f"Please check: {note}", err=True)
    click.echo(f"Add to '{folder}/defs.yaml', under pipelines:", err=True)
    click.echo(lines, nl=False)


def _tables(asked: Asked, listed: Listed) -> ProposedTables:
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
            sample = Sample.take(listed.lines(place), asked.sample, topic=None, table=asked.source.table)
            proposal = asked.proposal_of(sample)
        except ConfigError as error:
            notes.append(f"{listed.kind} {topic}: left out: {error}")
            continue
        samples[topic] = sample
        proposals[topic] = proposal
        is_bare = listed.kind == "folder" and sample.holds == "value"
        sources[topic] = {**own, "records": "value"} if is_bare else own
        notes += [f"{listed.kind} {topic}: {note}" for note in proposal.notes]
    if not proposals:
        raise ConfigError.of(
            f"No {listed.kind} like '{listed.pattern}' has usable records.",
            got="; ".join(notes) or f"no such {listed.kind}",
        )
    return ProposedTables(samples, proposals, sources, notes)


@dataclass(frozen=True)
class _Report:
    """The files that were written, and the result of the trial.

    Args:
        spec: The pipeline, as an argument of commands.
        file: Its location, for people.
        test: Folder of its test.
        n_records: Records of the sample.
        trial: The result of the sample.
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
            "faults": list(self.trial.faults),
            "notes": list(self.notes),
        }

    @property
    def _next_step(self) -> str:
        if self.trial.n_bad:
            return "correct the spec by these reasons: it refuses some records, and its test fails. Or take another --sample."
        if self.trial.faults:
            return "delete both folders, and run it again with another --key or --sequence, or correct the spec: the result of the sample differs from the source's rows."
        return f"ebbtide run {self.spec}"

    def text(self) -> str:
        lines = [
            f"{self.file}: {amount(self.n_records, 'record')} became {amount(len(self.trial.rows), 'row')}; bad: {self.trial.n_bad:,}.",
            "Please check:" if self.notes else "",
            *(f"  {note}" for note in self.notes),
            f"{self.test}: the sample, its rows, and a test. They contain real values: check before you commit.",
            f"Next: {self._next_step}",
        ]
        return "\n".join(filter(None, lines))


def _tested(
    spec: UpsertPipeline,
    sample: Sample,
    proposal: Proposal,
    folder: Path,
    test_folder: Path,
    file: str,
) -> _Report:
    """Run a sample through its spec, and write it as the spec's test.

    Args:
        spec: The spec.
        sample: Its records.
        proposal: The proposal from the records.
        folder: The spec, as an argument of commands.
        test_folder: Folder of its test.
        file: The spec's future location, for people.
    """
    trial = Trial.of(spec, sample)
    ProposedFiles(folder, test_folder, spec.name).write_test(sample, trial)
    return _Report(
        spec=str(folder),
        file=file,
        test=str(test_folder),
        n_records=len(sample.records),
        trial=trial,
        notes=(*trial.notes, *proposal.notes),
    )


def _show(reports: Sequence[_Report], reporter: Reporter) -> None:
    """Print reports. The command fails if a sample's result differs from the source's rows: a user must correct the spec."""
    for report in reports:
        reporter.result(report, _Report.text, report.spec)
    if not all(report.trial.is_good for report in reports):
        raise click.exceptions.Exit(FAILED)


def _definitions(folder: Path) -> Path:
    """Return the folder of all definitions of the project: the new definition's parent, or the highest 'defs' above it."""
    # Names are unique in a project, and definitions may be in nested folders, so the highest one is searched.
    project = Project.around(folder).folder
    highest = folder.parent
    for parent in folder.resolve().parents:
        is_inside = parent.is_relative_to(project)
        if is_inside and parent.name == "defs":
            highest = parent
    return highest


def _refuse_taken(folder: Path, names: Sequence[str]) -> None:
    """Refuse names that are in use: a repeated name makes the whole project unusable.

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
                allowed="a unique name for each pipeline, source, table and function of a project",
                next_step="Choose another name.",
            )
