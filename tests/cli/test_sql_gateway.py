"""`ebbtide sql-gateway`, as a process."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from frame.waiting import PATIENCE_S
from statements.gateway_support import running
from statements.sql_support import all_of

from ebbtide.cli import main
from ebbtide.sql import RemoteSession, ResultKind

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-a-test-0123456789"  # noqa: S105 - of no gateway


def refused(*arguments, **more):
    """Run it where it does not start; return its exit code and what it says."""
    done = CliRunner().invoke(main, ["sql-gateway", *arguments], env=more)
    assert TOKEN not in done.output
    return done.exit_code, done.output


def test_it_prints_its_url_serves_and_ends_by_sigterm(tmp_path):
    clients = tmp_path / "clients"
    clients.touch(0o600)
    clients.write_text("reader anna token-of-anna-for-tests\n")
    limits = ("--max-sessions", "3", "--max-client-sessions", "2", "--idle-timeout", "2m")
    options = ("--token-env", "GATEWAY_TOKEN", "--clients", str(clients), "--read-only", *limits)
    with running(tmp_path, *options, GATEWAY_TOKEN=TOKEN) as (started, url):
        assert url.startswith("http://127.0.0.1:")
        infos = []
        for token in (TOKEN, "token-of-anna-for-tests"):
            request = urllib.request.Request(f"{url}/v1/info", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
                infos.append(json.load(response))
        info, of_anna = infos
        assert (info["read_only"], info["role"]) == (True, "owner")
        assert (of_anna["client"], of_anna["role"]) == ("anna", "reader")
        limits = info["limits"]
        assert (limits["sessions"], limits["client_sessions"], limits["idle_timeout_s"]) == (3, 2, 120)
        started.send_signal(signal.SIGTERM)
        output, log = started.communicate(timeout=PATIENCE_S)
    assert (started.returncode, output, log) == (0, "The SQL gateway has ended.\n", "")


def test_it_does_not_open_to_others_without_a_token():
    code, said = refused("--host", "0.0.0.0", "--port", "0")  # noqa: S104 - refused
    assert code == 2
    assert "Got: --host 0.0.0.0 without a token." in said
    assert "--token-env or --token-file" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--clients", "open"], "a file of mode 600"),
        (["--clients", "none"], "cannot be read"),
        (["--connect", "15002"], "the gateway does not offer Spark Connect"),
        (["--token-env", "NONE"], "Set NONE in the environment"),
        (["--token-file", "open"], "a file of mode 600"),
        (["--token-file", "none"], "cannot be read"),
        (["--token-env", "A", "--token-file", "open"], "Allowed: one of them."),
        (["--idle-timeout", "5"], "a number with its unit"),
        (["--idle-timeout", "0s"], "Allowed: above 0"),
        (["--max-sessions", "0"], "0 is not in the range"),
        (["--max-client-sessions", "0"], "0 is not in the range"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--environment", "none"], "does not exist"),
        (["--host", "192.0.2.1", "--token-env", "RIGHT"], "cannot listen there"),
    ],
)
def test_what_is_not_usable_is_said(tmp_path, shell, arguments, says):
    shell.cd(tmp_path)
    (tmp_path / "open").write_text(TOKEN)
    (tmp_path / "open").chmod(0o644)
    code, said = refused("--port", "0", *arguments, RIGHT=TOKEN)
    assert code == 2
    assert says in said


def test_sessions_are_over_the_definitions_and_the_root_that_it_was_given(tmp_path):
    create = "CREATE SOURCE clicks (id BIGINT, PRIMARY KEY (id)) WITH ('path' = 'in', 'format' = 'plain')"
    with running(tmp_path, "--defs", "mine", "--root", "tables") as (_, url):
        first, second = RemoteSession(url), RemoteSession(url, settings={"max-rows": "5"})
        assert all_of(first.execute(create))[0].kind is ResultKind.DONE
        _, rows, _ = all_of(second.execute("SHOW SOURCES"))
        assert [row[0] for row in rows] == ["clicks"]
        assert (tmp_path / "mine" / "clicks" / "source.yaml").exists()
        assert (second.settings["max-rows"], first.settings["max-rows"]) == ("5", "10000")
        for session in (first, second):
            session.close()


def test_environment_is_given_to_every_session(tmp_path):
    pytest.importorskip("ebbtide.sql._catalog")
    (tmp_path / "environment.yaml").write_text("settings: {max-rows: 7, page-rows: 8}\n")
    with running(tmp_path, "--environment", "environment.yaml") as (_, url):
        session = RemoteSession(url, settings={"page-rows": "9"})
        assert (session.settings["max-rows"], session.settings["page-rows"]) == ("7", "9")
        session.close()


def test_variable_of_the_token_is_not_handed_on(shell, tmp_path):
    shell.export(GATEWAY_TOKEN=TOKEN)
    unusable = tmp_path / "environment.yaml"
    unusable.write_text("no_such_field: 1\n")
    ended = CliRunner().invoke(main, ["sql-gateway", "--token-env", "GATEWAY_TOKEN", "--environment", str(unusable)])
    assert ended.exit_code == 2
    assert "no_such_field" in ended.stderr
    assert "GATEWAY_TOKEN" not in os.environ
