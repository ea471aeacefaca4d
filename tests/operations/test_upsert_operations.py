"""Operations on a pipeline with `order: upsert`: its rows stay the last writes, and later writes win."""

import pytest
from local.support import change

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


def test_backfill_that_differs_gives_the_sink_what_differs(written):
    [_, second] = sorted(written.source.iterdir())
    second.write_text("".join(line + "\n" for line in (up(1, 7), gone(3))))
    written.do("backfill")
    report = written.do("swap")
    assert (report["added"], report["changed"], report["deleted"]) == (1, 1, 1)
    assert written.rows() == {1: 7, 2: 2}
    written.read(up(1, 0), up(3, 1))
    assert written.rows() == {1: 0, 2: 2, 3: 1}


def test_rewind_refresh_and_repair_give_the_rows_of_the_last_writes(written):
    written.do("rewind")
    assert written.rows() == {1: 1, 2: 2, 3: 3}
    written.run()
    assert written.rows() == {1: 0, 3: 4}
    written.do("refresh")
    assert written.rows() == {1: 0, 3: 4}
    written.do("spoil")
    assert written.rows() != {1: 0, 3: 4}
    written.do("repair")
    assert written.rows() == {1: 0, 3: 4}
    written.read(up(1, 5), gone(3))
    assert written.rows() == {1: 5}


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
