"""Stateful pipelines and their records."""

import json

from ebbtide import StatefulPipeline

SCHEMA = "id BIGINT, v STRING DEFAULT NULL, seq BIGINT DEFAULT NULL, day DATE DEFAULT NULL, at TIMESTAMP DEFAULT NULL"


def stateful(function, **more):
    fields = {
        "name": "t",
        "source": {"path": "in", "records": "value"},
        "format": {"type": "plain", "time_units": {"at": "ms"}},
        "schema": SCHEMA,
        "key": ["id"],
        "function": function,
    }
    return StatefulPipeline(**{**fields, **more})


def line(id_, kind="+I", **row):
    return json.dumps({"kind": kind, "row": {"id": id_, **row}})
