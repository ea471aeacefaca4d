"""Migration of columns on disk, without Spark: state, sink and changelog move together."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crashes.disk import DiskPipeline
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from local.quarantine_support import by_seq, context_of, root_of
from local.support import change, envelope, plain, record, spec
from operating import act

from ebbtide.delta import Definition, Log, Snapshot
from ebbtide.errors import ConfigError, MigrationError, SpecChangedError
from ebbtide.ledger import writer_of
from ebbtide.operations import maintain

FIRST = [change("+I", id=1, n=1, seq=1), change("+I", id=2, n=2, seq=2)]


def migrated(disk, to):
    """Apply a migration, and go on from there."""
    report = act("migrate", "apply", context_of(disk, to))
    return report, on(disk, to)


def planned(disk, to):
    return act("migrate", "plan", context_of(disk, to))


def on(disk, to):
    """The same tables under another spec."""
    moved = DiskPipeline.__new__(DiskPipeline)
    moved.__dict__ |= disk.__dict__
    moved.spec = to
    moved.plan = type(disk.plan).under(root_of(disk), to)
    moved.reload()
    return moved


def operation(location, n=-1):
    version = Log(location).versions()[n]
    return [action["commitInfo"]["operation"] for action in Log(location).commit(version) if "commitInfo" in action]


def kinds_of_changes(location):
    """Whether the newest commit says of each of its files that rows change."""
    actions = Log(location).commit(Log(location).versions()[-1])
    files = [action.get("add") or action.get("remove") for action in actions]
    return [file["dataChange"] for file in files if file]


def test_column_is_added_without_writing_a_file(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    files = Snapshot.read(disk.plan.sink.path).files.keys()
    wider = by_seq("id BIGINT NOT NULL, n INT, seq INT, note STRING DEFAULT NULL")
    plan = planned(disk, wider)
    assert plan["changes"] == ["column note: added, null in existing rows"]
    assert (plan["rewritten"], plan.step) == (0, None)
    report, disk = migrated(disk, wider)
    assert report.step == 2
    assert Snapshot.read(disk.plan.sink.path).files.keys() == files
    assert disk.rows()[0] == {"id": 1, "n": 1, "seq": 1, "note": None}
    disk.step([change("+U", id=1, n=9, seq=5, note="x"), change("-D", id=2, n=2, seq=6)])
    assert disk.rows() == [{"id": 1, "n": 9, "seq": 5, "note": "x"}]
    assert planned(disk, wider)["changes"] == []


def test_added_column_has_its_default_in_rows_of_before_and_of_records_without_it(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([*FIRST, change("+I", id=3, n=3, seq=3), change("-D", id=3, n=3, seq=4)])
    wider = by_seq(
        "id BIGINT NOT NULL, n INT, seq INT, price DECIMAL(6,2) NOT NULL DEFAULT 1.5, since DATE DEFAULT '2026-01-31'"
    )
    report, disk = migrated(disk, wider)
    assert (report["rewritten"], ", 2 rows of sink and changelog rewritten.\n" in report.text()) == (2, True)
    assert report["changes"][0] == "column price: added, '1.50' in existing rows"
    disk.step([change("+I", id=4, n=4, seq=9)])
    assert {(str(row["price"]), str(row["since"])) for row in disk.rows()} == {("1.50", "2026-01-31")}
    assert [row["id"] for row in disk.rows()] == [1, 2, 4]
    with pytest.raises(MigrationError) as raised:
        planned(disk, by_seq("id BIGINT NOT NULL, n INT, seq INT, must INT NOT NULL"))
    assert str(raised.value) == (
        "Column 'must' of 't' cannot be added. Got: NOT NULL without a DEFAULT. Allowed: a column that may be null, or a DEFAULT for existing rows. Give it a DEFAULT, or run 'ebbtide refresh' to rebuild the sink from the source."
    )


def test_column_is_renamed_and_read_under_both_names(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    renamed = by_seq("id BIGINT NOT NULL, amount INT, seq INT", columns={"amount": {"renamed_from": "n"}})
    with pytest.raises(SpecChangedError, match="run 'ebbtide migrate' to see what it would do"):
        maintain(disk, renamed, root_of(disk), "compaction")
    report, disk = migrated(disk, renamed)
    assert (report["changes"], report["rewritten"]) == (["column n: renamed to amount"], 2)
    assert disk.rows() == [{"id": 1, "amount": 1, "seq": 1}, {"id": 2, "amount": 2, "seq": 2}]
    assert set(kinds_of_changes(disk.plan.sink.path)) == {False}, "the change feed shows no row again"
    assert operation(disk.plan.sink.path) == ["CHANGE COLUMNS"]
    disk.step([change("+U", id=1, n=7, seq=5), change("+U", id=2, amount=8, seq=6)])
    assert [row["amount"] for row in disk.rows()] == [7, 8]
    assert planned(disk, renamed)["changes"] == []


def test_types_are_widened_in_key_sequence_and_values(tmp_path):
    disk = DiskPipeline(
        by_seq("id INT NOT NULL, n DECIMAL(4,1), seq INT, f FLOAT, d DATE, at DATE", order={"sequence": ["seq", "at"]}),
        tmp_path,
    )
    row = {"n": "1.5", "f": 0.5, "d": "2026-01-31", "at": "2026-02-01"}
    disk.step([change("+I", id=1, seq=1, **row), change("+I", id=2, seq=1, **row)])
    wide = by_seq(
        "id BIGINT NOT NULL, n DECIMAL(8,3), seq DECIMAL(20,0), f DOUBLE, d TIMESTAMP_NTZ, at TIMESTAMP_NTZ",
        order={"sequence": ["seq", "at"]},
    )
    report, disk = migrated(disk, wide)
    assert report["changes"][0] == "column id: INT -> BIGINT"
    assert len(report["changes"]) == 6
    late = {"n": "9.125", "f": 9.5, "d": "2026-03-01T12:00:00", "at": "2026-02-01T00:00:00"}
    disk.step([change("+U", id=1, seq=2**40, **late), change("+U", id=2, seq=0, **late)])
    first, second = disk.rows()
    assert (str(first["n"]), str(first["d"])) == ("9.125", "2026-03-01 12:00:00")
    assert (str(second["n"]), str(second["d"])) == ("1.500", "2026-01-31 00:00:00"), "an older change stays dead"
    assert disk.metrics["superseded"] == 1


@pytest.mark.parametrize("scale", [0, 2])
@pytest.mark.parametrize(("bits", "type_"), [(8, "TINYINT"), (16, "SMALLINT"), (32, "INT"), (64, "BIGINT")])
def test_least_decimal_that_has_all_integers_of_a_type_is_taken_and_one_less_is_refused(tmp_path, bits, type_, scale):
    ends = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    digits = len(str(ends[1])) + scale
    disk = DiskPipeline(by_seq(f"id BIGINT NOT NULL, n {type_}, seq INT"), tmp_path)
    disk.step([change("+I", id=id_, n=end, seq=1) for id_, end in enumerate(ends)])
    with pytest.raises(MigrationError, match="all values of the old one"):
        planned(disk, by_seq(f"id BIGINT NOT NULL, n DECIMAL({digits - 1},{scale}), seq INT"))
    _, disk = migrated(disk, by_seq(f"id BIGINT NOT NULL, n DECIMAL({digits},{scale}), seq INT"))
    assert [row["n"] for row in disk.rows()] == ends


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id BIGINT NOT NULL, n SMALLINT, seq INT", "INT -> SMALLINT"),
        ("id BIGINT NOT NULL, n STRING, seq INT", "INT -> STRING"),
        ("id BIGINT NOT NULL, n DECIMAL(10,1), seq INT", "INT -> DECIMAL(10,1)"),
    ],
)
def test_narrower_and_other_types_are_refused_with_the_way_out(tmp_path, schema, why):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    with pytest.raises(MigrationError) as raised:
        migrated(disk, by_seq(schema))
    assert str(raised.value) == (
        f"Column 'n' of 't' cannot be migrated. Got: {why}. Allowed: a type with all values of the old one: wider integers;"
        " a DECIMAL with no fewer digits before and after the point (BIGINT needs 19 before it, INT 10, SMALLINT 5, TINYINT 3);"
        " up to INT to DOUBLE; FLOAT to DOUBLE (by sequence); DATE to TIMESTAMP_NTZ; more fields in structs. Give the new type to a column of another name, or run 'ebbtide refresh' to"
        " rebuild the sink from the source."
    )
    assert disk.plan.state.last()[1].step == 1, "nothing was changed"


def test_column_is_dropped_from_all_files(tmp_path):
    disk = DiskPipeline(by_seq("id BIGINT NOT NULL, n INT, phone STRING, seq INT"), tmp_path)
    disk.step([change("+I", id=1, n=1, phone="s", seq=1)])
    report, disk = migrated(disk, by_seq())
    assert report["changes"] == ["column phone: dropped, with its values"]
    for name in ("sink", "state"):
        snapshot = Snapshot.read(disk.plan.at(name))
        for file in snapshot.files.values():
            assert "phone" not in pq.read_schema(file.location(snapshot.table)).names
        assert "phone" not in snapshot.metadata["schemaString"]
    disk.step([change("+U", id=1, n=2, phone="t", seq=2)])
    assert disk.rows() == [{"id": 1, "n": 2, "seq": 2}]


def test_key_and_order_columns_keep_their_names(tmp_path):
    with pytest.raises(ConfigError, match="none for columns of the key or the order"):
        config(by_seq, "id BIGINT NOT NULL, n INT, seq INT", columns={"id": {"renamed_from": "old"}})
    with pytest.raises(ConfigError, match="names that no column has now"):
        config(by_seq, columns={"n": {"renamed_from": "seq"}})
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    other_key = by_seq("key BIGINT NOT NULL, n INT, seq INT", key=["key"])
    with pytest.raises(
        MigrationError, match=r"key: \['id'\] -> \['key'\].*Allowed: a change of columns, transform, ttl"
    ):
        migrated(disk, other_key)


def config(make, *args, **fields):
    """Make a spec; what pydantic raises as an error of ours."""
    try:
        return make(*args, **fields)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def test_histories_by_arrival_move_with_their_columns(tmp_path):
    before = plain("id BIGINT NOT NULL, n INT, v STRING")
    disk = DiskPipeline(before, tmp_path)
    disk.step([change("+I", id=1, n=1, v="a"), change("+I", id=1, n=2, v="b")])
    after = plain(
        "id BIGINT NOT NULL, v STRING, amount BIGINT, more STRING DEFAULT '-'",
        columns={"amount": {"renamed_from": "n"}},
    )
    report, disk = migrated(disk, after)
    assert report["changes"] == [
        "column n: renamed to amount",
        "column amount: INT -> BIGINT",
        "column more: added, '-' in existing rows",
    ]
    disk.step([change("-D", id=1, n=2, v="b")])
    assert disk.rows() == [{"id": 1, "v": "a", "amount": 1, "more": "-"}], "a retraction finds its row by its content"
    disk.step([change("-D", id=1, amount=1, v="a", more="-")])
    assert disk.rows() == []
    floats = DiskPipeline(plain("id BIGINT NOT NULL, f FLOAT"), tmp_path / "floats")
    floats.step([change("+I", id=1, f=0.1)])
    with pytest.raises(MigrationError, match=r"cannot be migrated.*FLOAT -> DOUBLE"):
        migrated(floats, plain("id BIGINT NOT NULL, f DOUBLE"))


UNSENT = "__debezium_unavailable_value"


def test_row_that_waits_for_a_value_waits_for_it_under_its_new_name(tmp_path):
    before = by_seq("id BIGINT NOT NULL, body STRING, gone STRING, n INT, seq INT")
    disk = DiskPipeline(before, tmp_path)
    disk.step([change("+U", id=1, body=UNSENT, gone=UNSENT, n=5, seq=5)])
    after = by_seq("id BIGINT NOT NULL, text STRING, n INT, seq INT", columns={"text": {"renamed_from": "body"}})
    _, disk = migrated(disk, after)
    disk.step([change("+I", id=1, text="first", n=1, seq=1)])
    assert disk.rows() == [{"id": 1, "text": "first", "n": 5, "seq": 5}]


@pytest.mark.parametrize(
    ("schema", "more", "row"),
    [
        ("id BIGINT NOT NULL, n INT, seq INT, note STRING DEFAULT NULL", {}, {"note": None}),
        ("id BIGINT NOT NULL, n INT, seq INT, note STRING DEFAULT 'x'", {}, {"note": "x"}),
        ("id BIGINT NOT NULL, n BIGINT, seq BIGINT", {}, {}),
        ("id BIGINT NOT NULL, amount INT, seq INT", {"columns": {"amount": {"renamed_from": "n"}}}, {}),
    ],
    ids=["added", "added with a default", "widened", "renamed"],
)
@pytest.mark.parametrize("shown", [1, 2])
def test_row_that_lost_a_tie_moves_with_its_columns(tmp_path, schema, more, row, shown):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([change("+U", id=1, n=n, seq=1) for n in (1, 2)])
    _, disk = migrated(disk, by_seq(schema, **more))
    disk.step([change("-U", id=1, n=3 - shown, seq=1)])
    name = "amount" if more else "n"
    assert disk.rows() == [{"id": 1, name: shown, "seq": 1} | row]


def test_crash_between_decision_and_sink_is_finished_by_whoever_comes_next(tmp_path, monkeypatch):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    renamed = by_seq("id BIGINT NOT NULL, amount INT, seq INT", columns={"amount": {"renamed_from": "n"}})
    with monkeypatch.context() as patch:
        patch.setattr(type(disk.plan.sink), "alter", cut_off)
        with pytest.raises(InterruptedError):
            migrated(disk, renamed)
    assert "amount" not in Snapshot.read(disk.plan.sink.path).metadata["schemaString"]
    third = by_seq("id BIGINT NOT NULL, total BIGINT, seq INT", columns={"total": {"renamed_from": "amount"}})
    report, disk = migrated(disk, third)
    assert report.step == 3
    assert disk.rows() == [{"id": 1, "total": 1, "seq": 1}, {"id": 2, "total": 2, "seq": 2}]


def cut_off(*args, **options):
    raise InterruptedError("killed")


def test_open_step_is_finished_under_the_columns_it_was_decided_with(tmp_path, monkeypatch):
    disk = DiskPipeline(by_seq(), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(disk.plan.sink), "apply", cut_off)
        with pytest.raises(InterruptedError):
            disk.step(FIRST)
    disk.reload()
    wider = by_seq("id BIGINT NOT NULL, n INT, seq INT, note STRING DEFAULT 'x'")
    _, disk = migrated(disk, wider)
    assert [row["note"] for row in disk.rows()] == ["x", "x"]


def test_sink_with_columns_of_others_is_refused_before_anything_changes(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    sink = Snapshot.read(disk.plan.sink.path)
    columns = pa.schema([*disk.plan.sink.stored_schema, pa.field("theirs", pa.string())])
    writer_of(sink.table).commit(sink, Definition(columns).altering(sink), {"operation": "ADD COLUMNS"})
    with pytest.raises(MigrationError, match=r"has other columns than the pipeline has given it.*theirs"):
        migrated(disk, by_seq("id BIGINT NOT NULL, n BIGINT, seq INT"))
    assert disk.plan.state.last()[1].step == 1


def test_columns_and_ttl_migrate_in_one_step(tmp_path):
    disk = DiskPipeline(by_seq(ttl="1d"), tmp_path)
    disk.step([*FIRST, change("-D", id=2, n=2, seq=3)], now_ms=5)
    to = by_seq("id BIGINT NOT NULL, amount BIGINT, seq INT", columns={"amount": {"renamed_from": "n"}})
    report, disk = migrated(disk, to)
    assert report["unstamped"] == 2
    assert len(report["changes"]) == 3
    disk.step([change("+I", id=2, amount=3, seq=1)])
    assert disk.rows() == [{"id": 1, "amount": 1, "seq": 1}], "the tombstone is still there"


def finish(disk):
    """Have the next job write what the last step emitted."""
    maintain(disk, disk.spec, root_of(disk), "cleanup")
    disk.reload()


def test_changelog_moves_with_the_sink(tmp_path):
    every = {"materializer": {"emission": "every"}}
    disk = DiskPipeline(plain("id BIGINT NOT NULL, n INT, gone STRING", **every), tmp_path)
    disk.step([change("+I", id=1, n=1, gone="x"), change("-D", id=1, n=1, gone="x"), change("+I", id=1, n=2, gone="y")])
    finish(disk)
    to = plain(
        "id BIGINT NOT NULL, amount BIGINT, more INT DEFAULT 7", **every, columns={"amount": {"renamed_from": "n"}}
    )
    report, disk = migrated(disk, to)
    assert report["rewritten"] == 4
    emitted = Snapshot.read(disk.plan.changelog.path).rows(disk.plan.changelog.schema).to_pylist()
    assert [(row["_kind"], row["amount"], row["more"]) for row in emitted] == [("+I", 1, 7), ("-D", 1, 7), ("+I", 2, 7)]
    disk.step([change("-D", id=1, amount=2, more=7)])
    finish(disk)
    after = Snapshot.read(disk.plan.changelog.path).rows(disk.plan.changelog.schema)
    assert after["_kind"].to_pylist()[-1] == "-D"


def test_unit_of_an_added_time_does_not_make_it_another_format(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    schema = "id BIGINT NOT NULL, n INT, seq INT, at TIMESTAMP DEFAULT 1000"
    with_time = by_seq(schema, format={"type": "plain", "time_units": {"at": "ms"}})
    _, disk = migrated(disk, with_time)
    assert str(disk.rows()[0]["at"]) == "1970-01-01 00:00:01+00:00"
    with pytest.raises(MigrationError, match="format: "):
        migrated(disk, by_seq(schema + ", x INT DEFAULT NULL", format={"type": "plain", "time_units": {"at": "us"}}))


def test_number_as_default_of_an_added_time_is_of_microseconds_unless_the_format_says_so(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    _, disk = migrated(disk, by_seq("id BIGINT NOT NULL, n INT, seq INT, at TIMESTAMP DEFAULT 1000000"))
    assert {str(row["at"]) for row in disk.rows()} == {"1970-01-01 00:00:01+00:00"}


def test_columns_in_another_order_need_no_file(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(FIRST)
    report, disk = migrated(disk, by_seq("seq INT, n INT, id BIGINT NOT NULL"))
    assert (report["changes"], report["rewritten"]) == (["columns: in another order"], 0)
    disk.step([change("+U", id=1, n=9, seq=9)])
    assert [row["n"] for row in disk.rows()] == [9, 2]


BEFORE = "id INT NOT NULL, body STRING, n INT, gone STRING"
AFTER = "id BIGINT NOT NULL, text STRING, n BIGINT, level INT DEFAULT 3"
RENAMED = {"text": {"renamed_from": "body"}}
CELL = st.sampled_from(["a", "b", UNSENT])
ROW = st.fixed_dictionaries({"id": st.integers(1, 3), "body": CELL, "n": st.integers(0, 2), "gone": CELL})
EVENT = st.tuples(st.sampled_from("cuud"), ROW, st.integers(1, 3), st.integers(1, 12))


def event(op, row, old_id, lsn):
    """A change of a row; of an update its key may have been another."""
    before = {"id": old_id} if op == "u" else row
    after = None if op == "d" else row
    return record(envelope(op, lsn, before=None if op == "c" else before, after=after), lsn)


@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(events=st.lists(EVENT, min_size=2, max_size=12, unique_by=lambda event: event[3]), at=st.integers(1, 11))
def test_what_is_migrated_is_what_the_new_schema_would_have_made(tmp_path_factory, events, at):
    lines = [event(*each) for each in events]
    cut = 1 + at % (len(lines) - 1)
    after = spec(AFTER, columns=RENAMED)
    whole = DiskPipeline(after, tmp_path_factory.mktemp("whole"))
    whole.step(lines[:cut])
    whole.step(lines[cut:])
    disk = DiskPipeline(spec(BEFORE), tmp_path_factory.mktemp("migrated"))
    disk.step(lines[:cut])
    _, disk = migrated(disk, after)
    disk.step(lines[cut:])
    assert disk.rows() == whole.rows()


BY_ARRIVAL = st.tuples(st.sampled_from(["+I", "-D"]), st.integers(1, 2), st.integers(0, 2))


@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(changes=st.lists(BY_ARRIVAL, min_size=2, max_size=12), at=st.integers(1, 11))
def test_histories_that_are_migrated_are_those_of_the_new_schema(tmp_path_factory, changes, at):
    lines = [change(kind, id=id_, n=n) for kind, id_, n in changes]
    cut = 1 + at % (len(lines) - 1)
    after = plain(
        "id BIGINT NOT NULL, amount DECIMAL(12,1), more INT DEFAULT 7", columns={"amount": {"renamed_from": "n"}}
    )
    whole = DiskPipeline(after, tmp_path_factory.mktemp("whole"))
    whole.step(lines[:cut])
    whole.step(lines[cut:])
    disk = DiskPipeline(plain(), tmp_path_factory.mktemp("migrated"))
    disk.step(lines[:cut])
    _, disk = migrated(disk, after)
    disk.step(lines[cut:])
    assert disk.rows() == whole.rows()
