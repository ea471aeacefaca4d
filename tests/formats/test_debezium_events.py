"""Events that Debezium writes beside the changes of rows: known, counted, and never bad; what only looks like one is."""

import json

import pytest
from local.support import envelope, record, spec

from ebbtide.formats import DebeziumEvent
from ebbtide.testing import MemoryPipeline

SOURCE = {"connector": "mysql", "db": "shop", "table": "orders", "file": "b.000001", "pos": 1}
COLLECTIONS = [{"data_collection": "public.orders", "event_count": 2}]
EVENTS = {
    "heartbeat": {"ts_ms": 1767225600000},
    "heartbeat with finer times": {"ts_ms": 1767225600000, "ts_us": 1767225600000000, "ts_ns": 1767225600000000000},
    "begin": {"status": "BEGIN", "id": "571:1", "ts_ms": 1, "event_count": None, "data_collections": None},
    "end": {"status": "END", "id": "571:1", "ts_ms": 1, "event_count": 2, "data_collections": COLLECTIONS},
    "DDL": {"source": SOURCE, "databaseName": "shop", "schemaName": None, "ddl": "ALTER TABLE t", "tableChanges": []},
    "schema without DDL": {"source": SOURCE, "ts_ms": 1, "databaseName": "shop", "ddl": None, "tableChanges": [{}]},
    "history": {"source": {"server": "s"}, "position": {"pos": 1}, "databaseName": "shop", "ddl": "DROP TABLE t"},
    "message": {"op": "m", "ts_ms": 1, "source": {"lsn": 9, "ts_ms": 1}, "message": {"prefix": "p", "content": "aGk="}},
    "notification": {
        "id": "5",
        "aggregate_type": "Initial Snapshot",
        "type": "COMPLETED",
        "additional_data": {},
        "timestamp": 1,
    },
}
FORMS = {
    "bare": json.dumps,
    "with schema": lambda event: json.dumps({"schema": {"type": "struct", "fields": []}, "payload": event}),
    "of Kafka": lambda event: record(event, 7),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", EVENTS)
def test_event_beside_rows_is_counted_and_leaves_nothing(name, form):
    holds = "kafka" if form == "of Kafka" else "value"
    pipeline = MemoryPipeline(spec(source={"path": "in", "records": holds, "table": "orders"}))
    created = envelope("c", 6, after={"id": 1, "n": 1}, schema="public", table="orders")
    change = record(created, 8) if holds == "kafka" else json.dumps(created)
    pipeline.step([FORMS[form](EVENTS[name]), change])
    assert (pipeline.rows(), pipeline.quarantine) == ([{"id": 1, "n": 1}], [])
    assert (pipeline.metrics["not_rows"], pipeline.metrics["other_tables"]) == (1, 0)
    pipeline.step([FORMS[form](EVENTS[name])] * 1200)
    assert (pipeline.quarantine, pipeline.metrics["not_rows"]) == ([], 1201)


LOOKALIKES = [
    {},
    {"ts_ms": "1767225600000"},
    {"ts_ms": True},
    {"ts_ms": 1, "id": 7},
    {"status": "BEGIN", "id": "7", "ts_ms": 1},
    {"status": "BEGIN", "id": 7, "event_count": None},
    {"status": "END", "id": "7", "event_count": 1, "total": 3},
    {"databaseName": "shop", "ddl": "ALTER TABLE t", "tableChanges": []},
    {"source": SOURCE, "ddl": "ALTER TABLE t"},
    {"source": SOURCE, "databaseName": "shop"},
    {"id": "5", "type": "COMPLETED"},
]


@pytest.mark.parametrize("value", LOOKALIKES, ids=str)
def test_what_only_looks_like_one_is_bad(value):
    pipeline = MemoryPipeline(spec(source={"path": "in", "records": "value"}))
    pipeline.step([json.dumps(value)])
    event = DebeziumEvent.of(value)
    assert event is None or event.changes_rows
    assert [row["_reason"] for row in pipeline.quarantine] == ["not_a_change"]
    assert pipeline.metrics["not_rows"] == 0
