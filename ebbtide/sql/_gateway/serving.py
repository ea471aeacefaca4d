"""Serves the pipelines of this host as sessions over HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ebbtide.sql._environment import read_environment
from ebbtide.sql._gateway.clients import Client, Role
from ebbtide.sql._gateway.guard import read_clients
from ebbtide.sql._gateway.server import GatewayServer
from ebbtide.sql._gateway.sessions import Limits
from ebbtide.sql._opening import given_token
from ebbtide.sql._py_files import imported_from
from ebbtide.sql._session import EmbeddedSession, new_spark_session
from ebbtide.sql._settings import Rights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.sql._catalog import Catalog

STOPS_WITHIN_S = 1
"""Seconds to wait at the end for a JVM that is being started; it ends with this process anyway."""


@dataclass(frozen=True)
class Serving:
    """The settings of a gateway: what it serves, to whom, and what its clients may do.

    Args:
        root: Folder of all pipelines' tables.
        defs: Folder of the definitions.
        environment: File of an environment; see `ebbtide.sql._environment`.
        host: Host name or address to listen at.
        port: Port; 0: any that is free.
        token_file: File with the token that clients must send.
        token_variable: Name of the variable of this process with that token. Without both clients send none, which is
            possible at loopback alone.
        clients: File with the tokens of further clients.
        sessions, client_sessions, idle_timeout_s: See `Limits`.
        read_only: Statements may only read.
        folders: Statements may name files and folders of this host.
        audit: File that records statements.
        py_files: Files of Python code for functions, with commas between them.
    """

    root: str
    defs: str
    environment: Path | None
    host: str
    port: int
    token_file: Path | None = None
    token_variable: str | None = None
    clients: Path | None = None
    sessions: int = Limits.sessions
    client_sessions: int = Limits.client_sessions
    idle_timeout_s: float = Limits.idle_timeout_s
    read_only: bool = False
    folders: bool = False
    audit: Path | None = None
    py_files: str = ""

    @contextmanager
    def open(self, new_log: Callable[[], Path], say: Callable[[str], None]) -> Iterator[GatewayServer]:
        """Yield a gateway that is ready to run; Spark is stopped when the `with` block ends.

        The variable of the token is taken out of the environment: what statements start or call must not find it.

        Args:
            new_log: Makes the log file of Spark's JVM.
            say: Called with one line of text for each session that begins or ends.

        Raises:
            ConfigError: a file, a token or an address is not usable.
        """
        token = given_token(self.token_file, self.token_variable)
        if self.token_variable is not None:
            del os.environ[self.token_variable]
        py_files = imported_from(self.py_files)
        spark = _SharedSpark(new_log, py_files)
        environment = read_environment(self.environment)
        catalogs = environment.catalogs(self.root, self.defs)
        server = GatewayServer(
            _Opener(self, catalogs, environment.settings, spark, py_files),
            host=self.host,
            port=self.port,
            token=token,
            clients=[] if self.clients is None else read_clients(self.clients),
            limits=Limits(self.sessions, self.client_sessions, idle_timeout_s=self.idle_timeout_s),
            read_only=self.read_only,
            audit=self.audit,
            say=say,
        )
        try:
            yield server
        finally:
            spark.stop()


@dataclass(frozen=True)
class _Opener:
    """Opens the session of a client.

    Args:
        serving: What is served.
        catalogs: The catalogs of the environment.
        settings: The settings that each session begins with.
        spark: Starts its Spark session.
        py_files: Files of Python code for its functions.
    """

    serving: Serving
    catalogs: Mapping[str, Catalog]
    settings: Mapping[str, str]
    spark: _SharedSpark
    py_files: tuple[str, ...] = ()

    def __call__(self, settings: Mapping[str, str], client: Client) -> EmbeddedSession:
        """Open a session with settings of the client's."""
        is_owner = client.role is Role.OWNER
        rights = Rights.of_gateway(
            writes=is_owner and not self.serving.read_only,
            folders=self.serving.folders,
            stops_own_jobs_only=not is_owner,
        )
        return EmbeddedSession(
            self.catalogs,
            {**self.settings, **settings},
            start_spark=self.spark.session,
            client=client.name,
            rights=rights,
            py_files=self.py_files,
        )


class _SharedSpark:
    """One JVM for all sessions, started when the first of them needs it; each has another Spark session in it.

    Args:
        new_log: Makes the log file of the JVM.
        py_files: Files of Python code for its workers.
    """

    def __init__(self, new_log: Callable[[], Path], py_files: tuple[str, ...] = ()) -> None:
        self._new_log = new_log
        self._py_files = py_files
        self._lock = threading.Lock()
        self._log: Path | None = None
        self._last: SparkSession | None = None

    def session(self) -> SparkSession:
        """Return a new Spark session."""
        with self._lock:
            self._log = self._log or self._new_log()
            self._last = new_spark_session(self._log, self._py_files)
            return self._last

    def stop(self) -> None:
        """Stop Spark, if it was started."""
        has_lock = self._lock.acquire(timeout=STOPS_WITHIN_S)  # false while the JVM is being started
        if has_lock and self._last is not None:
            self._last.stop()
