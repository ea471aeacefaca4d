"""Sequence mode by columns of the user's: deletes that carry their row, ties, several columns, any exact type."""

import itertools
import json

import pytest
from frame.thinned import thinned
from local.notes_log import PIPELINES, newest, rows_by_order, run
from local.support import change, envelope, plain, record, spec

from ebbtide.operators._sequence import choose, ties
from ebbtide.testing import MemoryPipeline

BY_TIME = {"order": {"sequence": ["at"]}}
BY_BOTH = {"order": {"sequence": ["at", "n"]}}


def by_time(schema="id BIGINT NOT NULL, at INT, n INT", **more):
    return plain(schema, **(BY_TIME | more))


def debezium_by_time():
    return spec("id BIGINT NOT NULL, at INT, n INT", **BY_TIME)


def rows(pipeline):
    assert pipeline.quarantine == []
    return [tuple(row.values()) for row in pipeline.rows()]


def outcomes(of, lines, kind=MemoryPipeline):
    """The sink's rows after every order of arrival, in one step and in a step each."""
    orders = list(dict.fromkeys(itertools.permutations(lines)))
    found = [rows_by_order(of, orders, kind, together=together) for together in (True, False)]
    return {tuple(tuple(row.values()) for row in rows) for rows in itertools.chain(*found)}


def event(op, row=None, was=None):
    return record(envelope(op, None, before=row if op == "d" else was, after=None if op == "d" else row))


@PIPELINES
@pytest.mark.parametrize(
    ("of", "added", "deleted"),
    [
        (by_time(), change("+I", id=1, at=5, n=1), change("-D", id=1, at=5, n=1)),
        (by_time(), change("+I", id=1, at=5, n=1), change("-D", id=1, at=5)),
        (by_time(), change("+I", id=1, at=5, n=1), change("-U", id=1, at=5, n=1)),
        (debezium_by_time(), event("c", {"id": 1, "at": 5, "n": 1}), event("d", {"id": 1, "at": 5, "n": 1})),
    ],
    ids=["flink -D", "-D by key", "flink -U", "replica identity full"],
)
def test_delete_that_carries_its_row_s_sequence_deletes_the_row(kind, of, added, deleted):
    assert outcomes(of, [added, deleted], kind) == {()}
    assert outcomes(of, [added, deleted, added], kind) == {()}


@PIPELINES
def test_update_of_the_key_deletes_the_old_key_at_the_new_row_s_sequence(kind):
    log = [
        event("c", {"id": 1, "at": 5, "n": 1}),
        event("u", {"id": 2, "at": 6, "n": 1}, was={"id": 1, "at": 5, "n": 1}),
        event("u", {"id": 2, "at": 7, "n": 3}, was={"id": 2, "at": 6, "n": 1}),
    ]
    assert outcomes(debezium_by_time(), log, kind) == {((2, 7, 3),)}


@PIPELINES
def test_contents_that_differ_at_one_sequence_are_counted_and_decided_in_any_order_alike(kind):
    log = [change("+I", id=1, at=5, n=n) for n in range(3)]
    ends = [run(*order, of=by_time(), kind=kind).rows() for order in itertools.permutations(log)]
    assert ends == [ends[0]] * 6
    pipeline = kind(by_time())
    pipeline.step(log)
    pipeline.step([log[0]])
    [entry] = [entry for entry in pipeline.state.to_pylist() if entry["_step"] == 1]
    assert (pipeline.metrics["conflicts"] >= 2, entry["_conflict"]) == (True, True)


@PIPELINES
def test_conflict_is_forgotten_once_a_greater_sequence_comes(kind):
    pipeline = kind(by_time())
    pipeline.step([change("+I", id=1, at=5, n=1)])
    pipeline.step([change("+I", id=1, at=5, n=2)])
    assert newest(pipeline)["_conflict"]
    pipeline.step([change("+U", id=1, at=6, n=3)])
    assert (rows(pipeline), newest(pipeline)["_conflict"]) == ([(1, 6, 3)], False)


@PIPELINES
@pytest.mark.parametrize("together", [True, False])
def test_row_replaced_at_its_own_sequence_is_the_one_that_was_not_taken_back(kind, together):
    for n in range(6):
        pipeline = kind(by_time())
        first = change("+I", id=1, at=5, n=n)
        update = [change("-U", id=1, at=5, n=n), change("+U", id=1, at=5, n=n + 1)]
        for step in [[first], update] if together else [[first], *([line] for line in update)]:
            pipeline.step(step)
        pipeline.step([first])
        assert (rows(pipeline), pipeline.metrics["conflicts"]) == ([(1, 5, n + 1)], 0)


def test_retraction_without_its_row_is_bad():
    pipeline = MemoryPipeline(by_time())
    pipeline.step([change("-U", id=1, at=5)])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["missing_column"]


@PIPELINES
def test_key_that_is_part_of_the_sequence_may_change(kind):
    of = spec("id BIGINT NOT NULL, at INT, n INT", order={"sequence": ["at", "id"]})
    log = [
        event("c", {"id": 1, "at": 1, "n": 1}),
        event("u", {"id": 2, "at": 2, "n": 2}, was={"id": 1, "at": 1, "n": 1}),
    ]
    assert outcomes(of, log, kind) == {((2, 2, 2),)}


@PIPELINES
def test_key_used_again_at_the_sequence_of_its_change_has_the_new_row(kind):
    old, new = {"id": 1, "at": 5, "n": 1}, {"id": 1, "at": 9, "n": 7}
    log = [event("c", old), event("u", {"id": 2, "at": 9, "n": 1}, was=old), event("c", new)]
    assert outcomes(debezium_by_time(), log, kind) == {((1, 9, 7), (2, 9, 1))}


def test_delete_that_is_filled_up_for_lack_of_replica_identity_is_bad():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, at INT NOT NULL, s STRING", **BY_TIME))
    pipeline.step([event("c", {"id": 1, "at": 5, "s": "x"}), event("d", {"id": 1, "at": 0, "s": ""})])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["null_sequence"]


@PIPELINES
def test_updates_at_one_sequence_that_carry_different_values_are_not_one_change(kind):
    of = spec("id BIGINT NOT NULL, at INT, notes STRING, body STRING", **BY_TIME)
    kept = "__debezium_unavailable_value"
    log = [
        event("u", {"id": 1, "at": 5, "notes": "q", "body": kept}),
        event("u", {"id": 1, "at": 5, "notes": kept, "body": "b"}),
    ]
    assert outcomes(of, log, kind) == {((1, 5, "q", "b"),)}
    pipeline = kind(of)
    pipeline.step(log)
    assert pipeline.metrics["conflicts"] == 0


@PIPELINES
def test_same_content_at_one_sequence_is_one_change_delivered_again(kind):
    pipeline = kind(by_time())
    pipeline.step([change("+I", id=1, at=5, n=1)] * 2)
    pipeline.step([change("+U", id=1, at=5, n=1)])
    assert (rows(pipeline), pipeline.metrics["duplicates"], pipeline.metrics["conflicts"]) == ([(1, 5, 1)], 2, 0)


def test_later_columns_decide_where_the_first_are_equal():
    log = [change("+I", id=1, at=5, n=n) for n in (2, 3)] + [change("+I", id=1, at=4, n=9)]
    of = by_time("id BIGINT NOT NULL, at INT, n INT", **BY_BOTH)
    assert outcomes(of, log) == {((1, 5, 3),)}


@pytest.mark.parametrize(
    ("type_", "ascending"),
    thinned(
        [
            ("INT", [-5, -1, 0, 7]),
            ("DECIMAL(20,2)", ["-7.00", "-0.01", "9.5", "10"]),
            ("STRING", ["", "B", "aa", "é"]),
            ("DATE", ["1912-01-01", "1970-01-01", "2026-01-01"]),
            ("TIMESTAMP", ["1912-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.000002Z"]),
            ("TIMESTAMP_NTZ", ["1912-01-01T00:00:00", "2026-01-01T00:00:00"]),
            ("BOOLEAN", [False, True]),
            ("BINARY", ["AA==", "AAE=", "/w=="]),
        ],
        2,
    ),
)
def test_sequence_of_any_exact_type_orders(type_, ascending):
    of = plain(f"id BIGINT NOT NULL, at {type_}, n INT", **BY_TIME)
    log = [change("+U", id=1, at=at, n=n) for n, at in enumerate(ascending)]
    for n, neighbours in enumerate(itertools.pairwise(log), start=1):
        assert {found[0][2] for found in outcomes(of, neighbours)} == {n}


@pytest.mark.parametrize("kind", ["+I", "-D"])
def test_change_without_a_sequence_is_bad_and_says_so(kind):
    pipeline = MemoryPipeline(by_time("id BIGINT NOT NULL, at INT, n INT DEFAULT 0", **BY_BOTH))
    pipeline.step([change(kind, id=1, at=5, n=None)])
    [bad] = pipeline.quarantine
    assert (bad["_reason"], "n: got null" in bad["_detail"]) == ("null_sequence", True)


def test_delete_of_the_key_alone_is_bad_where_the_sequence_is_a_column():
    pipeline = MemoryPipeline(debezium_by_time())
    pipeline.step([event("c", {"id": 1, "at": 5, "n": 1}), event("d", {"id": 1})])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["null_sequence"]


def binlog(file, pos, row, op="u", **after):
    source = {"file": file, "pos": pos, "row": row, "ts_ms": 0}
    return record({"op": op, "before": None, "after": after, "source": source})


def postgres(op, lsn, ts_ms, n):
    return record({"op": op, "before": None, "after": {"id": 1, "n": n}, "source": {"lsn": lsn, "ts_ms": ts_ms}})


def test_snapshot_rows_without_lsn_are_ordered_by_the_time_of_reading():
    log = [postgres("r", None, ts_ms, n) for n, ts_ms in enumerate((1_000, 2_000, 3_000))]
    assert outcomes(spec(), log) == {((1, 2),)}
    assert outcomes(spec(), [*log[1:], postgres("u", 0, 500, 9)]) == {((1, 9),)}


@pytest.mark.parametrize(("read_at", "shown"), [(999, 1), (1_000, 1), (1_001, 2)])
def test_snapshot_row_wins_by_time_where_the_sequence_begins_with_it(read_at, shown):
    of = spec(order={"sequence": ["_ts_ms", "_lsn"]})
    assert outcomes(of, [postgres("u", 7, 1_000, 1), postgres("r", None, read_at, 2)]) == {((1, shown),)}


def test_flattened_row_gives_its_position_under_either_name():
    of = spec(order={"sequence": ["_file", "_pos", "_row"]})
    for prefix in ("__", "__source_"):
        place = {f"{prefix}file": "bin.1", f"{prefix}pos": 4, f"{prefix}row": 0, "__ts_ms": 9}
        pipeline = MemoryPipeline(of)
        pipeline.step([record({"id": 1, "n": 1, "__op": "c"} | place)])
        assert rows(pipeline) == [(1, 1)]


def test_time_of_a_flattened_row_is_the_database_s_not_the_connector_s():
    of = spec(order={"sequence": ["_ts_ms", "_lsn"]})
    pipeline = MemoryPipeline(of)
    old = {"id": 1, "n": 1, "__op": "c", "__source_ts_ms": 1000, "__lsn": 1, "__ts_ms": 9000}
    pipeline.step([record(old), record(old | {"n": 2, "__source_ts_ms": 2000, "__lsn": 2, "__ts_ms": 8000})])
    assert rows(pipeline) == [(1, 2)]
    pipeline.step([record({"id": 1, "n": 3, "__op": "u", "__lsn": 3, "__ts_ms": 9500})])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["null_sequence"]


def test_truncate_between_two_rows_of_one_event_empties_what_is_below():
    of = spec(order={"sequence": ["_file", "_pos", "_row"]})
    log = [
        binlog("bin.1", 5, 0, "c", id=1, n=1),
        record({"op": "t", "before": None, "after": None, "source": {"file": "bin.2", "pos": 1, "row": 0, "ts_ms": 0}}),
        binlog("bin.2", 1, 1, "c", id=2, n=2),
    ]
    assert outcomes(of, log) == {((2, 2),)}


def test_unsigned_key_is_read_in_deletes_by_key_too():
    of = spec("id DECIMAL(20,0), v INT", format={"type": "debezium", "encodings": {"id": "unsigned"}})
    pipeline = MemoryPipeline(of)
    deleted = record(envelope("d", 2), key=json.dumps({"id": -1}))
    pipeline.step([record(envelope("c", 1, after={"id": -1, "v": 1})), deleted])
    assert (pipeline.rows(), pipeline.quarantine) == ([], [])


def tied(n):
    """Return n changes of as many keys as make eight changes each, all at one sequence."""
    return [change("+U", id=at % (n // 8), at=5, n=at) for at in range(n)]


def rows_compared(n):
    """How many rows are looked at to settle ties among n changes, in sum over all looks at them."""
    looked = 0

    class Counted(ties.Contents):
        def of(self, events, groups):
            nonlocal looked
            looked += len(events)
            return super().of(events, groups)

    patch = pytest.MonkeyPatch()
    patch.setattr(choose, "Contents", Counted)
    pipeline = MemoryPipeline(by_time())
    pipeline.step(tied(n))
    patch.undo()
    assert pipeline.metrics["conflicts"] == n - n // 8
    return looked


def test_work_over_changes_at_one_sequence_doubles_with_their_number():
    assert (rows_compared(800), rows_compared(1_600)) == (800, 1_600)


def test_order_of_the_entries_of_a_map_makes_no_other_content():
    pipeline = MemoryPipeline(plain("id BIGINT, n INT, m MAP<STRING, INT>", order={"sequence": ["n"]}))
    maps = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 9}]
    pipeline.step([change("+I", id=1, n=1, m=m) for m in maps])
    assert (pipeline.metrics["duplicates"], pipeline.metrics["conflicts"]) == (1, 1)
