"""A pipeline with a column of every type, whose sink other clients write."""

from local.local_pipeline import LocalPipeline, up
from local.support import change

SCHEMA = (
    "id BIGINT NOT NULL, n BIGINT, v STRING, b BINARY, d DECIMAL(20,5), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
    "tags ARRAY<STRING>, part STRUCT<a: STRING, b: DECIMAL(9,2)>, marks MAP<STRING, STRING>"
)
THEIRS = "theirs"


def changed(n, *ids):
    """A change of each key, with a value of every type."""
    values = {"v": f"v{n}", "b": "AAE=", "d": "1.50000", "day": 9, "at": "2026-01-01T00:00:00.000001Z", "local": 1}
    nested = {"tags": ["a", None], "part": {"a": "x", "b": "1.50"}, "marks": {"k": f"m{n}"}}
    return [up(id_, n, **values, **nested) for id_ in ids]


def begun(folder, **fields):
    """A pipeline of two steps."""
    pipeline = LocalPipeline(folder, schema=SCHEMA, **fields)
    pipeline.read(*changed(1, *range(8)))
    pipeline.read(*changed(2, *range(6, 12)))
    return pipeline


def values(pipeline):
    """All columns of the sink's rows but what says which step wrote them, by key."""
    names = [name for name in pipeline.spec.sink_table.columns.names if name != "id"]
    shown = {}
    for row in pipeline.table("sink", pipeline.plan.sink.schema):
        shown.setdefault(row["id"], []).append([row[name] for name in names])
    return shown


def step_three(pipeline):
    pipeline.read(*changed(3, 3, 8), change("-D", id=7, n=3))
