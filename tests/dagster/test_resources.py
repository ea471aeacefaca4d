"""Settings of Spark that a project's `Resources` have reach the session."""

import pytest

from ebbtide.dagster import Resources
from ebbtide.errors import ConfigError


def spark_of(**settings):
    return Resources(root="s3a://lake/ebbtide", spark=settings).build_defs(None).resources["spark"]


def test_settings_of_a_profile_build_the_session(monkeypatch):
    built = []
    monkeypatch.setattr("ebbtide.sessions.build_session", lambda name, settings, **_: built.append((name, settings)))
    spark = spark_of(**{"spark.master": "spark://host:7077", "spark.hadoop.fs.s3a.secret.key": "${S3_SECRET}"})
    assert built == [], "nothing starts before it is asked for"
    _ = spark.session
    settings = {"spark.master": "spark://host:7077", "spark.hadoop.fs.s3a.secret.key": "${S3_SECRET}"}
    assert built == [("ebbtide", settings)]


def test_profile_that_holds_a_credential_is_refused():
    with pytest.raises(ConfigError, match=r"spark\.hadoop\.fs\.s3a\.secret\.key"):
        _ = spark_of(**{"spark.hadoop.fs.s3a.secret.key": "Planted0"}).session
