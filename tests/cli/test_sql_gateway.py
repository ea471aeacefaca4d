"""`ebbtide sql-gateway`, as a process."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from ebbtide.cli import main

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-a-test-0123456789"  # noqa: S105 - of no gateway


def command(*arguments):
    return [sys.executable, "-m", "ebbtide.cli", "sql-gateway", *arguments]


def environment(**more):
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | more


def refused(*arguments, **more):
    """Run it where it does not start; return its exit code and what it says."""
    done = CliRunner().invoke(main, ["sql-gateway", *arguments], env=more)
    assert TOKEN not in done.output
    return done.exit_code, done.output


def test_it_prints_its_url_serves_and_ends_by_sigterm(tmp_path):
    started = subprocess.Popen(
        command("--port", "0", "--token-env", "GATEWAY_TOKEN", "--read-only", "--max-sessions", "3", "--idle-timeout", "2m"),
        cwd=tmp_path, env=environment(GATEWAY_TOKEN=TOKEN), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = started.stdout.readline()
        assert line.startswith("SQL gateway: http://127.0.0.1:")
        request = urllib.request.Request(f"{line.split()[-1]}/v1/info", headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            info = json.load(response)
        assert info["read_only"] is True
        assert (info["limits"]["sessions"], info["limits"]["idle_timeout_s"]) == (3, 120)
        started.send_signal(signal.SIGTERM)
        output, log = started.communicate(timeout=60)
    finally:
        started.kill()
    assert (started.returncode, output, log) == (0, "The SQL gateway has ended.\n", "")


def test_it_does_not_open_to_others_without_a_token():
    code, said = refused("--host", "0.0.0.0", "--port", "0")  # noqa: S104 - refused
    assert code == 2
    assert "Got: --host 0.0.0.0 without a token." in said
    assert "--token-env or --token-file" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--token-env", "NONE"], "Set NONE in the environment"),
        (["--token-file", "open"], "a file of mode 600"),
        (["--token-file", "none"], "cannot be read"),
        (["--token-env", "A", "--token-file", "open"], "exclude each other"),
        (["--idle-timeout", "5"], "a number with its unit"),
        (["--idle-timeout", "0s"], "Allowed: above 0"),
        (["--max-sessions", "0"], "0 is not in the range"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--defs", "none"], "does not exist"),
        (["--host", "192.0.2.1", "--token-env", "RIGHT"], "cannot listen there"),
    ],
)
def test_what_is_not_usable_is_said(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open").write_text(TOKEN)
    (tmp_path / "open").chmod(0o644)
    code, said = refused("--port", "0", *arguments, RIGHT=TOKEN)
    assert code == 2
    assert says in said
