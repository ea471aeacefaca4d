"""The mistakes of a newcomer: each is answered with the place, what was got, what is allowed and the next step, and starts no JVM."""

import copy
import json
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from local.local_pipeline import up

from ebbtide.cli import main
from ebbtide.ledger import Lease

SPEC = {
    "name": "orders",
    "source": {"path": "in", "records": "value"},
    "format": {"type": "plain", "row": None},
    "schema": "id BIGINT, v STRING, at TIMESTAMP",
    "key": ["id"],
    "order": {"sequence": ["at"]},
    "ttl": "30d",
}
RECORD = {"kind": "+I", "id": 1, "v": "a", "at": "2026-01-01T00:00:00Z"}
KAFKA = {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic": "t"}
REQUIRED = "Field required; docs/reference/spec.md describes it"


@dataclass(frozen=True)
class Mistake:
    """What a newcomer does, and all that the answer must say.

    Args:
        said: Parts of the answer: place, got, allowed, next step.
        arguments: What is typed.
        spec: Fields that the spec has instead; None for one that it lacks.
        file: Text of the file of the spec, in place of fields.
        code: Exit code.
    """

    said: tuple[str, ...]
    arguments: str = "status defs/orders"
    spec: dict | None = None
    file: str | None = None
    code: int = 2


def of_spec(*said, **fields):
    """Return a mistake in fields of a spec."""
    return Mistake(said, spec=fields)


def typed(arguments, *said, code=2):
    """Return a mistake in what is typed."""
    return Mistake(said, arguments=arguments, code=code)


MISTAKES = {
    # The spec's fields.
    "field misspelt": of_spec("line 17: kee: there is no such field", "did you mean 'key'?", "allowed: name, ", kee=["id"]),
    "field of a part misspelt": of_spec("source.pth: there is no such field", "did you mean 'path'?", "allowed: type, path, ", source={"path": "in", "pth": "in"}),
    "field that is none": of_spec("line 17: zzzz: there is no such field; allowed: name, description", zzzz=1),
    "field of checks misspelt": of_spec("line 18: checks.expectation: ", "did you mean 'expectations'?", checks={"expectation": []}),
    "no name": of_spec(f"name: {REQUIRED}", name=None),
    "no source": of_spec(f"source: {REQUIRED}", source=None),
    "no path": of_spec(f"source.path: {REQUIRED}", source={}),
    "no format": of_spec(f"format: {REQUIRED}", format=None),
    "no schema": of_spec(f"schema: {REQUIRED}", schema=None),
    "no key": of_spec(f"key: {REQUIRED}", key=None),
    "no order": of_spec(f"order: {REQUIRED}", order=None),
    "name with capitals": of_spec("line 3: name: got 'Orders'", "allowed: 1 to 63 lower-case letters", name="Orders"),
    "name that is a number": of_spec("line 3: name: got 7; allowed: text", name=7),
    "key that is no column": of_spec("key: got uid", "allowed: columns of the schema: id, v, at", key=["uid"]),
    "key that is text": of_spec("key: got 'id'; allowed: a list", key="id"),
    "key without a column": of_spec("key: got []; allowed: at least 1 item", key=[]),
    "key twice": of_spec("key: got id, id; allowed: each column once", key=["id", "id"]),
    "type that is none": of_spec("The schema is not column DDL", "Got: id BIGINTT", "Allowed: columns such as", schema="id BIGINTT"),
    "schema that is empty": of_spec("The schema has no columns", "Allowed: at least one", schema=""),
    "schema that is a list": of_spec("schema: got ['id BIGINT']; allowed: text", schema=["id BIGINT"]),
    "column twice": of_spec("names a column twice", "Got: id", schema="id BIGINT, id STRING"),
    "column that is reserved": of_spec("schema: got _sequence; allowed: names that Ebbtide does not reserve", schema="id BIGINT, at TIMESTAMP, _sequence STRING"),
    "sequence that is no column": of_spec("order.sequence: got ts", "allowed: columns with an exact type: id, v, at", order={"sequence": ["ts"]}),
    "sequence of a log that is none": of_spec("order.sequence: got _lsn", order={"sequence": ["_lsn"]}),
    "order that is a word": of_spec("order: got 'sequence'; allowed: 'arrival'", "allowed: fields", order="sequence"),
    "order that is a list": of_spec("order: got ['at']; allowed: 'arrival'", order=["at"]),
    "order of nothing": of_spec("order.sequence: got []; allowed: at least 1 item", order={"sequence": []}),
    "ttl without a unit": of_spec("ttl: got 30; allowed: a number with its unit", ttl=30),
    "ttl in words": of_spec("ttl: got '30 days'; allowed: a number with its unit", ttl="30 days"),
    "ttl below nothing": of_spec("ttl: got '-1d'", ttl="-1d"),
    "format that is none": of_spec("format: type: got avro; allowed: 'debezium', 'plain'", format={"type": "avro"}),
    "format that is a word": of_spec("format: got 'debezium'; allowed: fields with a type", format="debezium"),
    "source that is a word": of_spec("source: got 'in'; allowed: fields", source="in"),
    "source that is none": of_spec("source: type: got kafak; allowed: 'files', 'kafka'", source={**KAFKA, "type": "kafak"}),
    "topic that is missing": of_spec(f"source.topic: {REQUIRED}", source={"type": "kafka", "bootstrap_servers": "b:9092"}),
    "broker without a port": of_spec("source.bootstrap_servers: got b; allowed: HOST:PORT", source={**KAFKA, "bootstrap_servers": "b"}),
    "password in the spec": of_spec("source.properties: got sasl.password; allowed: credentials as ${NAME}", source={**KAFKA, "properties": {"sasl.password": "hunter2"}}),
    "source by http": of_spec("source.path is not a location", "Got: http://x/y", "Allowed: a local path, or a URI of", source={"path": "http://x/y"}),
    "source with a credential": of_spec("source.path has credentials in it", "Got: s3://***@b/x", "Allowed: a bare URI", "security.md", source={"path": "s3://key:hunter2@b/x"}),
    "records of no form": of_spec("source.records: got 'json'; allowed: 'kafka' or 'value'", source={"path": "in", "records": "json"}),
    "schedule in words": of_spec("schedules.stream: got 'every day'; allowed: five fields", schedules={"stream": "every day"}),
    "owner without a team": of_spec("owners: got bob; allowed: email addresses or team:NAME", owners=["bob"]),
    "engine that is none": of_spec("engine: got 'flink'; allowed: 'auto', 'spark' or 'local'", engine="flink"),
    "run that is none": of_spec("run: got 'always'; allowed: 'bounded' or 'continuous'", run="always"),
    "limit below nothing": of_spec("quarantine.max_rows_per_step: got -1; allowed: greater than or equal to 0", quarantine={"max_rows_per_step": -1}),
    "event time that is no column": of_spec("event_time: got when; allowed: DATE or TIMESTAMP columns: at", event_time="when"),
    "materializer by sequence": of_spec("materializer: got settings; allowed: only with order: arrival", materializer={"keep": "first"}),
    "write that is none": of_spec("sink.write: got 'upsert'; allowed: 'vectors' or 'rewrite'", sink={"write": "upsert"}),
    "column that is not there": of_spec("columns: got w; allowed: columns of the schema", columns={"w": {"personal": True}}),
    "mode that is none": of_spec("schema_evolution_mode: got 'add'; allowed: 'ignore', 'evolve'", schema_evolution_mode="add"),
    # The spec's file.
    "file that is no YAML": Mistake(("defs.yaml' cannot be read", "line 1", "Allowed: a defs.yaml"), file="a: ["),
    "file that is empty": Mistake(("has no known type. Got: none", "Allowed: ebbtide.dagster.UpsertPipeline", "Write it as 'type:'"), file=""),
    "type misspelt": Mistake(("no known type. Got: ebbtide.dagster.UpsertPipline", "Did you mean 'ebbtide.dagster.UpsertPipeline'?"), file="type: ebbtide.dagster.UpsertPipline\nattributes: {}\n"),
    "type of another tool": Mistake(("no known type. Got: dagster_dlt.Load", "Allowed: ebbtide.dagster.UpsertPipeline"), file="type: dagster_dlt.Load\nattributes: {}\n"),
    "fields without attributes": Mistake(("has no attributes", "Allowed: type: and attributes: at the top"), file="type: ebbtide.UpsertPipeline\nname: t\n"),
    "tabs": Mistake(("defs.yaml' cannot be read", "line 2"), file="type: x\n\tattributes: {}\n"),
    # What is typed: commands and options.
    "command misspelt": typed("rum defs/orders", "There is no command 'rum'", "Allowed: run, check, ", "Did you mean 'run'?"),
    "command that is none": typed("deploy", "There is no command 'deploy'", "Allowed: run, check, "),
    "command of a group misspelt": typed("backfill stat defs/orders", "There is no command 'stat'", "Allowed: drop, into, start", "Did you mean 'start'?"),
    "no spec": typed("run", "Missing argument 'SPEC...'", "Try 'ebbtide run --help'"),
    "option misspelt": typed("run --folow defs/orders", "No such option '--folow'", "--follow"),
    "value that is no number": typed("run defs/orders --rate fast", "'--rate'", "'fast' is not a valid integer"),
    "value below the least": typed("run defs/orders --rate 0", "'--rate'", "0 is not in the range x>=1"),
    "engine that is not there": typed("run defs/orders --engine flink", "'--engine'", "'flink' is not one of 'auto', 'spark', 'local'"),
    "no reason": typed("pause defs/orders", "Missing option '--reason'", "Try 'ebbtide pause --help'"),
    "no step": typed("rewind defs/orders", "Missing option '--to-step'"),
    "two actions": typed("migrate defs/orders --apply --undo", "Got --apply and --undo", "Allowed: one of them"),
    "quiet and verbose": typed("status defs/orders -q -v", "Got --quiet and --verbose", "Allowed: one of them"),
    "check that is none": typed("check defs/orders --only nonsense", "The pipeline has no such check", "Got: nonsense", "Allowed: next_run, ordering, complete, "),
    "time that is none": typed("state defs/orders --now yesterday", "'--now'", "'yesterday' does not match the formats"),
    # Places.
    "spec that is not there": typed("run defs/ordres", "There is no spec at 'defs/ordres'", "Allowed: a defs.yaml, the folder", "Did you mean 'defs/orders'?"),
    "name in place of a path": typed("run orders", "There is no spec at 'orders'", "Did you mean 'defs/orders'?"),
    "folder without a spec": typed("run in", "The folder 'in' holds no spec", "Allowed: a defs.yaml", "new' writes one"),
    "data in place of a spec": typed("run in/1.jsonl", "'in/1.jsonl' has no known type. Got: none", "Write it as 'type:'"),
    "one name twice": typed("status defs/orders defs/orders", "Two specs have one name", "Got: orders", "Allowed: a unique name for each"),
    "root that is none": typed("status defs/orders --root ftp://x/y", "--root is not a location", "Got: ftp://x/y", "Allowed: a local path, or a URI of"),
    "root that is empty": typed("status defs/orders --root ''", "--root is not a location", "Allowed: a path or a URI"),
    "root with a credential": typed("status defs/orders --root s3://key:hunter2@b/x", "--root has credentials in it", "Allowed: a bare URI"),
    "gateway that is not there": typed("sql --gateway http://127.0.0.1:1 -e 'SELECT 1'", "127.0.0.1:1", code=1),
    # Sources.
    "source that is not there": Mistake(("The source folder", "/nowhere' does not exist", "Create it, or correct source.path"), arguments="run defs/orders", spec={"source": {"path": "nowhere"}}, code=5),
    "source without a file that matches": Mistake(("No file in", "matches source.pattern (*.csv)", "what does not match: 1.jsonl"), arguments="run defs/orders", spec={"source": {"path": "in", "pattern": "*.csv"}}, code=3),
    # New.
    "new without a source": typed("new t", "Got neither --path nor --bootstrap-servers", "Allowed: one of them"),
    "new of two sources": typed("new t --path in --bootstrap-servers b:1 --topic t", "Got --path and --bootstrap-servers", "Allowed: one of them"),
    "new without a topic": typed("new t --bootstrap-servers b:1", "without --topic", "Allowed: both, or --topic-pattern"),
    "new of a file": typed("new t --path in/1.jsonl", "Got: the file 'in/1.jsonl'", "Allowed: a folder", "Name its folder: --path in."),
    "new of a folder that is not there": typed("new t --path nowhere", "There is no such folder", "Got: --path nowhere"),
    "new without a key": typed("new t --path in", "have no key", "Allowed: --key with some of id, v, at"),
    "new with a key that is none": typed("new t --path in --key uid", "Got: uid", "Allowed: id, v, at"),
    "new of a name in use": typed("new orders --path in --key id --defs defs", "There is 'defs/orders/defs.yaml'", "Choose another name"),
    "new of a name in use elsewhere": typed("new orders --path in --key id --defs defs/more", "The name 'orders' is in use", "defs/orders/defs.yaml'", "Choose another name"),
    "new of a name that is none": typed("new Or-ders --path in --key id", "name: got 'Or-ders'", "allowed: 1 to 63 lower-case letters"),
    "new of an unknown word": typed("new t --path words --key id", "Got: fields op, id", "Allowed: Debezium's events", "an operation in words", "format: {type: mapped}"),
    "new of flattened rows": typed("new t --path flat --key id", "Got: fields id, v", "set add.fields: op,lsn", "delete.tombstone.handling.mode: rewrite"),
    "new of no records": typed("new t --path text --key id", "No JSON records found", "Got: 1 line", "Allowed: a folder or topic with JSON records"),
}  # fmt: skip
SAMPLES = {
    "in/1.jsonl": RECORD,
    "words/1.jsonl": {"op": "sum", "id": 1},
    "flat/1.jsonl": {"id": 1, "v": "a"},
    "text/1.jsonl": "text",
}


class JvmStartedError(Exception):
    """Raised in place of a start of Spark."""


@pytest.fixture
def project(tmp_path, monkeypatch, shell):
    """A project with records of several forms; a start of a JVM fails."""

    def start(**_):
        raise JvmStartedError

    monkeypatch.setattr("ebbtide.sessions.build_session", start)
    shell.unset("EBBTIDE_ROOT")
    (tmp_path / "pyproject.toml").touch()
    for name, record in SAMPLES.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(json.dumps(record) + "\n")
    shell.cd(tmp_path)
    return tmp_path


def write_spec(mistake):
    folder = Path("defs/orders")
    folder.mkdir(parents=True)
    given = {**copy.deepcopy(SPEC), **(mistake.spec or {})}
    attributes = {name: value for name, value in given.items() if value is not None}
    document = {"type": "ebbtide.dagster.UpsertPipeline", "attributes": attributes}
    text = yaml.safe_dump(document, sort_keys=False) if mistake.file is None else mistake.file
    (folder / "defs.yaml").write_text(text)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_is_answered_with_place_got_allowed_and_next_step(case):
    mistake = MISTAKES[case]
    write_spec(mistake)
    before = sorted(str(path) for path in Path().rglob("*") if ".ebbtide" not in path.parts)
    shown = CliRunner().invoke(main, mistake.arguments, prog_name="ebbtide")
    answer = " ".join(shown.output.split())
    assert [part for part in mistake.said if part not in answer] == [], answer
    assert shown.exit_code == mistake.code, answer
    assert isinstance(shown.exception, SystemExit), "a traceback is shown"
    assert "Traceback" not in answer
    assert "hunter2" not in answer
    assert sorted(str(path) for path in Path().rglob("*") if ".ebbtide" not in path.parts) == before


def test_there_are_as_many_mistakes_as_newcomers_make():
    assert len(MISTAKES) >= 90
    assert all(mistake.said for mistake in MISTAKES.values())


def test_java_that_is_missing_is_told_with_the_way_to_get_it(project, monkeypatch, shell):
    monkeypatch.undo()
    shell.export(JAVA_HOME=project / "jdk")
    write_spec(Mistake(()))
    shown = CliRunner().invoke(main, "run defs/orders --engine spark", prog_name="ebbtide")
    assert shown.exit_code == 5
    for said in (
        "Java is missing",
        f"none at {project / 'jdk/bin/java'}",
        "Java 17 or newer",
        "apt install",
    ):
        assert said in shown.stderr


@dataclass(frozen=True)
class Trouble:
    """What has become of a pipeline's tables, and all that the answer to a run must say.

    Args:
        said: Parts of the answer.
        code: Exit code.
        gone: Folder of the pipeline that was deleted.
        arguments: What is typed, before the spec.
    """

    said: tuple[str, ...]
    code: int = 5
    gone: str = ""
    arguments: str = "run --engine local"


TROUBLES = {
    "state that was deleted": Trouble(("The state at", "ebbtide refresh"), gone="state"),
    "sink that was deleted": Trouble(("sink", "ebbtide repair"), gone="sink"),
    "ledger that was deleted": Trouble(("The ledger at", "ebbtide pause"), gone="ledger"),
    "rewind of a deleted state": Trouble(("The state at",), gone="state", arguments="rewind --to-step 1 --apply"),
    "rewind to a step that is not there": Trouble(
        ("cannot go back to step 9",), arguments="rewind --to-step 9 --apply"
    ),
    "swap without a backfill": Trouble(("backfill start",), arguments="backfill swap --apply"),
    "pipeline that is paused": Trouble(("is paused", "database moves", "ebbtide resume"), code=4),
    "two runs at once": Trouble(("'t' is being run by process",), code=1),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_trouble_with_tables_is_told_with_the_way_out(make, project, case):
    trouble = TROUBLES[case]
    made = make()
    made.read(up(1, 1))
    made.put(up(2, 2))
    given = made.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = project / "defs.yaml"
    spec.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))

    def call(arguments):
        return CliRunner().invoke(main, [*arguments.split(), str(spec), "--root", made.root], prog_name="ebbtide")

    if trouble.gone:
        shutil.rmtree(made.home / trouble.gone)
    if case == "pipeline that is paused":
        assert (
            CliRunner().invoke(main, ["pause", str(spec), "--root", made.root, "--reason", "database moves"]).exit_code
            == 0
        )
    held = Lease(made.plan.at("ledger"), "t", 3600) if case == "two runs at once" else nullcontext()
    with held:
        shown = call(trouble.arguments)
    answer = " ".join(shown.output.split())
    assert [part for part in trouble.said if part not in answer] == [], answer
    assert shown.exit_code == trouble.code, answer
    assert "Traceback" not in answer
