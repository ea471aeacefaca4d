"""Steps on disk beside steps in memory: slices, tasks, groups, linked keys and local copies change nothing."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clusters.spark_support import cut, shop_lines, shop_spec
from crashes.disk import DiskPipeline
from frame.limits import set_limits
from local.support import UNAVAILABLE, change, envelope, plain, record, spec

from ebbtide.delta import Log
from ebbtide.runtime import Stager
from ebbtide.runtime._workers.staging import StagedFile, balanced
from ebbtide.testing import MemoryPipeline


@pytest.fixture(autouse=True, params=["folded at once", pytest.param("folded late", marks=pytest.mark.grid)])
def small(request, shell, tmp_path):
    """Deal out small steps too; fold after every one; local copies of this test alone."""
    set_limits(rows_in_driver=1, rewriting_rows_in_part=500)
    if request.param == "folded at once":
        set_limits(width=2)
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")


def both(of, tmp_path, *steps, tasks=2):
    """Play steps on disk and in memory; a number is a tick at that time."""
    disk, memory = DiskPipeline(of, tmp_path, tasks), MemoryPipeline(of)
    for step in steps:
        for pipeline in (disk, memory):
            pipeline.tick(now_ms=step) if isinstance(step, int) else pipeline.step(step, now_ms=0)
        assert disk.rows() == memory.rows()
    assert {n: c for n, c in disk.metrics.items() if c} == {
        n: c for n, c in memory.metrics.items() if c and n != "tombstones"
    }
    return disk


@pytest.mark.parametrize(
    ("table", "shuffled"),
    [
        ("orders", True),
        ("price_list", False),
        *(pytest.param("customers", shuffled, marks=pytest.mark.grid) for shuffled in (False, True)),
        pytest.param("orders", False, marks=pytest.mark.grid),
        pytest.param("price_list", True, marks=pytest.mark.grid),
    ],
)
def test_shop_is_the_same_on_disk(tmp_path, table, shuffled):
    lines = shop_lines(table)[:400]
    if shuffled:
        random.Random(3).shuffle(lines)
    both(shop_spec(table, tmp_path / "in"), tmp_path, *cut(lines, 4))


@pytest.mark.parametrize("group_bytes", [1, 500, 10**9])
def test_groups_of_whole_keys_change_nothing(tmp_path, group_bytes):
    lines = [change("+U", id=n % 7, n=n, at=n) for n in range(14)]
    of = plain("id BIGINT NOT NULL, n INT, at INT", order={"sequence": ["at"]}, max_group_bytes=group_bytes)
    both(of, tmp_path, lines[:7], lines[7:])


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_move_with_their_values_find_them_in_any_task(tmp_path, seed):
    log = [envelope("c", n, after={"id": n, "v": f"v{n}"}) for n in range(1, 9)]
    lsn = 9
    for n in range(1, 9):
        for old, new in ((n, n + 10), (n + 10, n + 20)):
            after = {"id": new, "v": UNAVAILABLE}
            log.append(envelope("u", lsn, before={"id": old, "v": None}, after=after))
            lsn += 1
    random.Random(seed).shuffle(log)
    lines = [record(value, at) for at, value in enumerate(log)]
    of = spec("id BIGINT NOT NULL, v STRING", order={"sequence": ["_lsn"]})
    disk = both(of, tmp_path, lines[:10], lines[10:], tasks=3)
    assert {row["id"]: row["v"] for row in disk.rows()} == {n + 20: f"v{n}" for n in range(1, 9)}


def test_ticks_drop_the_same(tmp_path):
    of = plain("id BIGINT NOT NULL, n INT", ttl="100ms", materializer={"on_expire": "delete"})
    first = [change("+I", id=n, n=n) for n in range(5)]
    both(of, tmp_path, first, 50, 100, [change("+I", id=1, n=9)], 500)


@pytest.mark.parametrize("order", [(50, 60), (60, 50)])
def test_rows_that_the_sink_no_longer_has_stand_in_for_no_entry(tmp_path, order):
    of = spec("id BIGINT NOT NULL, notes STRING", ttl={"ttl": "100ms", "expire_live": True})

    def line(op, key, lsn, notes):
        side = {"before" if op == "d" else "after": {"id": key, "notes": notes}}
        return record(envelope(op, lsn, **side), 10 * lsn + key)

    steps = [[line("u", 1, lsn, f"at {lsn}"), line("c", 3, lsn, f"at {lsn}")] for lsn in order]
    deleted = [line("c", 2, 50, "old"), line("c", 4, 50, "stays")], [line("d", 2, 60, None)]
    late = [line("u", 1, 55, "late"), line("u", 2, 55, UNAVAILABLE), line("u", 4, 55, UNAVAILABLE)]
    disk = both(of, tmp_path, *steps, *deleted, 500, late)
    assert disk.rows() == [
        {"id": 1, "notes": "at 60"},
        {"id": 2, "notes": None},
        {"id": 3, "notes": "at 60"},
        {"id": 4, "notes": "stays"},
    ]


def test_folds_say_that_they_change_no_data(tmp_path):
    set_limits(width=2)
    of = plain("id BIGINT NOT NULL, n INT, at INT", order={"sequence": ["at"]})
    disk = both(of, tmp_path, *([change("+U", id=n % 3, n=n, at=n)] for n in range(9)))
    folds = []
    for table in (disk.plan.state.path, disk.plan.sink.path):
        for version in Log(table).versions():
            actions = Log(table).commit(version)
            if actions[0]["commitInfo"]["operation"] == "OPTIMIZE":
                folds += [each for action in actions for each in action.values() if "dataChange" in each]
    assert folds
    assert not any(each["dataChange"] for each in folds)


def test_copies_that_are_gone_or_torn_are_made_again(tmp_path):
    of = plain("id BIGINT NOT NULL, n INT, at INT", order={"sequence": ["at"]})
    disk = both(of, tmp_path, [change("+U", id=n, n=n, at=1) for n in range(9)])
    copies = sorted((tmp_path / "cache").glob("*.arrow"))
    assert copies
    copies[0].unlink()
    for copy in copies[1:]:
        torn = copy.read_bytes()[:40]
        copy.unlink()  # mapped by this process: what is mapped must not get shorter
        copy.write_bytes(torn)
    again = DiskPipeline.__new__(DiskPipeline)
    again.__dict__ |= disk.__dict__
    again.plan = type(disk.plan).under(disk.plan.root.rpartition("/")[0], of)
    again.step([change("-D", id=n, at=2) for n in range(4)])
    assert [row["id"] for row in again.rows()] == [4, 5, 6, 7, 8]


def test_slices_are_dealt_out_whole_and_evenly():
    staged = [StagedFile("a", tuple(range(8)), (10,) * 8), StagedFile("b", (3, 9), (5, 40))]
    shares = balanced(staged, 3, 16)
    assert sorted(slice_ for share in shares for slice_ in share) == [*range(8), 9]
    rows = {3: 15, 9: 40} | dict.fromkeys((0, 1, 2, 4, 5, 6, 7), 10)
    assert max(sum(rows[slice_] for slice_ in share) for share in shares) <= 50
    assert balanced([], 3, 16) == []


def test_even_slices_are_dealt_out_by_equal_ranges():
    chance = random.Random(5)
    for n_shares in (2, 3, 8, 24):
        rows = tuple(chance.randrange(90, 110) for _ in range(64))
        shares = balanced([StagedFile("a", tuple(range(64)), rows)], n_shares, 64)
        assert [share[0] for share in shares] == [-(-64 * number // n_shares) for number in range(n_shares)]


def test_staged_changes_come_back_by_slice_in_their_order_and_bad_rows_lie_beside(tmp_path):
    of = plain("id BIGINT NOT NULL, n INT")
    plan_lines = [change("+I", id=n % 50, n=n) for n in range(200)] + ["{"]
    pipeline = DiskPipeline(of, tmp_path)
    decoding = pipeline.plan.decoding
    from ebbtide.formats import RECORDS

    raw = [line.encode() for line in plan_lines]
    records = pa.record_batch([["f"] * len(raw), [0] * len(raw), range(len(raw)), raw], schema=RECORDS)
    tables = [pa.Table.from_batches([each]) for each in decoding.decode([records], step=1, wall_ms=None)]
    operator = pipeline.plan.operator
    stager = Stager(str(tmp_path / "staged"), operator.changes, operator.key, n_slices=16)
    staged = stager.stage(tables)
    assert StagedFile.of(staged.as_dict()) == staged
    assert len(set(staged.slices)) > 8
    rows = [row for n in range(16) for batch in staged.read([n]) for row in batch.to_pylist()]
    assert sorted(row["n"] for row in rows) == list(range(200))
    of_key = [row["n"] for row in rows if row["id"] == 7]
    assert of_key == sorted(of_key)
    [bad] = pq.read_table(staged.bad).to_pylist()
    assert (bad["_raw"], bad["_origin"]["position"]) == (b"{", 200)
    set_limits(flush_bytes=1)
    table = pa.concat_tables(tables)
    at = table.column_names.index("_detail")
    without_details = table.set_column(at, "_detail", pa.nulls(len(table), pa.string()))
    parts = [without_details.slice(start, 60) for start in range(0, 201, 60)]
    in_turn = stager.stage(parts)
    assert len(in_turn.slices) > len(staged.slices)
    again = [row for n in range(16) for batch in in_turn.read([n]) for row in batch.to_pylist()]
    assert again == rows
    assert len(pq.read_table(in_turn.bad)) == 1
    in_one = Stager(str(tmp_path / "staged"), operator.changes, operator.key).stage(parts)
    assert set(in_one.slices) == {0}
    assert [row["n"] for batch in in_one.read() for row in batch.to_pylist()] == list(range(200))
