"""Operations on a pipeline with `order: upsert`: its rows stay the last writes, and later writes win."""

import json

import pytest
from local.support import change

from ebbtide.tables import Selection

UPSERT = {"order": "upsert"}


def up(id_, n, **row):
    return change("+U", id=id_, n=n, **row)


def gone(id_):
    return change("-D", id=id_)


@pytest.fixture
def written(make):
    """A pipeline of two steps: 1 was written twice, 2 is deleted, 3 was deleted and is there again."""
    pipeline = make(**UPSERT)
    pipeline.read(up(1, 1), up(2, 2), up(3, 3))
    pipeline.read(up(1, 0), gone(2), gone(3), up(3, 4))
    assert pipeline.rows() == {1: 0, 3: 4}
    return pipeline


def test_backfill_is_swapped_in_without_a_difference_and_later_writes_win(written):
    written.do("backfill")
    report = written.do("swap")
    assert (report["added"], report["changed"], report["deleted"]) == (0, 0, 0)
    written.read(gone(1), up(2, -1))
    assert written.rows() == {2: -1, 3: 4}


def test_backfill_that_differs_gives_the_sink_what_differs(written):
    [_, second] = sorted(written.source.iterdir())
    second.write_text("".join(line + "\n" for line in (up(1, 7), gone(3))))
    written.do("backfill")
    report = written.do("swap")
    assert (report["added"], report["changed"], report["deleted"]) == (1, 1, 1)
    assert written.rows() == {1: 7, 2: 2}
    written.read(up(1, 0), up(3, 1))
    assert written.rows() == {1: 0, 2: 2, 3: 1}


def test_rewind_gives_the_rows_of_its_step_and_the_source_is_read_again(written):
    written.do("rewind")
    assert written.rows() == {1: 1, 2: 2, 3: 3}
    written.run()
    assert written.rows() == {1: 0, 3: 4}
    written.read(gone(1))
    assert written.rows() == {3: 4}


def test_refresh_gives_the_same_rows(written):
    written.do("refresh")
    assert written.rows() == {1: 0, 3: 4}


def test_repair_brings_back_what_another_client_deleted(written):
    written.do("spoil")
    assert written.rows() != {1: 0, 3: 4}
    written.do("repair")
    assert written.rows() == {1: 0, 3: 4}
    written.read(up(1, 5))
    assert written.rows() == {1: 5, 3: 4}


def test_columns_are_added_and_later_writes_fill_them(written):
    written.spec = written.with_fields(schema="id BIGINT, n BIGINT, m BIGINT DEFAULT 7")
    written.do("alter")
    written.read(up(1, 0, m=8), gone(3))
    assert written.table("sink", written.spec.sink_table.columns) == [{"id": 1, "n": 0, "m": 8}]


def test_ttl_of_tombstones_is_changed_by_a_migration(make):
    pipeline = make(**UPSERT, ttl="30d")
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(gone(1))
    pipeline.spec = pipeline.with_fields(ttl="1h")
    pipeline.do("migrate")
    pipeline.read(up(2, 3))
    assert pipeline.rows() == {2: 3}


def test_bad_record_takes_its_place_when_it_is_replayed(make):
    pipeline = make(**UPSERT)
    bad = json.dumps({"kind": "+U", "row": {"id": 1, "n": "x"}})
    pipeline.read(up(1, 1), bad, up(2, 2), bad.replace("1", "2", 1))
    pipeline.read(up(2, 9))
    assert pipeline.rows() == {1: 1, 2: 9}
    pipeline.do("replay", mended=[up(1, 5), up(2, 5)])
    assert pipeline.rows() == {1: 5, 2: 9}, "the newer write of 2 stays"
    assert pipeline.plan.quarantine.records(Selection()).num_rows == 0
