import json
import re
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from local.support import ROOT, plain, spec
from plans import operator_of
from pydantic import ValidationError

from ebbtide import UpsertPipeline
from ebbtide.definitions import refuse_shared_names
from ebbtide.errors import ConfigError
from ebbtide.operators import ArrivalOperator, SequenceOperator

SHIPPED = sorted((ROOT / "pipelines" / "defs" / "shop").glob("*/defs.yaml"))
EVENT_TTL = {"ttl": "1d", "time_characteristic": "EVENT_TIME"}
WIDE = "id BIGINT, n INT, f DOUBLE, s STRING, tags ARRAY<INT>, day DATE, at TIMESTAMP"

REFUSED = {
    "reserved name": (spec, {"schema": "id BIGINT, _Step INT"}, r"schema: got _Step; allowed: names that Ebbtide does not reserve"),
    "change feed name": (spec, {"schema": "id BIGINT, _change_type INT"}, "schema: got _change_type; allowed"),
    "default of another type": (spec, {"schema": "id BIGINT, n INT DEFAULT 'x'"}, "schema: got n DEFAULT x; allowed: defaults that fit"),
    "default out of range": (spec, {"schema": "id BIGINT, n TINYINT DEFAULT 128"}, "schema: got n DEFAULT 128; allowed"),
    "default to be rounded": (spec, {"schema": "id BIGINT, n DECIMAL(4,2) DEFAULT 1.005"}, "schema: got n DEFAULT 1.005; allowed"),
    "default null, not null": (spec, {"schema": "id BIGINT, n INT NOT NULL DEFAULT NULL"}, "schema: got n DEFAULT NULL; allowed"),
    "key default null": (spec, {"schema": "id BIGINT DEFAULT NULL"}, "schema: got id DEFAULT NULL; allowed"),
    "schema unreadable": (spec, {"schema": "id"}, r"[Gg]ot: id\. Allowed: "),
    "key unknown": (spec, {"key": ["uid"]}, "key: got uid; allowed: columns of the schema: id, n, f, s, tags, day, at"),
    "key in another case": (spec, {"key": ["ID"]}, "key: got ID; allowed: columns of the schema"),
    "key twice": (spec, {"key": ["id", "id"]}, "key: got id, id; allowed: each column once"),
    "key empty": (spec, {"key": []}, "at least 1 item"),
    "key inexact": (spec, {"key": ["id", "f"]}, "key: got f; allowed: columns with an exact type: no FLOAT"),
    "key nested": (spec, {"key": ["tags"]}, "key: got tags; allowed: columns with an exact type"),
    "unit of no timestamp": (spec, {"format": {"type": "debezium", "time_units": {"n": "ms"}}}, "format.time_units: got n; allowed: TIMESTAMP columns: at"),
    "unit unknown": (spec, {"format": {"type": "debezium", "time_units": {"at": "s"}}}, "'ms', 'us' or 'ns'"),
    "event time of another type": (spec, {"event_time": "n"}, "event_time: got n; allowed: DATE or TIMESTAMP columns: day, at"),
    "event time unknown": (spec, {"schema": "id BIGINT", "event_time": "at"}, "event_time: got at; allowed: DATE or TIMESTAMP columns: none in the schema"),
    "sequence inexact": (spec, {"order": {"sequence": ["n", "f"]}}, r"order.sequence: got f; allowed: columns with an exact type: id, n, s, day, at; or one of \[_lsn\] \[_ts_ms, _lsn\] \[_file, _pos, _row\]"),
    "sequence nested": (spec, {"order": {"sequence": ["tags"]}}, "order.sequence: got tags; allowed: columns with an exact type"),
    "sequence that plain has not": (plain, {"order": {"sequence": ["_lsn"]}}, "order.sequence: got _lsn; allowed: columns with an exact type: id, n, s, day, at$"),
    "sequence of half a position": (spec, {"order": {"sequence": ["_file", "_pos"]}}, "order.sequence: got _file, _pos; allowed: "),
    "sequence of a time alone": (spec, {"order": {"sequence": ["_ts_ms"]}}, "order.sequence: got _ts_ms; allowed: "),
    "sequence of position and column": (spec, {"order": {"sequence": ["n", "_lsn"]}}, "order.sequence: got _lsn; allowed: "),
    "sequence twice": (spec, {"order": {"sequence": ["n", "n"]}}, "order.sequence: got n, n; allowed: each column once"),
    "encoding of no integer": (spec, {"format": {"type": "debezium", "encodings": {"s": "bits"}}}, "format.encodings: got s; allowed: integer or DECIMAL columns: id, n"),
    "unsigned in too narrow a column": (spec, {"format": {"type": "debezium", "encodings": {"n": "unsigned"}}}, "format.encodings: got n; allowed: for unsigned, columns that hold 2\\^64 - 1: DECIMAL"),
    "owner without an address": (spec, {"owners": ["bob", "a@b.example"]}, "owners: got bob; allowed: email addresses or team:NAME"),
    "team without a name": (spec, {"owners": ["team:"]}, "owners: got team:; allowed"),
    "cron that is none": (spec, {"schedules": {"cleanup": "daily"}}, "got 'daily'; allowed: five fields"),
    "freshness below a minute": (spec, {"freshness": {"fail_window": "59s"}}, "fail_window: got 59s; allowed: 1m or more"),
    "warned after it failed": (spec, {"freshness": {"fail_window": "1h", "warn_window": "1h"}}, "warn_window: got 1h; allowed: 1m or more, below fail_window, 1h"),
    "order unknown": (spec, {"order": "chance"}, "'arrival'"),
    "live rows by arrival": (plain, {"ttl": {"ttl": "1d", "expire_live": True}}, "ttl.expire_live: got True; allowed: false with order: arrival"),
    "no event time to expire by": (plain, {"ttl": EVENT_TTL}, "event_time: got None; allowed: a DATE or TIMESTAMP column, .*: day, at"),
    "table of a plain source": (plain, {"source": {"path": "in", "records": "value", "table": "t"}}, "source.table: got t; allowed: none with format plain"),
    "topic of bare values": (spec, {"source": {"path": "in", "records": "value", "topic": "t"}}, "source.topic: got t; allowed: none with records: value"),
    "positions of three": (plain, {"format": {"type": "plain", "position": ["a", "b", "c"]}}, "at most 2 items"),
    "format unknown": (spec, {"format": {"type": "avro"}}, "'debezium', 'plain'"),
    "field unknown": (spec, {"tll": "1d"}, "there is no such field; did you mean 'ttl'"),
    "source field unknown": (spec, {"source": {"path": "in", "pth": "in"}}, "did you mean 'path'. allowed: type, path"),
    "no files in a step": (spec, {"source": {"path": "in", "max_files_per_step": 0}}, "greater than"),
    "ttl bare": (spec, {"ttl": 30}, "got 30; allowed: a number with its unit"),
    "ttl zero": (spec, {"ttl": "0s"}, "greater than"),
    "lease zero": (spec, {"lease_ttl": "0s"}, "greater than"),
    "clock jump below 0": (spec, {"max_clock_jump": "-P1D"}, "greater than"),
    "ttl below a millisecond": (spec, {"ttl": "PT0.0005S"}, "got 0:00:00.000500; allowed: greater than or equal to 1ms"),
    "ttl too long": (spec, {"ttl": "1000000000d"}, "got '1000000000d'; allowed: up to 999999999d"),
    "delay below 0": (spec, {"allowed_delay": "-P1D"}, "got -1 day, 0:00:00; allowed: greater than or equal to 0ms"),
    "ahead below 0": (spec, {"quarantine": {"max_event_time_ahead": "-P1D"}}, "got -1 day, 0:00:00; allowed: greater than or equal to 0ms"),
    "expired rows emitted and kept": (plain, {"ttl": "1d", "materializer": {"on_expire": "emit"}}, "materializer.on_expire: got emit; allowed: keep or delete: an expired row that the sink shows is emitted as its -D by delete"),
    "strategy of a materializer": (plain, {"materializer": {"strategy": "adaptive"}}, "materializer: got strategy; allowed: none of these: a step decides in columns, whose rows are those of every strategy"),
    "thresholds of a materializer": (plain, {"materializer": {"keep": "first", "thresholds": {"high": 9}}}, "materializer: got thresholds; allowed: none of these"),
    "quarantine below 0": (spec, {"quarantine": {"max_rows_per_step": -1}}, "greater than or equal to 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.demand("sum-option")
def test_spec_that_does_not_fit_together_is_refused(case):
    make, fields, message = REFUSED[case]
    with pytest.raises(ValidationError) as caught:
        make(**{"schema": WIDE} | fields)
    assert any(re.search(message, error["msg"]) for error in caught.value.errors()), caught.value


@pytest.mark.parametrize("name", ["", "Orders", "1st", "a-b", "a.b", "a/b", "a" * 64])
def test_name_that_is_no_name_is_refused(name):
    with pytest.raises(ValidationError, match="name"):
        UpsertPipeline(**spec().model_dump(by_alias=True) | {"name": name})


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.parent.name)
def test_shipped_spec_loads_from_file_and_folder(path):
    loaded = UpsertPipeline.load(path)
    assert loaded == UpsertPipeline.load(path.parent)
    assert loaded.name == path.parent.name
    assert Path(loaded.source.path).is_relative_to(ROOT / "data" / "shop")
    assert Path(loaded.source.path).is_dir()


def project(folder, path):
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    fields = spec().model_dump(by_alias=True, include={"name", "schema_", "key", "format", "order"})
    attributes = fields | {"source": {"path": path}}
    (folder / "defs.yaml").write_text(json.dumps({"attributes": attributes}), encoding="utf-8")
    return UpsertPipeline.load(folder)


def test_source_path_moves_with_its_project_where_it_is_relative(tmp_path):
    before, after = project(tmp_path / "a", "data/../in/"), project(tmp_path / "b", "in")
    assert before.source.path != after.source.path
    assert before.source_path == after.source_path == "in"
    assert project(tmp_path / "c", "/srv/in").source_path == "/srv/in"
    assert project(tmp_path / "d", "s3://bucket//in").source_path == "s3://bucket//in"
    moved = after.model_copy(update={"source": after.source.model_copy(update={"path": "/srv/in"})})
    assert moved.source_path == "/srv/in"


def test_every_shipped_spec_is_found():
    assert len(SHIPPED) == 5


@pytest.mark.parametrize(
    ("ttl", "quarantine", "ahead"),
    [
        (EVENT_TTL, {}, timedelta(days=1)),
        (EVENT_TTL, {"max_rows_per_step": 5}, timedelta(days=1)),
        (EVENT_TTL, {"max_event_time_ahead": "2h"}, timedelta(hours=2)),
        (EVENT_TTL, {"max_ahead": "2h"}, timedelta(hours=2)),
        (EVENT_TTL, {"max_event_time_ahead": None}, None),
        ("30d", {}, None),
        ("30d", {"max_event_time_ahead": "2h"}, timedelta(hours=2)),
    ],
)
def test_event_time_may_be_a_day_ahead_where_state_expires_by_it(ttl, quarantine, ahead):
    given = spec(WIDE, ttl=ttl, event_time="at", quarantine=quarantine)
    for each in (given, UpsertPipeline.model_validate(given.model_dump(mode="json", by_alias=True))):
        assert each.max_event_time_ahead == ahead
        assert (each.decoding.max_ahead_ms is None) == (ahead is None)


@pytest.mark.parametrize("mode", ["python", "json"])
@pytest.mark.parametrize(
    "given",
    [
        *map(UpsertPipeline.load, SHIPPED),
        spec(WIDE, ttl=EVENT_TTL, event_time="at", quarantine={"max_event_time_ahead": "90s"}),
    ],
    ids=lambda given: given.name,
)
def test_spec_that_was_dumped_is_the_same_again(given, mode):
    again = UpsertPipeline.model_validate(given.model_dump(mode=mode, by_alias=True))
    assert again == given
    assert again.identity == given.identity


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("a: [", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        ("", "has no attributes"),
        ("- a", "has no attributes"),
        ("attributes: 7", "has no attributes"),
        ("attributes: {name: t}", "not usable.*source: Field required.*key: Field required"),
        ("attributes: {name: T, source: {path: in}}", "name: .*got 'T'"),
        (
            "attributes: {name: t, source: {path: in, topik: x}}",
            r"line 1: source\.topik: there is no such field; did you mean 'topic'. allowed: ",
        ),
        ("attributes: {name: t, ttl: 30, schema: id INT}", "ttl: got 30; allowed: a number with its unit"),
        (
            "attributes: {name: t, source: {path: in}, format: {type: debezium}, schema: id INT, key: [uid], order: arrival}",
            "key: got uid; allowed: columns of the schema: id",
        ),
    ],
)
def test_load_of_an_unusable_file_names_file_and_field(tmp_path, content, message):
    path = tmp_path / "defs.yaml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message) as caught:
        UpsertPipeline.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("project", "path", "want"),
    [
        ("", "in", "{root}/in"),
        ("a", "in", "{root}/a/in"),
        ("a", "../in", "{root}/in"),
        ("a", "/data/in", "/data/in"),
        ("a", "s3://bucket/in", "s3://bucket/in"),
        (None, "in", "{root}/a/b/in"),
    ],
)
def test_load_resolves_a_path_against_the_project(tmp_path, shell, project, path, want):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    shell.cd(ROOT)
    if project is not None:
        (tmp_path / project / "pyproject.toml").touch()
    fields = f"{{name: t, source: {{path: '{path}'}}, format: {{type: debezium}}, schema: id INT, key: [id], order: arrival}}"
    (folder / "defs.yaml").write_text(f"type: t\nattributes: {fields}")
    assert UpsertPipeline.load(folder).source.path == want.format(root=tmp_path)


@pytest.mark.parametrize(
    ("make", "fields", "sequence", "operator", "positions", "event_time"),
    [
        (spec, {}, ("_lsn",), SequenceOperator, True, False),
        (spec, {"ttl": EVENT_TTL}, ("_lsn",), SequenceOperator, True, True),
        (spec, {"order": "arrival", "ttl": "1d"}, (), ArrivalOperator, True, False),
        (plain, {}, (), ArrivalOperator, False, False),
        (plain, {"format": {"type": "plain", "position": ["p"]}}, (), ArrivalOperator, True, False),
        (plain, {"order": {"sequence": ["n"]}}, ("n",), SequenceOperator, False, False),
    ],
)
def test_spec_tells_what_follows_from_it(make, fields, sequence, operator, positions, event_time):
    given = make(**fields)
    assert (given.sequence, given.has_positions, given.needs_event_time) == (sequence, positions, event_time)
    assert type(operator_of(given)) is operator


def test_key_column_is_never_nullable():
    table = spec("id BIGINT, line INT, n INT", ["id", "line"]).table
    assert [f.nullable for f in table.columns] == [False, False, True]


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"description": "x"}, True),
        ({"quarantine": {"max_event_time_ahead": "1d"}}, True),
        ({"schema": "id BIGINT, n INT COMMENT 'x'"}, True),
        ({"schema": "id BIGINT, n BIGINT"}, False),
        ({"schema": "n INT, id BIGINT"}, False),
        ({"key": ["id", "n"]}, False),
        ({"order": "arrival"}, False),
        ({"ttl": "1d"}, False),
        ({"source": {"path": "elsewhere", "max_files_per_step": 7}}, True),
        ({"source": {"path": "in", "topic": "other"}}, False),
        ({"source": {"path": "in", "table": "other"}}, False),
        ({"source": {"path": "in", "records": "value"}}, False),
        ({"format": {"type": "debezium", "time_units": {}}}, True),
        ({"format": {"type": "plain"}, "order": {"sequence": ["n"]}}, False),
    ],
)
def test_identity_changes_exactly_with_what_state_depends_on(fields, same):
    assert (spec(**fields).identity == spec().identity) is same


@pytest.mark.parametrize(
    ("materializer", "same"),
    [
        ({"keep": "first"}, False),
        ({"upsert_key": ["n"]}, False),
        ({"emission": "every"}, False),
        ({"max_history": 3}, True),
        ({"retraction_grace": "1h"}, True),
    ],
)
def test_identity_changes_with_how_histories_are_stored(materializer, same):
    assert (plain(materializer=materializer).identity == plain().identity) is same


def test_source_pattern_is_one_or_several_and_never_empty():
    assert plain(source={"path": "in", "pattern": "*.log"}).source.pattern == ["*.log"]
    assert plain(source={"path": "in", "pattern": ["a", "b/*"]}).source.pattern == ["a", "b/*"]
    for pattern in ("", [], ["*.json", "/"]):
        with pytest.raises(ValueError, match="pattern"):
            plain(source={"path": "in", "pattern": pattern})


@pytest.mark.parametrize(
    "owner", ["bob", "@x.example", "a@b", "team:x", "a.b+c@shop.example", "%a@b.example", "a@b.technology"]
)
def test_owner_is_taken_exactly_if_dagster_takes_it(owner):
    def is_taken(make):
        try:
            make()
        except (ValidationError, dg.DagsterInvalidDefinitionError):
            return False
        return True

    assert is_taken(lambda: spec(owners=[owner])) == is_taken(lambda: dg.AssetSpec("a", owners=[owner]))


def test_pipelines_of_one_name_are_refused_with_both_places():
    refuse_shared_names([("orders", "x/a"), ("items", "x/b")])
    with pytest.raises(ConfigError, match=r"Two specs have one name: 'x/a' and 'x/b/c'. Got: orders"):
        refuse_shared_names([("orders", "x/a"), ("orders", "x/b/c")])
