"""A Postgres out of Debian's packages: a cluster of its own in a temporary folder, on loopback, as a user without rights."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from servers.kafka_broker import free_port

PACKAGE = "postgresql"
USER = "postgres"
"""The user of the package, for whoever is root: Postgres does not run as root."""
SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "synchronous_commit": "off",
    "max_wal_senders": "4",
    "max_replication_slots": "4",
}


class Postgres:
    """A running server; a context manager."""

    def __init__(self) -> None:
        self._programs = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="ebbtide-postgres-"))
        self.port = free_port()
        self.password = secrets.token_hex(16)
        self._environment = {**os.environ, "PGPASSWORD": self.password, "PGTZ": "UTC"}
        self._data = self.folder / "data"
        self._make()
        self._control("start", "-w", "-l", str(self.folder / "log.txt"))

    def _make(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        if os.geteuid() == 0:
            shutil.chown(self.folder, USER)
            shutil.chown(password, USER)
        how = ["-U", USER, "--auth=scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C"]
        self._run("initdb", "-D", str(self._data), *how)
        named = {**SETTINGS, "port": self.port, "unix_socket_directories": self.folder}
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in named.items())

    def _run(self, program: str, *options: str) -> None:
        command = [str(self._programs / program), *options]
        if os.geteuid() == 0:
            command = ["runuser", "-u", USER, "--", *command]
        done = subprocess.run(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")

    def _control(self, *command: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), *command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._control("stop", "-m", "immediate")
        shutil.rmtree(self.folder)

    def session(self) -> Session:
        """Open a session."""
        return Session(self._psql(), self._environment)

    def run(self, sql: str) -> str:
        """Run SQL; return what psql prints."""
        done = subprocess.run(
            self._psql(), env=self._environment, input=sql, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Read a table, each value as the text that Postgres prints."""
        texts = ", ".join(f"{column}::text AS {column}" for column in columns)
        said = self.run(f"SELECT row_to_json(t) FROM (SELECT {texts} FROM {table}) t;")
        return [json.loads(line) for line in said.splitlines()]

    def _psql(self) -> list[str]:
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        return [str(self._programs / "psql"), *options, USER]


class Session:
    """A session that takes statements one after the other.

    Args:
        command: Starts psql.
        environment: What it is to know.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the session
        self._psql = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            text=True,
        )

    def send(self, *statements: str) -> None:
        """Send a transaction."""
        assert self._psql.stdin is not None
        try:
            self._psql.stdin.write(f"BEGIN; {'; '.join(statements)}; COMMIT;\n")
            self._psql.stdin.flush()
        except BrokenPipeError:
            self.close()

    def close(self) -> None:
        """Wait until all is done."""
        assert self._psql.stdin is not None
        self._psql.stdin.close()
        if self._psql.wait(120):
            self._errors.seek(0)
            raise RuntimeError(self._errors.read())
        self._errors.close()


def literal(value: Any) -> str:
    """Write a value as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def upsert(table: str, key: str, row: Mapping[str, Any]) -> str:
    """Write a row that is there or not."""
    names, values = ", ".join(row), ", ".join(map(literal, row.values()))
    sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in row if name != key)
    return f"INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {sets}"


def programs() -> Path:
    """Find Postgres's programs; install the package where it is missing and may be installed."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"Installing {PACKAGE} by apt-get", file=sys.stderr)
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", PACKAGE], check=False)
        found = _found()
    if found is None:
        raise SystemExit(
            f"There is no Postgres, and it could not be installed. On Debian and Ubuntu: apt install {PACKAGE}"
        )
    return found


def _found() -> Path | None:
    on_path = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True) + (
        [Path(on_path).parent] if on_path else []
    )
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "psql").exists()), None)
