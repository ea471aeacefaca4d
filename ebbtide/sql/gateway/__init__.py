"""Sessions over HTTP: REST below /v1, JSON. Needs `pip install 'ebbtide[sql]'`. What clients send: docs/sql-gateway.md."""

from importlib.util import find_spec

from ebbtide.errors import MissingExtraError

for _library in ("starlette", "uvicorn"):
    if find_spec(_library) is None:
        raise MissingExtraError.of_extra("sql", f"The SQL gateway's server ({_library})")

from ebbtide.sql.gateway.limits import Limits
from ebbtide.sql.gateway.server import GatewayServer

__all__ = ["GatewayServer", "Limits"]
