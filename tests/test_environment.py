"""Ebbtide's own variables of the environment: what is not allowed is refused by name, before a command does anything."""

import logging
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ebbtide.cli import main
from ebbtide.environment import VARIABLES, refuse_unusable_variables
from ebbtide.errors import ConfigError

GOOD = {
    "EBBTIDE_ROOT": ["/data", "s3://bucket/shop", "with space"],
    "EBBTIDE_ENGINE": ["auto", "spark", "local"],
    "EBBTIDE_LOG_FORMAT": ["text", "json"],
    "EBBTIDE_DRIVER_MEMORY": ["4g", "512m", "1G", "2gb"],
    "EBBTIDE_MASTER": ["local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "spark://h:7077", "k8s://https://h:6443"],
    "EBBTIDE_LOG_LEVEL": ["DEBUG", "INFO", "WARN", "ERROR", "FATAL"],
    "EBBTIDE_FSYNC": ["on", "off"],
    "EBBTIDE_CACHE": ["/var/cache/ebbtide"],
    "EBBTIDE_CACHE_BYTES": ["0", "10737418240"],
    "EBBTIDE_THREADS": ["1", "8", "99"],
}  # fmt: skip
HOSTILE = ["lots", "-1", "1e9", "10 GB", "0x10", "\N{ARABIC-INDIC DIGIT FIVE}", "9" * 400, "yes", "ON", " on", "auto ", "\x1b[2J", "a\nb", "${HOME}"]  # fmt: skip
ANY_PATH = {"EBBTIDE_ROOT", "EBBTIDE_CACHE"}


def test_each_variable_has_values_that_are_taken():
    assert set(GOOD) == {variable.name for variable in VARIABLES}


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda each: each.name)
def test_value_is_taken_or_refused_with_name_value_and_what_is_allowed(variable, shell):
    for text in ("", *GOOD[variable.name]):
        shell.export(**{variable.name: text})
        assert variable.value == (text or variable.default)
    for text in HOSTILE:
        shell.export(**{variable.name: text})
        if variable.name in ANY_PATH and text.isprintable():
            assert variable.value == text
            continue
        with pytest.raises(ConfigError) as caught:
            refuse_unusable_variables()
        shown = str(caught.value)
        assert f"The environment variable {variable.name} is not usable. Got: '" in shown
        assert f"Allowed: {variable.allowed}." in shown
        assert shown.isprintable()


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda each: each.name)
def test_command_is_refused_before_it_begins(variable, shell, tmp_path):
    shell.export(**{variable.name: "a\x07b"})
    result = CliRunner().invoke(main, ["status", str(tmp_path)])
    assert (result.exit_code, variable.name in result.stderr) == (2, True)
    assert "Traceback" not in result.output


def test_levels_are_those_of_spark_and_of_python_alike(monkeypatch):
    monkeypatch.setattr(logging.getLogger("ebbtide.test"), "level", 0)
    for level in GOOD["EBBTIDE_LOG_LEVEL"]:
        logging.getLogger("ebbtide.test").setLevel(level)


@pytest.mark.parametrize(("given", "kept"), [({}, "60000"), ({"MIMALLOC_PURGE_DELAY": "5"}, "5")])
def test_free_memory_of_arrow_stays_for_a_minute_unless_the_environment_says_otherwise(given, kept):
    environment = {name: value for name, value in os.environ.items() if name != "MIMALLOC_PURGE_DELAY"}
    program = "import os, ebbtide; print(os.environ['MIMALLOC_PURGE_DELAY'])"

    found = subprocess.check_output([sys.executable, "-c", program], env=environment | given, text=True)

    assert found.strip() == kept
