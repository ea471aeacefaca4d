"""SQL over pipelines: declare changelogs and tables, fill them, ask for them. Source: FLIP-24.

A `Target` opens a session, in this process or in a gateway. `Shell` executes a `Script` or what is typed, and shows rows in a
`ResultFormat`. `Serving` opens a gateway for sessions over HTTP: a `GatewayServer`, whose clients have a `Role` each. A session is an
`EmbeddedSession` of this process or a `RemoteSession`. Declarations alone are read by `parse_text` and kept in a `Catalog`.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sql._catalog import Catalog as Catalog
    from ebbtide.sql._environment import read_environment as read_environment
    from ebbtide.sql._gateway import GatewayServer as GatewayServer
    from ebbtide.sql._gateway.clients import Client as Client
    from ebbtide.sql._gateway.clients import Role as Role
    from ebbtide.sql._gateway.guard import read_clients as read_clients
    from ebbtide.sql._gateway.serving import Serving as Serving
    from ebbtide.sql._gateway.sessions import Limits as Limits
    from ebbtide.sql._opening import Target as Target
    from ebbtide.sql._opening import token_of_file as token_of_file
    from ebbtide.sql._opening import token_of_variable as token_of_variable
    from ebbtide.sql._parsing import parse_text as parse_text
    from ebbtide.sql._remote import RemoteSession as RemoteSession
    from ebbtide.sql._results import ResultKind as ResultKind
    from ebbtide.sql._session import EmbeddedSession as EmbeddedSession
    from ebbtide.sql._settings import Rights as Rights
    from ebbtide.sql._shell.script import Script as Script
    from ebbtide.sql._shell.shell import Shell as Shell
    from ebbtide.sql._shell.show import ResultFormat as ResultFormat
else:
    __getattr__, __all__ = names_of(__name__)
