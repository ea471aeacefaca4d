"""Rows of a result as JSON values, from files page by page."""

import json
import math
import threading
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame.installing import install
from local.local_pipeline import up

from ebbtide.errors import SqlError
from ebbtide.sql._catalog import Filled, Part
from ebbtide.sql._json import json_value
from ebbtide.sql._names import Names
from ebbtide.sql._query import Queries
from ebbtide.sql._references import Reference, Referring
from ebbtide.sql._rows import WrittenRows, frame


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**62, 2**62),
        (1.5, 1.5),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.10"), "0.10"),
        (b"\x00\xff", "00ff"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02 03:04:05.000006"),  # noqa: DTZ001
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04:05"),
        ([Decimal("1.0"), None], ["1.0", None]),
        ({"a": b"\x01"}, {"a": "01"}),
        ([("k", date(2026, 1, 2))], [["k", "2026-01-02"]]),
    ],
)
def test_value_is_what_json_holds_exactly(value, shown):
    assert json.loads(json.dumps(json_value(value))) == shown


@pytest.fixture
def written(tmp_path):
    """Seven rows in three files, one of them empty, of small row groups."""
    for number, values in enumerate(([0, 1, 2, 3], [], [4, 5, 6])):
        pq.write_table(
            pa.table({"c0": pa.array(values, pa.int64())}), tmp_path / f"part-{number:05d}-x.parquet", row_group_size=2
        )
    (tmp_path / "_SUCCESS").touch()
    return WrittenRows.read(tmp_path)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_pages_of_any_size_make_all_rows_in_order(written, size):
    pages = [written.slice(start, start + size) for start in range(0, written.count, size)]
    assert [row for page in pages for row in page] == [[number] for number in range(7)]
    assert all(len(page) == size for page in pages[:-1])


def test_only_the_first_count_where_they_are_cut_off(written):
    first = written.first(5)
    assert (first.count, first.slice(3, 100)) == (5, [[3], [4]])
    assert written.first(100).count == 7


def test_times_that_spark_wrote_as_int96_are_shown_whatever_the_year(tmp_path):
    times = pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"c0": times}), tmp_path / "part-00000-x.parquet", use_deprecated_int96_timestamps=True)
    rows = WrittenRows.read(tmp_path).slice(0, 2)
    assert rows == [["0001-01-01 00:00:00"], ["9999-12-31 00:00:00"]]


@pytest.mark.parametrize("part", [None, Part.CHANGES])
def test_rows_of_a_sink_that_is_no_delta_table_are_refused_by_what_it_is(make, tmp_path, shell, part):
    install(tmp_path / "site", shell, "documents")
    pipeline = make(sink={"type": "documents"})
    pipeline.read(up(1, 1))
    names = Names(pipeline.root, {"t": Filled(tmp_path, pipeline.spec)})
    read = Reference("t", part)
    queries = Queries(None, names, {}, tmp_path, lambda _: None, threading.Lock())
    with pytest.raises(SqlError, match=r"SQL cannot read the sink of 't', .*Got: sink\.type: documents"):
        frame(None, names, read, queries._newest(Referring(None, frozenset({read}))))
    assert queries._newest(Referring(None, frozenset({Reference("t", Part.STATE)}))) == {}
