"""Spark Connect on a gateway's session, for JDBC and Python: the pipelines' tables are views there, always as of now.

Clients have Spark itself, with all that it can do, so they run their code with the rights of this process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.delta import log
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.paths import is_local
from ebbtide.runtime.plan import Plan
from ebbtide.sql.catalog import Catalog, Filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKS_EVERY_S = 5
"""How often tables that are new, gone or of other columns are looked for; their rows are always those of now."""
ADDRESS = "spark.connect.grpc.binding.address"
PORT = "spark.connect.grpc.binding.port"
TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - the name of a setting


class ConnectServer:
    """Listens once the views stand.

    Args:
        spark: A session of the JVM; clients have sessions of their own, with the same tables.
        catalog: Whose tables clients see.
        say: Takes a line that says why tables cannot be seen.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._say = say
        self._views: dict[str, str] = {}
        self._problem = ""
        self._is_over = threading.Event()

    def start(self, host: str, port: int, token: str | None) -> int:
        """Make the views, and listen; return the port.

        Args:
            host: Where to listen.
            port: 0: any that is free.
            token: That clients must send.

        Raises:
            ConfigError: it cannot listen there.
        """
        self.refresh()
        settings = self._jvm.org.apache.spark.SparkEnv.get().conf()
        settings.set(ADDRESS, host)
        settings.set(PORT, str(port))
        if token is not None:
            settings.set(TOKEN, token)
        try:
            self._service.start(self._spark.sparkContext._jsc.sc())
        except Exception as error:
            raise ConfigError.of(
                "Spark Connect cannot listen there.",
                got=f"{host}:{port}",
                next_step="Give --connect another port; 0 is any that is free.",
            ) from error
        finally:
            settings.remove(TOKEN)  # statements must not find it
        threading.Thread(
            target=self._look,
            name="sql-connect-views",
            daemon=True,
        ).start()
        return int(self._service.server().getPort())

    def stop(self) -> None:
        """End it, and take the views away."""
        self._is_over.set()
        nothing = self._jvm.scala.Option.apply(None)
        self._service.stop(nothing, nothing)
        self.close_views()

    def close_views(self) -> None:
        """Take the views away."""
        self._replace({})

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    @property
    def _service(self) -> Any:
        """Spark's own, one in a JVM."""
        package = self._jvm.org.apache.spark.sql.connect.service
        return getattr(getattr(package, "SparkConnectService$"), "MODULE$")

    def _look(self) -> None:
        while not self._is_over.wait(LOOKS_EVERY_S):
            self.refresh()

    def refresh(self) -> None:
        """Make the views those of the tables that there are; a catalog that cannot be read leaves them as they are."""
        try:
            self._replace(wanted_views(self._catalog))
            self._problem = ""
        except EbbtideError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._say(f"Spark Connect has its tables as they were: {error}")

    def _replace(self, wanted: Mapping[str, str]) -> None:
        for name in self._views.keys() - wanted.keys():
            self._spark.sql(f"DROP VIEW IF EXISTS `{name}`")
            del self._views[name]
        for name, query in wanted.items():
            if self._views.get(name) != query:
                self._spark.sql(f"CREATE OR REPLACE VIEW `{name}` AS {query}")
                self._views[name] = query


def wanted_views(catalog: Catalog) -> dict[str, str]:
    """Return the tables that have rows, each with the query that reads them; Spark looks for the newest version each time."""
    views = {}
    for name, entry in catalog.pipelines().items():
        sink = Plan.under(catalog.root, entry.spec).at("sink")
        if log.versions(sink):
            views[name] = _query(entry, sink)
    return views


def _query(entry: Filled, sink: str) -> str:
    location = str(Path(sink).resolve()) if is_local(sink) else sink
    names = entry.spec.sink_table.columns.names
    columns = ", ".join(map(_quoted, names))
    return f"SELECT {columns} FROM delta.{_quoted(location)}"  # noqa: S608 - names are quoted


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
