"""Hostile names and values: each is refused when the spec is read, in our words, or works to the end."""

import json
import re

import pytest
import yaml
from click.testing import CliRunner
from inputs.hostile import TEXTS, quoted

from ebbtide import UpsertPipeline, load
from ebbtide.cli import main
from ebbtide.dagster.metadata import asset_specs
from ebbtide.errors import ConfigError
from ebbtide.redaction import has_unseen
from ebbtide.runtime import Plan
from ebbtide.testing import MemoryPipeline

FIELDS = {
    "name": "t",
    "source": {"path": "in", "records": "value"},
    "format": {"type": "plain"},
    "schema": "id BIGINT, v STRING",
    "key": ["id"],
    "order": "arrival",
}


def of_column(text):
    return {"schema": f"{quoted(text)} BIGINT, w STRING", "key": [text]}


def of_field_in_a_struct(text):
    return {"schema": f"id BIGINT, v STRUCT<{quoted(text)}: INT>"}


PLACES = {
    "column": of_column,
    "field in a struct": of_field_in_a_struct,
    "schema": lambda text: {"schema": text},
    "type": lambda text: {"schema": f"id BIGINT, v {text}"},
    "default": lambda text: {"schema": f"id BIGINT, v STRING DEFAULT {text}"},
    "key": lambda text: {"key": [text]},
    "name": lambda text: {"name": text},
    "group": lambda text: {"group": text},
    "owner": lambda text: {"owners": [text]},
    "path": lambda text: {"source": {"path": text, "records": "value"}},
    "pattern": lambda text: {"source": {"path": "in", "records": "value", "pattern": text}},
    "topic": lambda text: {"source": {"path": "in", "topic": text}},
    "table": lambda text: {"source": {"path": "in", "table": text}, "format": {"type": "debezium"}},
    "format": lambda text: {"format": {"type": text}},
    "field with the kind": lambda text: {"format": {"type": "plain", "kind": text}},
    "field with the row": lambda text: {"format": {"type": "plain", "row": text}},
    "position": lambda text: {"format": {"type": "plain", "position": [text]}},
    "sequence": lambda text: {"order": {"sequence": [text]}},
    "event time": lambda text: {"event_time": text},
    "ttl": lambda text: {"ttl": text},
    "property": lambda text: {"sink": {"table_properties": {text: "x"}}},
    "value of a property": lambda text: {"sink": {"table_properties": {"x": text}}},
    "cron": lambda text: {"schedules": {"stream": text}},
    "personal": lambda text: {"columns": {text: {"personal": True}}},
    "expectation": lambda text: {"checks": {"expectations": [{"type": text}]}},
    "unknown field": lambda text: {text: text},
}
"""Where a text can stand in a spec."""
CASES = [(place, text) for place in PLACES for text in TEXTS]
IN_OUR_WORDS = re.compile(r"got.*allowed|is not usable|cannot be read|no known type", re.IGNORECASE | re.DOTALL)
TAKEN_ANYWHERE = ("a.b", "ü", "😀", "e\u0301", "select", "'", "a\\b", "%s")
"""Names of columns that are not refused."""


def write_spec(folder, fields):
    document = {"type": "ebbtide.UpsertPipeline", "attributes": FIELDS | fields}
    folder.mkdir()
    with (folder / "defs.yaml").open("w", encoding="utf-8", errors="surrogatepass") as file:
        yaml.safe_dump(document, file, allow_unicode=False)
    return folder


def works(spec):
    """Run a spec over a row and what follows on it, as far as that goes without Spark."""
    assert asset_specs(spec)
    assert Plan.under(str(spec.source.path), spec).source
    spec = spec.model_copy(update={"source": spec.source.model_copy(update={"topic": None, "records": "value"})})
    if spec.format.type != "plain":
        return
    given = spec.format
    row = {name: number for number, name in enumerate(spec.table.columns.names)}
    texts = {f.name: str(row[f.name]) if str(f.type) == "string" else None for f in spec.table.columns}
    row |= {name: texts[name] for name in texts if name not in (*spec.key, *spec.sequence)}
    row |= {name: 1 for name in spec.key if str(spec.table.columns.field(name).type) == "int64"}
    line = dict.fromkeys(given.position, 1) | {given.kind: "+I"}
    line |= {given.row: row} if given.row else row
    pipeline = MemoryPipeline(spec)
    pipeline.step([json.dumps(line)])
    is_clear = len(line) == len({*given.position, given.kind, *([given.row] if given.row else row)})
    if is_clear and spec.key == [next(iter(row))]:
        assert len(pipeline.rows()) + len(pipeline.quarantine) == 1


def test_there_are_thousands_of_cases():
    assert len(set(TEXTS)) > 120
    assert len(CASES) > 3000


def texts_at(place):
    """Return every twelfth text, from another one on at each place, and one that is refused anywhere."""
    first = list(PLACES).index(place) % 12
    refused_anywhere = next(text for text in TEXTS if "\x00" in text)
    return [refused_anywhere, *TEXTS[first::12]]


@pytest.mark.grid
@pytest.mark.parametrize("place", PLACES)
def test_any_text_is_refused_in_our_words_or_works(tmp_path, place):
    refused_or_works(tmp_path, place, TEXTS)


@pytest.mark.parametrize("place", PLACES)
def test_text_is_refused_in_our_words_or_works(tmp_path, place):
    refused_or_works(tmp_path, place, texts_at(place))


def refused_or_works(tmp_path, place, texts):
    refused = []
    for number, text in enumerate(texts):
        folder = write_spec(tmp_path / str(number), PLACES[place](text))
        try:
            spec = load(folder)
        except ConfigError as error:
            refused.append(text)
            message = str(error)
            assert IN_OUR_WORDS.search(message), (text, message)
            assert not has_unseen(message), (text, message)
        else:
            works(spec)
    assert refused, "at least NUL is taken nowhere"
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {str(number) for number in range(len(texts))}


@pytest.mark.parametrize("name", TAKEN_ANYWHERE)
def test_column_of_any_seen_name_decodes_and_shows_its_row(name):
    pipeline = MemoryPipeline(UpsertPipeline(**FIELDS | of_column(name)))
    pipeline.step([json.dumps({"kind": "+I", "row": {name: 1, "w": "x"}})])
    assert pipeline.rows() == [{name: 1, "w": "x"}]


def test_values_of_any_text_are_keys_and_come_back_as_they_were():
    storable = [text for text in dict.fromkeys(TEXTS) if "\ud800" not in text]
    fields = FIELDS | {"schema": "id STRING, v STRING", "key": ["id"]}
    pipeline = MemoryPipeline(UpsertPipeline(**fields))
    pipeline.step([json.dumps({"kind": "+I", "row": {"id": text, "v": text}}) for text in TEXTS])
    assert sorted(row["id"] for row in pipeline.rows()) == sorted(storable)
    assert all(row["id"] == row["v"] for row in pipeline.rows())
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["wrong_type"]


@pytest.mark.parametrize("command", ["run", "status", "cleanup"])
def test_root_is_refused_in_our_words_or_taken(tmp_path, command, shell):
    shell.cd(tmp_path)
    spec = write_spec(tmp_path / "spec", {"source": {"path": "nowhere", "records": "value"}})
    for root in (
        "http://host/x",
        "file:/x",
        "C:\\x",
        "ftp://x",
        "s3://key:secret@bucket/x",
        "s3://b/../x",
        "",
        "a\x1bb",
    ):
        result = CliRunner().invoke(main, [command, str(spec), "--root", root])
        assert result.exit_code == 2, (root, result.output)
        assert "secret" not in result.output
        assert not has_unseen(result.output.replace("\n", ""))
    assert [path.name for path in tmp_path.iterdir()] == ["spec"]


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"a: [", b"[" * 5000, b"a: " + b"9" * 5000, b"2024-99-99", b"? [a]\n: b", b"\x00", b"a: &a [*a]", b"!!python/object:os.system x"],
    ids=range(9),
)  # fmt: skip
def test_file_that_is_no_spec_is_refused_in_our_words(tmp_path, content):
    (tmp_path / "defs.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot be read|no known type") as caught:
        load(tmp_path)
    assert not has_unseen(str(caught.value))
