"""A user id without a name, as containers have."""

import os

import pytest
from click.testing import CliRunner
from pyspark import SparkContext

from ebbtide.cli import main
from ebbtide.cli.quiet import _temporary_log
from ebbtide.errors import ConfigError
from ebbtide.ledger import Ledger
from ebbtide.sessions._session import _start_jvm
from ebbtide.users import user_name

NOBODY = 2**31 - 77


@pytest.fixture
def nameless(monkeypatch, shell):
    shell.unset("LOGNAME", "USER", "LNAME", "USERNAME")
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)


def test_user_id_without_a_name_stands_for_itself(nameless):
    assert user_name() == f"uid-{NOBODY}"


def test_name_of_a_variable_is_taken_but_not_by_the_jvm(nameless, shell):
    shell.export(USER="app")
    assert user_name() == "app"


def test_pipeline_is_paused_by_a_user_without_a_name(nameless, tmp_path):
    spec = tmp_path / "defs.yaml"
    spec.write_text(
        "type: ebbtide.UpsertPipeline\n"
        "attributes: {name: t, schema: id BIGINT, key: [id], order: arrival, format: {type: plain}, source: {path: in}}\n"
    )
    result = CliRunner().invoke(main, ["pause", str(spec), "--root", str(tmp_path / "root"), "--reason", "x"])
    assert result.exit_code == 0, result.output
    turn = Ledger(str(tmp_path / "root/t/ledger"), "t").turn
    assert turn.paused.by.startswith(f"uid-{NOBODY}@")


def test_log_of_a_root_in_a_store_has_its_folder(nameless, tmp_path, shell):
    shell.keep_temporary_files(tmp_path)
    assert _temporary_log("a.log").parent.name == f"ebbtide-logs-uid-{NOBODY}"


def test_spark_is_refused_with_the_way_out_before_a_jvm_is_launched(nameless, monkeypatch):
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(ConfigError, match=rf"has no name. Got: id {NOBODY}. Allowed: an id with a line in /etc/passwd"):
        _start_jvm({}, None)
