"""Names of hosts: which of them mean this machine, and which one a request over HTTP names in its Host."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is one of this machine's loopback.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def netloc(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if the text is not a URL with a valid port."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if the port is not valid
    except ValueError:
        return None
    return parts


def named_host(header: str) -> str | None:
    """Return the name or address of a Host header, without the port; None if it is not one.

    Example:
        >>> named_host("LOCALHOST:80"), named_host("[::1]:80"), named_host("a@b"), named_host("")
        ('localhost', '::1', None, None)
    """
    parts = netloc(f"//{header}")
    is_plain = parts is not None and parts.netloc == header and "@" not in header
    return parts.hostname if parts is not None and is_plain else None
