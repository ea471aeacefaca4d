"""What a gateway's clients may set, of a gateway that writes and of one that only reads."""

import pytest
from gateway_support import serving

from ebbtide.sql.gateway.roles import OF_SPARK
from ebbtide.sql.settings import SETTINGS

OF_THE_OPERATOR = (
    "spark.hadoop.fs.s3a.endpoint",
    "spark.hadoop.fs.defaultFS",
    "spark.sql.catalog.x",
    "spark.sql.catalog.x.url",
    "spark.sql.catalogImplementation",
    "spark.sql.extensions",
    "spark.sql.warehouse.dir",
    "spark.sql.variable.substitute",
    "spark.sql.streaming.checkpointLocation",
    "spark.sql.sources.outputCommitterClass",
    "spark.sql.adaptive.customCostEvaluatorClass",
    "spark.databricks.delta.retentionDurationCheck.enabled",
    "spark.delta.logStore.s3.impl",
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.sql.Shuffle.partitions",
    "SPARK.jars",
)


@pytest.fixture(scope="module", params=[False, True], ids=["writing", "read-only"])
def gateway(request):
    with serving(read_only=request.param) as served:
        yield served


@pytest.mark.parametrize("key", OF_THE_OPERATOR)
def test_client_sets_nothing_that_is_the_operators(gateway, key):
    n_sessions = len(gateway.sessions)
    refused = gateway.call("POST", "/v1/sessions", {"settings": {"max-rows": "5", key: "http://192.0.2.1"}})
    assert (refused.status, refused.error["class"]) == (403, "GatewayError")
    assert f"Got: {key}. Allowed: max-rows, " in refused.error["message"]
    assert len(gateway.sessions) == n_sessions
    session = gateway.open()
    before = gateway.call("GET", session).json["settings"]
    for statement in (f"SET '{key}' = 'x'", f"SET `{key}` = x", f"RESET '{key}'", f"/* a */ set '{key}' = 'x';"):
        for path in (f"{session}/statements", f"{session}/configure"):
            assert gateway.call("POST", path, {"statement": statement}).status == 403, statement
    assert gateway.call("GET", session).json["settings"] == before
    assert gateway.call("POST", f"{session}/statements", {"statement": f"SET '{key}'"}).status == 201
    gateway.call("DELETE", session)


@pytest.mark.parametrize("key", [*sorted(OF_SPARK), *SETTINGS])
def test_client_sets_what_concerns_its_results(gateway, key):
    session = gateway.open(**{key: "1"})
    assert gateway.call("POST", f"{session}/configure", {"statement": f"SET '{key}' = '2'"}).status == 200
    assert gateway.call("GET", session).json["settings"][key] == "2"
    gateway.call("DELETE", session)
