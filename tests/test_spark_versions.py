"""The version module: which Delta a Spark gets, which Spark is refused. No JVM."""

import pytest

from ebbtide.errors import ConfigError
from ebbtide.sessions import SparkVersion

DELTA = {
    "3.5.9": "io.delta:delta-spark_2.12:3.3.3",
    "3.5.1-amzn-0": "io.delta:delta-spark_2.12:3.3.3",
    "4.0.5": "io.delta:delta-spark_4.0_2.13:4.4.0",
    "4.1.4": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "4.2.0": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "4.3.0": "io.delta:delta-spark_4.2_2.13:4.4.0",
}


@pytest.mark.parametrize("version", DELTA)
def test_each_version_has_its_delta(version):
    assert SparkVersion.of(version).delta == DELTA[version]


@pytest.mark.parametrize("version", ["3.4.4", "3.6.0", "4.4.0", "5.0.0", "2.4", "unknown"])
def test_other_version_is_refused_by_name_with_what_is_allowed(version):
    with pytest.raises(ConfigError, match=rf"{version}.*Spark 3\.5 to 4\.3"):
        SparkVersion.of(version)


def test_spark_is_that_of_spark_home_with_its_scala(tmp_path, shell):
    jar = tmp_path / "jars" / "spark-core_2.13-3.5.6.jar"
    jar.parent.mkdir()
    jar.touch()
    shell.export(SPARK_HOME=tmp_path)
    assert SparkVersion.installed().delta == "io.delta:delta-spark_2.13:3.3.3"


def test_class_that_renames_a_stream_s_files_is_where_its_version_has_it():
    assert ".streaming.FileSystem" in SparkVersion.of("4.0.5").checkpoint_files
    assert ".streaming.checkpointing.FileSystem" in SparkVersion.of("4.1.4").checkpoint_files


def test_plans_of_scala_2_12_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"Scala 2\.12.*Spark 4\.0 or newer"):
        SparkVersion.of("3.5.9").field_names(object())
