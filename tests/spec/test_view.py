"""Specs of materialized views."""

import pytest
import yaml
from pydantic import ValidationError

from ebbtide import MaterializedView, load
from ebbtide.errors import ConfigError

GIVEN = {
    "name": "totals",
    "query": "SELECT customer_id, sum(total) AS total FROM orders GROUP BY customer_id",
    "inputs": ["orders"],
    "schema": "customer_id BIGINT NOT NULL, total DECIMAL(24,2)",
    "key": ["customer_id"],
}


@pytest.mark.parametrize(
    ("refresh", "cron"),
    [
        ("on_change", None),
        ("manual", None),
        ({"every": "5m"}, "H/5 * * * *"),
        ({"every": "1h"}, "H */1 * * *"),
        ({"every": "6h"}, "H */6 * * *"),
        ({"every": "1d"}, "H 0 * * *"),
    ],
)
def test_refresh_tells_the_schedule(refresh, cron):
    assert MaterializedView(**GIVEN, refresh=refresh).stream_cron == cron


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"refresh": {"every": "7m"}}, "got 7m; allowed: 1m, 5m"),
        ({"refresh": {"every": "90s"}}, "allowed: 1m, 5m"),
        ({"refresh": {"every": "48h"}}, "allowed: 1m, 5m"),
        ({"refresh": "sometimes"}, "on_change"),
        ({"inputs": []}, "at least 1 item"),
        ({"inputs": ["orders", "orders"]}, "inputs: got orders, orders; allowed: each once"),
        ({"inputs": ["totals"]}, "inputs: got totals; allowed: other pipelines"),
        ({"inputs": ["../orders"]}, "String should match pattern"),
        ({"source": {"path": "x"}}, "there is no such field"),
        ({"format": {"type": "plain"}}, "there is no such field"),
        ({"schema": "customer_id BIGINT, m MAP<STRING,INT>"}, "columns without MAP"),
        ({"schema": "customer_id BIGINT, s STRUCT<m: MAP<STRING,INT>>"}, "columns without MAP"),
        ({"schema": "customer_id BIGINT, n INT DEFAULT 0"}, "columns without DEFAULT"),
        ({"schema": "customer_id BIGINT, n INT NOT NULL"}, "NOT NULL only in columns of the key"),
        ({"schema": "customer_id DOUBLE"}, "columns with an exact type"),
        ({"ttl": {"ttl": "1d", "expire_live": True}}, "ttl.expire_live"),
        ({"schedules": {"stream": "* * * * *"}}, "schedules.stream: got * * * * *; allowed: none: refresh says when"),
    ],
)
def test_what_is_not_usable_is_refused(given, message):
    with pytest.raises(ValidationError) as raised:
        MaterializedView(**{**GIVEN, **given})
    assert message in str(raised.value)


def test_query_is_no_part_of_what_stored_rows_depend_on_and_is_known_by_its_hash():
    view = MaterializedView(**GIVEN)
    other = view.model_copy(update={"query": f"{view.query} HAVING count(*) > 1"})
    assert view.identity == other.identity
    assert view.query_hash != other.query_hash
    assert view.query_hash == view.model_copy(update={"query": f"\n{view.query}\n"}).query_hash


def test_view_is_told_from_a_pipeline_of_the_same_columns():
    assert MaterializedView(**GIVEN).misfits({**MaterializedView(**GIVEN).identity, "source": {"type": "files"}}) == [
        "source"
    ]


def test_file_is_read_and_what_is_not_usable_in_it_is_told(tmp_path):
    path = tmp_path / "defs.yaml"
    attributes = {**GIVEN, "refresh": {"every": "5m"}}
    document = {"type": "ebbtide.MaterializedView", "attributes": attributes}
    path.write_text(yaml.safe_dump(document))
    spec = load(tmp_path)
    assert isinstance(spec, MaterializedView)
    assert (spec.stream_cron, spec.source_path, spec.sequence) == ("H/5 * * * *", "", ("_step",))
    del attributes["inputs"]
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="inputs: Field required"):
        load(tmp_path)
