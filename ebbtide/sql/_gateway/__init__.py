"""Sessions over HTTP: REST below /v1, JSON. Needs `pip install 'ebbtide[sql]'`. The protocol: docs/reference/sql-gateway.md."""

from importlib.util import find_spec

from ebbtide.errors import MissingExtraError

if find_spec("starlette") is None or find_spec("uvicorn") is None:
    raise MissingExtraError.of_extra("sql", "The SQL gateway's server")

from ebbtide.sql._gateway.server import GatewayServer
from ebbtide.sql._gateway.sessions import Limits

__all__ = ["GatewayServer", "Limits"]
