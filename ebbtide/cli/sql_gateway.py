"""`ebbtide sql-gateway`: SQL sessions over HTTP, for clients on this or other machines."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import seconds_of
from ebbtide.cli.places import defs_option, py_files_option, root_option
from ebbtide.cli.quiet import new_log
from ebbtide.cli.reporting import Reporter

PORT = 8083
MOST_PORT = 65535


def _refuse_connect(context: click.Context, option: click.Parameter, text: str | None) -> None:
    """Refuse an option of earlier releases."""
    if text is not None:
        raise click.BadParameter(
            "the gateway does not offer Spark Connect: clients of Spark Connect run code that roles do not restrict and the "
            "audit does not record. Use the gateway's HTTP, or run a Spark Connect server over the Delta tables ROOT/NAME/sink"
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
@py_files_option
@click.option("--read-only", is_flag=True, help="Allow only SELECT, SHOW, DESCRIBE, EXPLAIN of a query, SET and RESET.")
@click.option(
    "--folders", is_flag=True, help="Let statements name files and folders of this host. Default: only tables."
)
@click.option(
    "--token-env", metavar="NAME", help="Name of the environment variable with the token that clients must send."
)
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
    py_files: str,
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

    SIGTERM or Ctrl-C ends it: running queries are cancelled; jobs that statements started continue.
    """
    if token_env is not None and token_file is not None:
        raise click.UsageError("Got --token-env and --token-file. Allowed: one of them.")
    with Reporter(root).errors():
        from ebbtide.sql import Serving

        serving = Serving(
            root,
            defs,
            environment,
            host,
            port,
            token_file=token_file,
            token_variable=token_env,
            clients=clients_file,
            sessions=max_sessions,
            client_sessions=max_client_sessions,
            idle_timeout_s=idle_timeout,
            read_only=read_only,
            folders=folders,
            audit=audit,
            py_files=py_files,
        )
        with serving.open(lambda: new_log(root), click.echo) as server:
            click.echo(f"SQL gateway: {server.url}")
            server.run()
        click.echo("The SQL gateway has ended.")
