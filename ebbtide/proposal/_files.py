"""A proposal as files of a project: the spec, and a test of it over the sampled records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from ebbtide.errors import ConfigError
from ebbtide.proposal._order import faults_of
from ebbtide.proposal._sample import Sample
from ebbtide.redaction import printable
from ebbtide.spec import Pipeline
from ebbtide.testing import MemoryPipeline, canonical

ONE = "ebbtide.dagster.UpsertPipeline"
SEVERAL = "ebbtide.dagster.UpsertPipelines"
LOOK_AT = "LOOK AT "
"""Begins each comment that a user has to answer."""
OF_A_TABLE = ("topic ", "folder ")
"""Begins the notes about one of several pipelines."""
COMMENTS = {
    "name": "Names the tables and the jobs.",
    "source": "Where the records are. A path is relative to the project.",
    "format": "How the records are coded.",
    "schema": "The table's columns. A record that does not fit them goes to the quarantine.",
    "key": "The table has one row per key.",
    "order": "Decides which change of a key is the newest.",
    "ttl": "For how long a deleted or changed row is remembered.",
    "ignored_columns": "Columns of the records that the table does not have.",
    "topics": "Topics to read. 'ebbtide lag' names one that no pipeline reads.",
    "folders": "Folders to read. 'ebbtide lag' names one that no pipeline reads.",
    "shared": "Holds for each pipeline that does not say otherwise.",
    "pipelines": "A table each. Any field of a pipeline may stand here.",
}
"""Field to its meaning, as a comment above it."""
_TEST = '''\
"""The pipeline `{name}` over real records: `sample.jsonl` becomes `rows.jsonl`. Look at both before you commit them."""

from pathlib import Path

from ebbtide import load
from ebbtide.testing import MemoryPipeline, canonical

HERE = Path(__file__).parent
SPEC = HERE / "{spec}"


def test_the_sample_becomes_its_rows():
    pipeline = MemoryPipeline(load(SPEC))
    pipeline.step((HERE / "sample.jsonl").read_bytes().splitlines())
    rows = [canonical(row) for row in pipeline.rows()]
    assert rows == (HERE / "rows.jsonl").read_text(encoding="utf-8").rstrip("\\n").split("\\n")
    assert [record["_detail"] for record in pipeline.quarantine] == []
'''


@dataclass(frozen=True)
class Trial:
    """Result of a spec that is tried on the sample.

    Args:
        rows: The sink's rows, as text.
        bad: Why records are bad, one of each reason.
        n_bad: How many are.
        faults: Signs that the rows are not those of the source.
    """

    rows: tuple[str, ...]
    bad: Mapping[str, str]
    n_bad: int
    faults: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: Pipeline, sample: Sample) -> Trial:
        """Run a spec over the sample, in memory."""
        pipeline = MemoryPipeline(spec)
        lines = [record.line for record in sample.records]
        pipeline.step(lines)
        rows = map(canonical, pipeline.rows())
        bad = {record["_reason"]: record["_detail"] for record in pipeline.quarantine}
        n_bad = len(pipeline.quarantine)
        return cls(tuple(rows), bad, n_bad, tuple(faults_of(pipeline, sample)))

    @property
    def is_good(self) -> bool:
        """Return whether the spec takes the whole sample, and nothing speaks against the rows that it makes."""
        return not (self.n_bad or self.faults)

    @property
    def notes(self) -> list[str]:
        """Problems to be solved before the first run."""
        not_taken = [printable(f"NOT TAKEN: {reason}: {detail}") for reason, detail in self.bad.items()]
        return [*not_taken, *self.faults]


@dataclass(frozen=True)
class ProposedFiles:
    """The spec of a pipeline and its test, as files.

    Args:
        folder: Folder of the spec.
        test_folder: Folder of the test.
        name: The pipeline's name.
    """

    folder: Path
    test_folder: Path
    name: str

    @property
    def _spec(self) -> Path:
        return self.folder / "defs.yaml"

    @property
    def _test(self) -> Path:
        return self.test_folder / f"test_{self.name}.py"

    def refuse_existing(self) -> None:
        """Refuse to write over a spec or its test.

        Raises:
            ConfigError: There is one.
        """
        for path in (self._spec, self._test):
            if path.exists():
                raise ConfigError.of(f"There is '{path}'.", next_step="Choose another name, or delete the file.")

    def write_spec(self, attributes: Mapping[str, Any], notes: Sequence[str], *, is_several: bool = False) -> None:
        """Write a `defs.yaml`: above each field its meaning and its guesses, the other notes at the top.

        Args:
            attributes: Fields and their values.
            notes: What a user has to look at; one about a column stands above the schema.
            is_several: It is a spec of several pipelines.
        """
        # Each note is written once: those about a field leave `left`, and what remains goes to the top.
        left = dict.fromkeys(notes)
        fields = []
        for name, value in attributes.items():
            about = _notes_about(name, left)
            left = {note: None for note in left if note not in about}
            comments = [COMMENTS[name], *(f"{LOOK_AT}{note}" for note in about)]
            fields += [f"  # {comment}\n" for comment in comments]
            fields.append(indent(_yaml(name, value), "  "))
        head = ["Proposed from a sample of its records.", *(f"{LOOK_AT}{note}" for note in left)]
        lines = [
            *(f"# {line}\n" for line in head),
            f"type: {SEVERAL if is_several else ONE}\n",
            "attributes:\n",
            *fields,
        ]
        _write(self._spec, "".join(lines))

    def write_test(self, sample: Sample, trial: Trial) -> None:
        """Write the sample, the rows that it becomes, and the test that compares them."""
        lines = b"".join(record.line + b"\n" for record in sample.records)
        rows = "".join(f"{row}\n" for row in trial.rows)
        _write(self.test_folder / "sample.jsonl", lines.decode())
        _write(self.test_folder / "rows.jsonl", rows)
        here = self.test_folder.resolve()
        spec = os.path.relpath(self.folder.resolve(), here)
        text = _TEST.format(name=self.name, spec=Path(spec).as_posix())
        _write(self._test, text)


def lines_of(pipelines: list[dict[str, Any]]) -> str:
    """Return pipelines as lines to add to a file of several."""
    _, _, lines = _yaml("pipelines", pipelines).partition("\n")
    return indent(lines, "  ")


def _notes_about(field: str, notes: Iterable[str]) -> list[str]:
    """Return the notes about a field; those about columns are about the schema."""
    about = []
    for note in notes:
        subject, is_named, _ = note.partition(": ")
        is_of_another = not is_named or subject == "NOT TAKEN" or subject.startswith(OF_A_TABLE)
        if not is_of_another and (subject if subject in COMMENTS else "schema") == field:
            about.append(note)
    return about


def _yaml(name: str, value: Any) -> str:
    """Write a field as a person would: what holds plain values alone is on one line."""
    is_plain = not isinstance(value, (Mapping, list))
    text: str = yaml.dump(
        {name: value},
        Dumper=_Dumper,
        default_flow_style=False if is_plain else None,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    )
    return text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full instead of as aliases."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
