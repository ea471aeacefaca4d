"""How much a gateway takes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ebbtide.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """What clients of a gateway may have of it.

    Args:
        sessions: At a time, of all clients together.
        client_sessions: At a time, of one client, whatever tokens it has.
        operations: Of a session, at a time: those that run, and those that are not closed yet.
        statement_bytes: Of a statement, as UTF-8.
        page_rows: Of a page; a longer one of the session's is handed out in parts.
        wait_s: How long a request for a result or a page waits at most.
        idle_timeout_s: How long a session lives without a request or a heartbeat.

    Raises:
        ConfigError: one of them is not above 0.
    """

    sessions: int = 20
    client_sessions: int = 10
    operations: int = 10
    statement_bytes: int = 256 * 1024
    page_rows: int = 1000
    wait_s: float = 20
    idle_timeout_s: float = 600

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError.of(
                    f"The limit '{field.name}' of the gateway is not usable.",
                    got=value,
                    allowed="above 0",
                )
