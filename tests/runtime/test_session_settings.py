"""The settings that Spark starts with: whose win, what is joined, what a cluster changes. No JVM."""

import os
import sys

import pytest
from click.testing import CliRunner

from ebbtide.cli import main
from ebbtide.errors import EbbtideError
from ebbtide.sessions import SparkVersion
from ebbtide.sessions._settings import effective_settings, python_of_workers, settings_of_file

DELTA_JAR = SparkVersion.installed().delta
CLUSTER = "spark://host:7077"
VARIABLES = ("EBBTIDE_MASTER", "EBBTIDE_DRIVER_MEMORY", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_PYTHON")


@pytest.fixture(autouse=True)
def no_variables(shell):
    shell.unset(*VARIABLES)


def effective(given):
    return effective_settings("a", given, settings_of_file())


@pytest.fixture
def conf(tmp_path, shell):
    """Writes `spark-defaults.conf`."""
    shell.export(SPARK_CONF_DIR=tmp_path)
    return (tmp_path / "spark-defaults.conf").write_text


def test_later_setting_wins(conf, shell):
    """Of ours, the file, the environment and the caller; what only the file sets is left to Spark, which reads it."""
    name = "spark.driver.memory"
    assert effective({})[name] == "4g"
    conf(f"{name} 5g\nspark.sql.shuffle.partitions=7\n")
    from_file = effective({})
    assert name not in from_file
    assert "spark.sql.shuffle.partitions" not in from_file
    shell.export(EBBTIDE_DRIVER_MEMORY="6g")
    assert effective({})[name] == "6g"
    assert effective({name: "7g"})[name] == "7g"


def test_files_of_spark_s_clients_follow_the_umask_where_it_is_not_theirs():
    name = "spark.hadoop.fs.permissions.umask-mode"
    before = os.umask(0o002)
    try:
        assert effective({})[name] == "002"
        assert effective({name: "077"})[name] == "077"
        os.umask(0o022)
        assert name not in effective({})
    finally:
        os.umask(before)


@pytest.mark.parametrize("is_in_file", [True, False])
def test_packages_and_extensions_are_joined_with_those_of_delta(conf, is_in_file):
    mine = {"spark.jars.packages": f"org.x:y:1, {DELTA_JAR}", "spark.sql.extensions": "x.Extension"}
    if is_in_file:
        conf("".join(f"{name} {value}\n" for name, value in mine.items()))
    settings = effective({} if is_in_file else mine)
    assert settings["spark.jars.packages"] == f"{DELTA_JAR},org.x:y:1"
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,x.Extension"


def test_what_a_file_leaves_out_of_packages_is_a_part_of_what_the_session_is_built_with(conf):
    """Else the jars of a start with another file would be taken for those of this one."""
    name = "spark.jars.excludes"
    assert name not in effective({})
    conf(f"{name} software.amazon.awssdk:bundle")
    assert effective({})[name] == "software.amazon.awssdk:bundle"
    assert effective({name: "a:b"})[name] == "a:b"


def test_driver_listens_on_loopback_only_where_no_executor_is_elsewhere(conf, shell):
    host = "spark.driver.host"
    assert effective({})[host] == "127.0.0.1"
    assert host not in effective({"spark.master": CLUSTER})
    assert effective({"spark.master": CLUSTER, host: "me"})[host] == "me"
    shell.export(EBBTIDE_MASTER=CLUSTER)
    assert host not in effective({})
    shell.unset("EBBTIDE_MASTER")
    conf(f"spark.master {CLUSTER}")
    assert host not in effective({})
    assert "spark.master" not in effective({})
    assert effective({"spark.master": "local[1]"})[host] == "127.0.0.1"


def test_workers_on_this_machine_have_its_python_and_others_theirs(conf, shell):
    shell.export(PYSPARK_PYTHON="python3.elsewhere")
    on_cluster = {"spark.master": CLUSTER}
    assert python_of_workers({"spark.master": "local[*]"}) == sys.executable
    assert python_of_workers(on_cluster) == "python3.elsewhere"
    assert python_of_workers(on_cluster | {"spark.pyspark.python": "./env/bin/python"}) == "./env/bin/python"
    conf("spark.pyspark.python ./of/file")
    assert python_of_workers(settings_of_file() | on_cluster) == "./of/file"


@pytest.mark.demand("sql-defaults")
def test_file_of_defaults_is_read_as_spark_reads_it_and_its_credentials_are_shown_nowhere(conf):
    conf(
        "# spark.a 0\n\n  spark.a   1 2\nspark.b=x=y\nspark.c: 3\nspark.d\nspark.hadoop.fs.s3a.secret.key Planted0-conf\n"
    )
    found = settings_of_file()
    assert {name: found[name] for name in ("spark.a", "spark.b", "spark.c", "spark.d")} == {
        "spark.a": "1 2",
        "spark.b": "x=y",
        "spark.c": "3",
        "spark.d": "",
    }
    assert str(EbbtideError("Refused: 'Planted0-conf'.")) == "Refused: '***'."


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("shuffle=3", "NAME begins with 'spark.'"),
        ("spark.x", "NAME=VALUE"),
        ("spark.hadoop.fs.s3a.secret.key=Planted0", "${NAME}, a variable of the environment"),
    ],
)
def test_setting_of_a_command_that_is_none_or_holds_a_credential_is_refused(given, words):
    result = CliRunner().invoke(main, ["run", "spec", "--conf", given])
    assert result.exit_code == 2
    assert words in result.output
    assert "Planted0" not in result.output


def test_options_of_a_command_reach_the_session(monkeypatch, tmp_path):
    """`state` starts Spark; the settings are those that the session would be built with."""
    from ebbtide.cli import quiet

    def built(self):
        raise EbbtideError(f"built with {sorted(self.settings.items())}")

    monkeypatch.setattr(quiet.QuietSpark, "session", property(built))
    monkeypatch.setattr(quiet.QuietSpark, "executor", property(built))
    options = ["--master", CLUSTER, "--conf", "spark.executor.memory=1g", "--conf", "spark.a=b=c"]
    result = CliRunner().invoke(main, ["state", "pipelines/defs/shop/orders", "--root", str(tmp_path), *options])
    want = [("spark.a", "b=c"), ("spark.executor.memory", "1g"), ("spark.master", CLUSTER)]
    assert f"built with {want}" in result.output


def test_workers_are_forked_by_our_daemon_only_on_this_machine():
    """On a cluster nothing says that Ebbtide is there before it was looked for."""
    name = "spark.python.daemon.module"
    assert effective({})[name] == "ebbtide.sessions._worker_daemon"
    assert name not in effective({"spark.master": CLUSTER})
