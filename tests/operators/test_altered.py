"""Entries under other columns: rows that are kept go along."""

from local.support import envelope, record, spec
from plans import operator_of

from ebbtide.model import SchemaChange
from ebbtide.testing import MemoryPipeline


def test_kept_rows_take_the_new_names_with_the_sequences_of_their_values():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, v STRING, w STRING"))
    for lsn in (1, 3, 5):
        row = {"id": 1, "v": f"v{lsn}", "w": f"w{lsn}"}
        pipeline.step([record(envelope("c", lsn, after=row))])
    newest = pipeline.state.slice(2)
    operator = operator_of(spec("id BIGINT NOT NULL, x STRING"))
    [entry] = operator.altered(newest, SchemaChange(renamed={"x": "v"}, dropped=("w",)), {}).to_pylist()
    kept = [*entry["_kept_before"], entry["_kept"]]
    assert [row["row"] for row in kept] == [{"id": None, "x": "v1"}, {"id": None, "x": "v3"}]
    assert [(row["known"], row["since"]) for row in kept] == [(["x"], [{"_lsn": 1}]), (["x"], [{"_lsn": 3}])]
