"""A topic in a spec: what is taken, and what is refused before any broker is asked."""

import json
from datetime import timedelta

import pytest
from local.support import plain
from pydantic import ValidationError

from ebbtide import UpsertPipeline
from ebbtide.errors import ConfigError

TOPIC = {"type": "kafka", "bootstrap_servers": "a:9092, [::1]:9092", "topic": "shop.orders"}


def spec(**source):
    return plain(source=TOPIC | source)


def test_topic_is_taken_with_what_is_not_said():
    source = spec().source
    assert source.bootstrap_servers == "a:9092,[::1]:9092"
    assert (source.start, source.max_records_per_step, source.properties) == ("earliest", 500_000, {})
    assert spec().source_path is None


def test_identity_is_the_topic_and_not_its_brokers_start_or_settings():
    other = spec(bootstrap_servers="b:1", start="latest", max_records_per_step=1, properties={"client.rack": "r"})
    assert other.misfits(json.loads(json.dumps(spec().identity))) == []
    assert spec(topic="other").misfits(spec().identity) == ["source"]
    assert plain(source={"path": "in"}).misfits(spec().identity) == ["source"]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("soon", "earliest"),
        ({}, "timestamp or offsets"),
        ({"timestamp": "2026-01-01T00:00:00Z", "offsets": {0: 1}}, "timestamp or offsets"),
        ({"offsets": {0: -1}}, "partitions and offsets from 0"),
    ],
)
def test_start_that_is_none_is_refused(start, message):
    with pytest.raises(ValidationError, match=message):
        spec(start=start)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("bootstrap_servers", "broker", "HOST:PORT"),
        ("bootstrap_servers", "https://u:hunter22@h:1", "HOST:PORT"),
        ("topic", "a b", "letters, digits"),
        ("properties", {"group.id": "x"}, "got group.id"),
        ("properties", {"sasl.kerberos.kinit.cmd": "rm"}, "got sasl.kerberos.kinit.cmd"),
        ("properties", {"plugin.library.paths": "x.so"}, "got plugin.library.paths"),
        ("properties", {"sasl.password": "hunter22"}, "credentials as"),
        ("properties", {"ssl.key.pem": "-----BEGIN"}, "credentials as"),
        ("properties", {"sasl.oauthbearer.extensions": "apikey=hunter22"}, "got sasl.oauthbearer.extensions; allowed: credentials as"),
        ("properties", {"sasl.oauthbearer.token.endpoint.url": "https://u:hunter22@idp/token"}, "got sasl.oauthbearer.token.endpoint.url; allowed: addresses without credentials"),
        ("properties", {"sasl.oauthbearer.token.endpoint.url": "https://hunter22@idp"}, "addresses without credentials"),
        ("properties", {"sasl.oauthbearer.scope": "a https://u:hunter22@h:1/x"}, "addresses without credentials"),
        ("path", "in", "no such field"),
        ("type", "kafak", "'files', 'kafka'"),
    ],
)  # fmt: skip
def test_field_that_is_not_usable_is_refused_without_showing_a_secret(field, value, message):
    with pytest.raises(ValidationError, match=message) as refused:
        spec(**{field: value})
    assert not any(secret in str(refused.value) for secret in ("hunter22", "BEGIN"))


def test_error_names_the_field_without_the_type_of_the_source(tmp_path):
    attributes = {"name": "t", "source": TOPIC | {"topic": "a b"}, "format": {"type": "plain"}}
    attributes |= {"schema": "id BIGINT", "key": ["id"], "order": "arrival"}
    (tmp_path / "defs.yaml").write_text(json.dumps({"attributes": attributes}))
    with pytest.raises(ConfigError, match=r"not usable. line 1: source.topic: "):
        UpsertPipeline.load(tmp_path)


def test_numbers_and_truth_values_are_settings_too():
    given = spec(properties={"socket.timeout.ms": 5000, "enable.ssl.certificate.verification": False})
    assert given.source.properties == {"socket.timeout.ms": "5000", "enable.ssl.certificate.verification": "false"}


def test_address_of_tokens_and_extensions_by_a_variable_are_settings():
    properties = {
        "sasl.oauthbearer.token.endpoint.url": "https://idp:8443/token?a=b@c",
        "sasl.oauthbearer.extensions": "${EXTENSIONS}",
        "sasl.oauthbearer.scope": "https://h/.default",
        "sasl.kerberos.principal": "app@REALM",
    }
    assert spec(properties=properties).source.properties == properties


def test_schema_of_specs_has_both_sources():
    schema = UpsertPipeline.model_json_schema()
    assert {"FileSource", "KafkaSource"} <= schema["$defs"].keys()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "registry:8081"}, "http://HOST"),
        ({"url": "https://u:hunter22@registry"}, "without credentials"),
        ({"url": "http://r", "username": "u", "password": "hunter22"}, "a variable of the environment"),
        ({"url": "http://r", "username": "u"}, "username and password"),
        ({"url": "http://r", "token": "x"}, "no such field"),
    ],
)
def test_registry_that_cannot_be_is_refused_and_no_credential_is_shown(given, message):
    with pytest.raises(ValidationError, match=message) as refused:
        spec(registry=given)
    assert "hunter22" not in str(refused.value)


def test_registry_is_taken_and_is_no_part_of_the_identity():
    registry = {"url": "https://r:8081/apis/ccompat/v7/", "username": "u", "password": "${REGISTRY_PASSWORD}"}
    given = spec(registry=registry)
    assert given.source.registry.url == "https://r:8081/apis/ccompat/v7"
    assert given.misfits(json.loads(json.dumps(spec().identity))) == []


def test_age_of_a_run_is_below_what_makes_the_sink_stale():
    assert plain(run="continuous", max_run_age="12h").max_run_age == timedelta(hours=12)
    with pytest.raises(ValueError, match=r"max_run_age.*got 1d; allowed: less than freshness.fail_window, 1d"):
        plain(run="continuous", max_run_age="1d")
    assert plain(run="continuous").stream_cron is None, "runs would queue up behind the one that goes on"
