"""`ebbtide sql-gateway`: SQL sessions over HTTP, for clients on this or other machines."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.options import seconds_of
from ebbtide.cli.places import defs_option, root_option
from ebbtide.cli.quiet import new_log
from ebbtide.cli.reporting import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.sql import Catalog, Client, OpenSession

PORT = 8083
MOST_PORT = 65535
STOPS_WITHIN_S = 1
"""Seconds to wait at the end for a starting JVM; it ends with this process anyway."""


def _refuse_connect(context: click.Context, option: click.Parameter, text: str | None) -> None:
    """Refuse an option of earlier releases."""
    if text is not None:
        raise click.BadParameter(
            "the gateway opens no Spark Connect: its clients run code that neither roles nor the audit see. Use the "
            "gateway's HTTP, or run a Spark Connect server over the Delta tables ROOT/NAME/sink"
        )


@click.command("sql-gateway")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; other than loopback needs a token."
)
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, MOST_PORT), help="0: any free port.")
@defs_option
@root_option
@click.option(
    "--environment",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file of sources, functions, settings.",
)
@click.option("--read-only", is_flag=True, help="Allow only SELECT, SHOW, DESCRIBE, EXPLAIN of a query, SET and RESET.")
@click.option(
    "--folders", is_flag=True, help="Let statements name files and folders of this host. Default: only tables."
)
@click.option("--token-env", metavar="NAME", help="The token that clients must send: the name of a variable.")
@click.option("--token-file", type=click.Path(path_type=Path), help="The token: a file of mode 600.")
@click.option(
    "--clients",
    "clients_file",
    type=click.Path(path_type=Path),
    help="Tokens of further clients: a file of mode 600 with lines 'reader|writer|owner NAME TOKEN'.",
)
@click.option(
    "--idle-timeout",
    default="10m",
    show_default=True,
    callback=seconds_of,
    help="How long a session lives without a request or a heartbeat.",
)
@click.option("--connect", hidden=True, expose_value=False, callback=_refuse_connect)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record each statement and its end in this file, as lines of JSON. Default: none.",
)
@click.option("--max-sessions", default=20, show_default=True, type=click.IntRange(1), help="Sessions at a time.")
@click.option(
    "--max-client-sessions",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Sessions of one client at a time, with --clients.",
)
def sql_gateway(
    host: str,
    port: int,
    defs: str,
    root: str,
    environment: Path | None,
    read_only: bool,
    folders: bool,
    token_env: str | None,
    token_file: Path | None,
    clients_file: Path | None,
    idle_timeout: float,
    audit: Path | None,
    max_sessions: int,
    max_client_sessions: int,
) -> None:
    """Serve SQL sessions over HTTP, to 'ebbtide sql --gateway URL' and any client of REST.

    SIGTERM or Ctrl-C ends it: running queries are cancelled, jobs continue.
    """
    with Reporter(root).errors():
        from ebbtide.sql import GatewayServer, Limits, read_clients, read_environment

        spark = _SharedSpark(root)
        token = _token(token_env, token_file)
        clients = [] if clients_file is None else read_clients(clients_file)
        given = read_environment(environment)
        catalogs = given.catalogs(root, defs)
        server = GatewayServer(
            _opener(catalogs, given.settings, spark, read_only=read_only, folders=folders),
            host=host,
            port=port,
            token=token,
            clients=clients,
            limits=Limits(sessions=max_sessions, client_sessions=max_client_sessions, idle_timeout_s=idle_timeout),
            read_only=read_only,
            audit=audit,
            say=click.echo,
        )
        click.echo(f"SQL gateway: {server.url}")
        try:
            server.run()
        finally:
            spark.stop()
        click.echo("The SQL gateway has ended.")


def _token(variable: str | None, file: Path | None) -> str | None:
    from ebbtide.sql import token_of_file, token_of_variable

    if variable is not None and file is not None:
        raise click.UsageError("Got --token-env and --token-file. Allowed: one of them.")
    if variable is not None:
        token: str = token_of_variable(variable, os.environ)
        del os.environ[variable]  # code that statements start must not find it
        return token
    return None if file is None else token_of_file(file)


def _opener(
    catalogs: Mapping[str, Catalog], first: Mapping[str, str], spark: _SharedSpark, *, read_only: bool, folders: bool
) -> OpenSession:
    """Return a function that opens a client's session."""
    from ebbtide.sql import EmbeddedSession, Rights, Role

    def open_session(settings: Mapping[str, str], client: Client) -> EmbeddedSession:
        is_owner = client.role is Role.OWNER
        return EmbeddedSession(
            catalogs,
            {**first, **settings},
            start_spark=spark.session,
            client=client.name,
            rights=Rights.of_gateway(
                writes=is_owner and not read_only,
                folders=folders,
                stops_own_jobs_only=not is_owner,
            ),
        )

    return open_session


class _SharedSpark:
    """One JVM for all sessions, started on first use; each gets a separate Spark session.

    Args:
        root: Folder of all pipelines' tables; the JVM's log is in `.logs` there.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._log: Path | None = None
        self._last: SparkSession | None = None

    def session(self) -> SparkSession:
        """Return a new Spark session."""
        from ebbtide.sql import new_spark_session

        with self._lock:
            self._log = self._log or new_log(self._root)
            self._last = new_spark_session(self._log)
            return self._last

    def stop(self) -> None:
        """Stop Spark, if it was started."""
        is_idle = self._lock.acquire(timeout=STOPS_WITHIN_S)
        if is_idle and self._last is not None:
            self._last.stop()
