"""`ebbtide sql-gateway`: sessions of SQL for clients on this machine or elsewhere, by HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.options import root_option
from ebbtide.cli.reporting import Reporter
from ebbtide.model.durations import parse_duration

if TYPE_CHECKING:
    from ebbtide.sql.gateway.sessions import OpenSession

PORT = 8083


class _Duration(click.ParamType):
    """A time with its unit, as in specs."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        """Return it in seconds."""
        try:
            seconds: float = parse_duration(value).total_seconds()
        except (ValueError, AttributeError) as error:
            self.fail(str(error), param, context)
        return seconds


@click.command("sql-gateway")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; beyond loopback it needs a token."
)
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option(
    "--defs",
    default=".",
    show_default=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the definitions: pipelines, sources, tables, functions.",
)
@root_option
@click.option(
    "--environment", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File of an environment."
)
@click.option("--read-only", is_flag=True, help="Take SELECT, SHOW, DESCRIBE, EXPLAIN, SET and RESET only.")
@click.option("--token-env", metavar="NAME", help="Variable that holds the token which clients must send.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File of mode 600 that holds it.")
@click.option(
    "--idle-timeout", default="10m", show_default=True, type=_Duration(), help="Sessions without heartbeat end."
)
@click.option("--max-sessions", default=20, show_default=True, type=click.IntRange(1), help="At a time.")
def sql_gateway(
    host: str,
    port: int,
    defs: Path,
    root: str,
    environment: Path | None,
    read_only: bool,
    token_env: str | None,
    token_file: Path | None,
    idle_timeout: float,
    max_sessions: int,
) -> None:
    """Serve SQL sessions over HTTP: 'ebbtide sql --gateway URL' and any client of REST (docs/sql-gateway.md).

    SIGTERM or Ctrl-C ends it: running queries are cancelled, jobs go on.
    """
    with Reporter(root).errors():
        from ebbtide.sql.gateway import GatewayServer, Limits

        token = _token(token_env, token_file)
        server = GatewayServer(
            _opener(defs, root, environment),
            host=host,
            port=port,
            token=token,
            limits=Limits(sessions=max_sessions, idle_timeout_s=idle_timeout),
            read_only=read_only,
            say=click.echo,
        )
        click.echo(f"SQL gateway: {server.url}")
        try:
            server.run()
        finally:
            _stop_spark()
    click.echo("The SQL gateway has ended.")


def _token(variable: str | None, file: Path | None) -> str | None:
    from ebbtide.sql.bearer import token_of_file, token_of_variable

    if variable is not None and file is not None:
        raise click.UsageError("--token-env and --token-file exclude each other.")
    if variable is not None:
        return token_of_variable(variable, os.environ)
    return None if file is None else token_of_file(file)


def _opener(defs: Path, root: str, environment: Path | None) -> OpenSession:
    """Return what opens a client's session; all of them share this process's JVM."""
    from ebbtide.sql.session import Session

    def open_session(settings: Mapping[str, str]) -> Session:
        from ebbtide.sql.catalog import Catalog
        from ebbtide.sql.embedded import EmbeddedSession

        session: Session = EmbeddedSession(Catalog(root, defs), settings)
        return session

    return open_session


def _stop_spark() -> None:
    """Stop the JVM, if a session has started it."""
    if "pyspark" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
